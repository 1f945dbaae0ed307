r"""Ridge regression from moments: one eigendecomposition for every strength and every row left out.

With :math:`n_c`, :math:`\mu_c` the count and mean of class :math:`c`, :math:`S` the scatter of all
:math:`n` rows around these means and :math:`p_c` what a class weighs, the weights are
:math:`B = (G + \lambda I)^{-1} M` with

.. math:: G = \frac1n S + \sum_c p_c\, \mu_c \mu_c^\top, \qquad
    M = [p_1 \mu_1, \ldots, p_k \mu_k].

With natural weights, :math:`p_c = n_c / n`, that is ridge regression of one-hot labels on all rows
ever taken in. With balanced ones, :math:`p_c = 1/k`, it is the same if classes scatter alike, and
so it is half-way, with :math:`p_c \propto \sqrt{n_c}`. Being averages, both sides keep their scale
while rows and classes come, and so does the best strength.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType

import torch
from torch import Tensor

from evergraph.closed_form.moments import Moments
from evergraph.team import ALONE, Team

#: The power of its count that a class's rows are divided by: with 0 every row weighs the same, with
#: 1 every class; or what a row weighs by its label, ``[k]``.
Weighing = float | Tensor
#: Directions of less energy than this part of the strongest are rounding errors.
ROUNDING = 1e-13


class Spectrum:
    r"""Eigenvalues and eigenvectors of :math:`A^\top A`, to solve with any strength λ.

    Args:
        rows: The matrix A, ``[a, d]`` in double precision.
        extra: What is added to its products, ``[d, d]``; None for nothing.
    """

    def __init__(self, rows: Tensor, extra: Tensor | None = None) -> None:
        wide = extra is None and rows.shape[0] < rows.shape[1]
        products = rows @ rows.t() if wide else rows.t() @ rows
        energy, basis = torch.linalg.eigh(products if extra is None else products + extra)
        real = energy > ROUNDING * energy[-1].clamp(min=1e-300)
        self.energy: Tensor = energy[real]  # [r]
        basis = basis[:, real]
        self.basis: Tensor = rows.t() @ basis / self.energy.sqrt() if wide else basis  # [d, r]

    def regress(self, turned: Tensor, strength: float) -> Tensor:
        """Computes (A^T A + λ)^-1 t of targets given as ``basis^T t``, ``[r, k]`` to ``[d, k]``."""
        weights: Tensor = self.basis @ (turned / (self.energy + strength)[:, None])
        return weights

    def solve(self, x: Tensor, strength: float) -> Tensor:
        """Computes (A^T A + λ)^-1 x of every row, ``[m, d]``."""
        turned = (x @ self.basis) * self._beyond(strength)
        return turned @ self.basis.t() + x / strength

    def leverage(self, squares: Tensor, length: Tensor, strength: float) -> Tensor:
        """Computes x^T (A^T A + λ)^-1 x of rows, ``[m]``, whose squared lengths are given.

        ``squares`` are those of ``x @ basis``, ``[m, r]``.
        """
        return squares @ self._beyond(strength) + length / strength

    def _beyond(self, strength: float) -> Tensor:
        """What is left of a direction once 1/λ is taken off, as for those that A has not."""
        return torch.reciprocal(self.energy + strength) - 1 / strength


@dataclass(frozen=True)
class TrainingRows:
    """Labelled rows that a :class:`Ridge` holds, with what no strength changes."""

    x: Tensor  # [m, d]
    column: Tensor  # [m], the column of the weights that belongs to the label
    weight: Tensor  # [m], what the row weighs among all rows
    turned: Tensor  # [m, r], the row in the basis of eigenvectors
    squares: Tensor  # [m, r], of these
    length: Tensor  # [m], squared, of the row


class Ridge(Spectrum):
    """The equations (G + λ I) B = M of the moments of at least one row, for any strength."""

    def __init__(self, moments: Moments, weighing: Weighing) -> None:
        n, means, counts = moments.num_rows, moments.means.double(), moments.counts.double()
        self.moments, self.weighing = moments, weighing
        if isinstance(weighing, Tensor):
            weighed = counts * weighing.to(counts)[moments.labels]
        else:
            weighed = counts.pow(1 - weighing)
        self.share = weighed / weighed.sum()
        # What a rank limit dropped is spread evenly, which adds to every strength.
        self.floor = moments.rest / n
        rows, scatter = self.share.sqrt()[:, None] * means, moments.scatter.double() / n
        if scatter.shape[0] == scatter.shape[1]:
            super().__init__(rows, scatter)
        else:
            super().__init__(torch.cat([rows, scatter * n**0.5]))
        self.target = self.basis.t() @ means.t() * self.share  # M in the basis, [r, k]

    def weights(self, strength: float) -> Tensor:
        """B, ``[d, k]``."""
        return self.regress(self.target, strength + self.floor)

    def training_rows(self, x: Tensor, labels: Tensor) -> TrainingRows:
        """Prepares labelled rows ``[m, d]``, which must be among those that the moments hold."""
        column = self.moments.columns_of(labels)
        each = (self.share / self.moments.counts)[column]
        turned, length = x @ self.basis, x.square().sum(dim=1)
        return TrainingRows(x, column, each, turned, turned.square(), length)

    def residuals(self, train: TrainingRows, strength: float) -> Tensor:
        """Computes one-hot labels minus scores, ``[m, k]``."""
        lam = (self.energy + strength + self.floor)[:, None]
        scores = train.turned @ (self.target / lam)
        return torch.nn.functional.one_hot(train.column, scores.shape[1]) - scores

    def leave_one_out_residuals(self, train: TrainingRows, strength: float) -> Tensor:
        r"""Computes the residual of every row as predicted without it, ``[m, k]``.

        Leaving row :math:`i` of weight :math:`w_i` out of ridge regression turns its residual
        :math:`e_i` into :math:`e_i / (1 - h_i)` with
        :math:`h_i = w_i x_i^\top (G + \lambda I)^{-1} x_i`.
        """
        weight, lam = train.weight, strength + self.floor
        # No row explains itself better than it would alone; only rounded moments say otherwise.
        least = lam / (weight * train.length + lam)
        own = weight * self.leverage(train.squares, train.length, lam)
        stays = torch.maximum(1 - own, least)
        return self.residuals(train, strength) / stays[:, None]

    def leave_one_out_scores(self, train: TrainingRows, strength: float) -> Tensor:
        """Computes the scores of every row as predicted without it, ``[m, k]``."""
        residuals = self.leave_one_out_residuals(train, strength)
        return torch.nn.functional.one_hot(train.column, residuals.shape[1]) - residuals

    def leave_one_out_errors(
        self, train: TrainingRows, judges: Judges, strengths: Sequence[float]
    ) -> dict[float, float]:
        """Returns every strength's squared error of the judges predicted without them."""
        each = (self.leave_one_out_residuals(train, strength) for strength in strengths)
        errors = torch.stack([residuals.square().sum(dim=1) for residuals in each], dim=1)
        return dict(zip(strengths, judges.mean(errors, self.weighing).tolist(), strict=True))

    def weights_without(self, group: TrainingRows, strength: float) -> Tensor:
        r"""Solves for the weights without a group of rows, ``[d, k]``.

        With :math:`X` the group, :math:`W` its weights and :math:`E` its residuals, the residuals
        of the group as predicted without itself are :math:`R = (I - H)^{-1} E`,
        :math:`H = X (G + \lambda I)^{-1} X^\top W`, and the weights become
        :math:`B - (G + \lambda I)^{-1} X^\top W R`. Classes go on to weigh what they weighed.
        """
        x, weight, lam = group.x, group.weight, strength + self.floor
        root = weight.sqrt()[:, None]
        solved = self.solve(x, lam)
        own, turn = torch.linalg.eigh(root * (x @ solved.t()) * root.t())
        # As for single rows: no group explains itself better than it would alone.
        least = lam / (float((weight * group.length).sum()) + lam)
        stays = torch.clamp(1 - own, min=least)[:, None]
        missed: Tensor = turn @ (turn.t() @ (root * self.residuals(group, strength)) / stays)
        return self.weights(strength) - solved.t() @ (root * missed)


