"""Moments: all that a closed-form learner keeps of the rows it has seen, class by class.

A class is its number of rows, their mean and a factor of their scatter. Two batches of a class
merge exactly, so that it does not matter how rows were cut into batches or when a class came.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

#: Rows taken in at a time: bounds the memory of a merge.
ROWS = 4096


@dataclass(frozen=True)
class ClassMoments:
    r"""Count, mean and scatter of one class's rows.

    ``factor`` is a triangular :math:`R` with :math:`R^\top R = \sum_i (x_i - \mu)(x_i - \mu)^\top`:
    it tells what that matrix tells and takes less room where a class has fewer rows than columns.
    When a rank limits it, it holds the strongest directions, and ``rest`` is the mean energy per
    column that the others had.
    """

    count: int
    mean: Tensor  # [d]
    factor: Tensor  # [r, d]
    rest: float = 0.0

    @classmethod
    def empty(cls, width: int, like: Tensor) -> ClassMoments:
        """Returns the moments of no rows."""
        return cls(0, like.new_zeros(width), like.new_zeros(0, width))

    def merge(self, rows: Tensor, rank: int | None = None) -> ClassMoments:
        """Takes in more rows of the class, ``[m, d]`` in double precision."""
        merged = self
        for block in torch.split(rows, ROWS):
            merged = merged._with(block, rank)
        return merged

    def _with(self, rows: Tensor, rank: int | None) -> ClassMoments:
        old, new = self.count, rows.shape[0]
        mean = rows.mean(dim=0)
        apart = mean - self.mean
        # Scatters add up but for the distance between the two means.
        bridge = math.sqrt(old * new / (old + new)) * apart
        stacked = torch.cat([self.factor, rows - mean, bridge[None]])
        factor, lost = (_triangular(stacked), 0.0) if rank is None else _strongest(stacked, rank)
        joint = self.mean + apart * (new / (old + new))
        return ClassMoments(old + new, joint, factor, self.rest + lost)

    def to(self, dtype: torch.dtype) -> ClassMoments:
        """Rounds to another precision."""
        return replace(self, mean=self.mean.to(dtype), factor=self.factor.to(dtype))

    def memory_bytes(self) -> int:
        """Counts the bytes of the mean, the factor and two numbers."""
        return (self.mean.numel() + self.factor.numel()) * self.mean.element_size() + 16


class Moments:
    """The moments of every class seen.

    Args:
        rank: Most directions kept of a class's scatter; None keeps all.
        dtype: Precision that is kept; all sums are computed in double precision.
    """

    def __init__(self, rank: int | None = None, dtype: torch.dtype = torch.float64) -> None:
        self.rank = rank
        self.dtype = dtype
        self.classes: dict[int, ClassMoments] = {}

    @property
    def width(self) -> int | None:
        """Counts the columns of the rows; None before the first."""
        return next((part.mean.numel() for part in self.classes.values()), None)

    def update(self, rows: Tensor, labels: Tensor) -> None:
        """Takes in labelled rows, ``[m, d]`` and ``[m]``; a class may come any number of times."""
        for label in torch.unique(labels).tolist():
            mine = rows[labels == label].double()
            known = self.classes.get(label) or ClassMoments.empty(rows.shape[1], mine)
            merged = known.to(torch.float64).merge(mine, self.rank)
            self.classes[label] = merged.to(self.dtype)
        self.classes = dict(sorted(self.classes.items()))

    def shift(self, label: int, amount: Tensor) -> None:
        """Moves all rows of a class by the same ``amount``, ``[d]``; its scatter stays."""
        part = self.classes[label]
        moved = (part.mean.double() + amount.double()).to(self.dtype)
        self.classes[label] = replace(part, mean=moved)

    def memory_bytes(self) -> int:
        """Counts the bytes kept."""
        return sum(moments.memory_bytes() for moments in self.classes.values())

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain values that restore the moments."""
        return {str(label): dict(vars(moments)) for label, moments in self.classes.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned, refusing parts that do not fit each other."""
        self.classes = {int(label): ClassMoments(**moments) for label, moments in state.items()}
        widths = {part.mean.shape for part in self.classes.values()}
        whole = all(
            type(part.count) is int
            and part.count > 0
            and math.isfinite(part.rest)
            and part.mean.dtype == part.factor.dtype == self.dtype
            and part.factor.ndim == 2
            and part.factor.shape[1:] == part.mean.shape
            for part in self.classes.values()
        )
        if len(widths) > 1 or not whole:
            raise ValueError("moments of different rows")


def _triangular(rows: Tensor) -> Tensor:
    """Returns R of the QR decomposition, ``[min(m, d), d]``: the same products of columns."""
    upper: Tensor = torch.linalg.qr(rows, mode="r").R
    return upper


def _strongest(rows: Tensor, rank: int) -> tuple[Tensor, float]:
    """Returns the best approximation of so many rows and the mean energy per column it lost."""
    if rows.shape[0] > rows.shape[1]:
        rows = _triangular(rows)
    energy, basis = torch.linalg.eigh(rows @ rows.t())  # ascending
    lost = float(energy[: max(energy.numel() - rank, 0)].clamp(min=0).sum())
    kept = basis[:, max(energy.numel() - rank, 0) :].flip(1)
    return kept.t() @ rows, lost / rows.shape[1]
