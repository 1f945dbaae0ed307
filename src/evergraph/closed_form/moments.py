"""Moments: all that a closed-form learner keeps of the rows it has seen.

Every class has its number of rows and their mean; the scatter around these means is one for all
classes. Batches merge exactly, so that it does not matter how rows were cut or when a class came.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from evergraph.closed_form.features import Panels
from evergraph.errors import InputError
from evergraph.team import ALONE, Team

#: Rows taken in at a time: bounds the memory of a merge.
ROWS = 4096


class Moments:
    r"""Counts and means of classes, and the scatter within them.

    The scatter is :math:`\sum_i (x_i - \mu_{c(i)})(x_i - \mu_{c(i)})^\top`. While fewer rows than
    columns have come, ``scatter`` is a triangular factor :math:`R` with :math:`R^\top R` that
    matrix, ``[r, d]`` with r < d; from then on it is the matrix, ``[d, d]``. Where a rank limits
    it, it holds so many of the strongest directions for each class seen, and ``rest`` is the mean
    energy per column that the others had. ``dtype`` is what is kept: sums are in double precision.
    """

    def __init__(self, rank: int | None = None, dtype: torch.dtype = torch.float64) -> None:
        self.rank, self.dtype = rank, dtype
        self.labels: list[int] = []  # ascending
        self.counts = torch.zeros(0, dtype=torch.int64)  # [k]
        self.means = torch.zeros(0, 0, dtype=dtype)  # [k, d]
        self.scatter = torch.zeros(0, 0, dtype=dtype)
        self.rest = 0.0

    @property
    def width(self) -> int | None:
        """Counts the columns of the rows; None before the first."""
        return self.means.shape[1] if self.labels else None

    @property
    def num_rows(self) -> int:
        """Counts the rows taken in."""
        return int(self.counts.sum())

    def columns_of(self, labels: Tensor) -> Tensor:
        """Returns the place of each label among those known, ``[m]``."""
        return torch.searchsorted(torch.tensor(self.labels, device=labels.device), labels)

    def logits(self, scores: Tensor, num_classes: int) -> Tensor:
        """Gives every class a column, ``[n, k]``; those without a row are never chosen."""
        if self.labels[0] < 0 or self.labels[-1] >= num_classes:
            raise InputError(
                f"Expected statistics of the {num_classes} classes known (got others); restore a "
                "copy of the state."
            )
        if len(self.labels) == num_classes:
            return scores
        found = scores.new_full((scores.shape[0], num_classes), -1e9)
        found[:, self.labels] = scores
        return found

    def update(self, rows: Tensor | Panels, labels: Tensor, team: Team = ALONE) -> None:
        """Takes in labelled rows, ``[m, d]`` and ``[m]``; a class may come any number of times.

        Each worker of a team has some of them, and all know what all have taken in.
        """
        if team.size > 1:
            self._update_together(rows, labels, team)
            return
        if not labels.numel():
            return
        self._know(torch.unique(labels).tolist(), rows[:1])
        means, scatter = self.means.double(), self.scatter.double().clone()
        for begin in range(0, labels.numel(), ROWS):
            some = slice(begin, begin + ROWS)
            x, column = rows[some].double(), self.columns_of(labels[some])
            new = torch.bincount(column, minlength=len(self.labels))
            own = torch.zeros_like(means).index_add_(0, column, x) / new.clamp(min=1)[:, None]
            bridges = self._merge(new, own, means)
            scatter = self._join(scatter, torch.cat([x - own[column], bridges]))
        self.means, self.scatter = means.to(self.dtype), scatter.to(self.dtype)

    def _update_together(self, rows: Tensor | Panels, labels: Tensor, team: Team) -> None:
        """Takes in what each worker has of some rows: sums of all of them, which all get."""
        mine = Moments()
        mine._know((), rows[:1])
        mine.update(rows, labels)
        self._know(team.gather(torch.tensor(mine.labels, dtype=torch.int64)).tolist(), rows[:1])
        if not self.labels:
            return
        at, means = self.columns_of(torch.tensor(mine.labels)), self.means.double()
        count = mine.counts.double()[:, None]
        sums = means.new_zeros(len(self.labels), 1 + means.shape[1])
        team.sum(sums.index_copy_(0, at, torch.cat([count, count * mine.means], dim=1)))
        new, their_means = sums[:, 0].long(), sums[:, 1:] / sums[:, :1].clamp(min=1)
        apart = count.sqrt() * (mine.means - their_means[at])
        inner = team.sum(_products(mine.scatter) + apart.t() @ apart)
        bridges, scatter = self._merge(new, their_means, means), self.scatter.double().clone()
        if self.rank is None:
            scatter = _products(scatter) + inner
        else:  # directions, as long as they count
            energy, basis = torch.linalg.eigh(inner)
            bridges = torch.cat([energy.clamp(min=0).sqrt()[:, None] * basis.t(), bridges])
        scatter = self._join(scatter, bridges)
        self.means, self.scatter = means.to(self.dtype), scatter.to(self.dtype)

    def _know(self, labels: Iterable[int], like: Tensor) -> None:
        """Makes room for classes that are new."""
        joined = sorted({*self.labels, *labels})
        counts = torch.zeros(len(joined), dtype=torch.int64, device=like.device)
        means = torch.zeros(len(joined), like.shape[1], dtype=self.dtype, device=like.device)
        if self.labels:
            place = torch.tensor([joined.index(label) for label in self.labels])
            counts[place], means[place] = self.counts, self.means
        else:
            self.scatter = self.scatter.new_zeros(0, like.shape[1], device=like.device)
        self.labels, self.counts, self.means = joined, counts, means

    def _merge(self, new: Tensor, their_means: Tensor, means: Tensor) -> Tensor:
        """Adds ``new`` rows ``[k]`` of other means, moving ``means`` in place, both ``[k, d]``.

        Scatters add up but for the distance between the two means of a class: returns the rows
        whose products it is.
        """
        there, total = new > 0, self.counts + new
        apart, part = (their_means - means)[there], (new.double() / total)[there][:, None]
        bridges: Tensor = (self.counts[there][:, None] * part).sqrt() * apart
        means[there] += apart * part
        self.counts = total
        return bridges

    def _join(self, scatter: Tensor, rows: Tensor) -> Tensor:
        """Adds the products of rows to the scatter, in whatever form it takes."""
        width = rows.shape[1]
        if scatter.shape[0] == width:
            rows = rows.to(self.dtype)
            return scatter.add_(rows.t() @ rows)
        rows = torch.cat([scatter, rows[rows.any(dim=1)]])
        limit = width if self.rank is None else self.rank * len(self.labels)
        if limit < min(width, rows.shape[0]):
            rows, lost = _strongest(rows, limit)
            self.rest += lost
            return rows
        return rows.t() @ rows if rows.shape[0] >= width else _triangular(rows)

    def shift(self, amount: Tensor, label: int | None = None) -> None:
        """Moves all rows, or those of one class, by ``amount`` ``[d]``; the scatter stays."""
        place = slice(None) if label is None else self.labels.index(label)
        self.means[place] = (self.means[place].double() + amount.double()).to(self.dtype)

    def memory_bytes(self) -> int:
        """Counts the bytes of counts, means and scatter, and a label for each class."""
        tensors = (self.counts, self.means, self.scatter)
        return sum(tensor.nbytes for tensor in tensors) + 8 * len(self.labels)

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain values that restore the moments."""
        kept = {name: getattr(self, name) for name in ("labels", "counts", "means", "scatter")}
        return {**kept, "rest": self.rest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned, or 0.1.0 wrote; refuses what does not fit."""
        found = state if "labels" in state else _former(state, self.dtype)
        self.labels, self.rest = [int(label) for label in found["labels"]], float(found["rest"])
        self.counts, self.means, self.scatter = (
            found[name].clone() for name in ("counts", "means", "scatter")
        )
        k, d = len(self.labels), self.means.shape[-1]
        whole = (
            self.labels == sorted(set(self.labels))
            and self.counts.shape == (k,)
            and self.counts.dtype == torch.int64
            and bool((self.counts > 0).all())
            and self.means.shape == (k, d)
            and self.scatter.ndim == 2
            and self.scatter.shape[0] <= d == self.scatter.shape[1]
            and self.means.dtype == self.scatter.dtype == self.dtype
            and math.isfinite(self.rest)
        )
        if not whole:
            raise ValueError("moments of different rows")


def _former(state: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Adds up the scatters that 0.1.0 kept class by class."""
    parts = {int(label): state[label] for label in sorted(state, key=int)}
    if not parts:
        return Moments(dtype=dtype).state_dict()
    widths = {part["mean"].shape for part in parts.values()}
    if len(widths) > 1 or any(part["mean"].dtype != dtype for part in parts.values()):
        raise ValueError("moments of different rows")
    rows = torch.cat([part["factor"].double() for part in parts.values()])
    scatter = rows.t() @ rows if rows.shape[0] >= rows.shape[1] else _triangular(rows)
    return {
        "labels": list(parts),
        "counts": torch.tensor([part["count"] for part in parts.values()]),
        "means": torch.stack([part["mean"] for part in parts.values()]),
        "scatter": scatter.to(dtype),
        "rest": sum(float(part["rest"]) for part in parts.values()),
    }


def _products(scatter: Tensor) -> Tensor:
    """Returns the products of columns, ``[d, d]``; they may be what is given already."""
    return scatter if scatter.shape[0] == scatter.shape[1] else scatter.t() @ scatter


def _triangular(rows: Tensor) -> Tensor:
    """Returns R of the QR decomposition, ``[min(m, d), d]``: the same products of columns."""
    upper: Tensor = torch.linalg.qr(rows, mode="r").R
    return upper


def _strongest(rows: Tensor, rank: int) -> tuple[Tensor, float]:
    """Returns the best approximation of so many rows and the mean energy per column it lost."""
    if rows.shape[0] > rows.shape[1]:
        rows = _triangular(rows)
    energy, basis = torch.linalg.eigh(rows @ rows.t())  # ascending
    cut = max(energy.numel() - rank, 0)
    lost = float(energy[:cut].clamp(min=0).sum())
    return basis[:, cut:].flip(1).t() @ rows, lost / rows.shape[1]