@dataclass(frozen=True)
class Judges:
    """Labelled nodes that judge settings; a worker has the rows of some and all their labels."""

    labels: Tensor  # [m]
    x: Tensor  # [h, d], the rows that are here
    here: Tensor | EllipsisType = ...  # which of all they are
    team: Team = ALONE

    def mean(self, values: Tensor, weighing: Weighing) -> Tensor:
        """Averages what rows have, ``[h, ...]`` of those here, each class as it weighs."""
        return self.team.sum(row_weights(self.labels, weighing)[self.here] @ values)

    def all(self, values: Tensor) -> Tensor:
        """Returns what all rows have, ``[m, ...]``, given that of those here."""
        if self.team.size == 1:
            return values
        found = values.new_zeros(self.labels.numel(), *values.shape[1:])
        found[self.here] = values
        return self.team.sum(found)


def fitted(
    judges: Judges, strengths: Sequence[float], weighing: Weighing
) -> tuple[Ridge, TrainingRows, float]:
    """Regresses the judges' labels on their rows; the strength is of least leave-one-out error."""
    moments, labels = Moments(), judges.labels[judges.here]
    moments.update(judges.x, labels, judges.team)
    ridge = Ridge(moments, weighing)
    train = ridge.training_rows(judges.x.double(), labels)
    errors = ridge.leave_one_out_errors(train, judges, strengths)
    return ridge, train, min(errors, key=lambda strength: errors[strength])


def row_weights(labels: Tensor, weighing: Weighing) -> Tensor:
    """Weighs rows so that all sum to one, ``[m]``."""
    if isinstance(weighing, Tensor):
        weights = weighing.to(labels.device, torch.float64)[labels]
    else:
        _, column, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        weights = counts.double().pow(-weighing)[column]
    return weights / weights.sum()
