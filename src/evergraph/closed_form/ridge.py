r"""Ridge regression from class moments, with every training row left out in closed form.

With :math:`\mu_c`, :math:`R_c`, :math:`n_c` the moments of class :math:`c` of :math:`k` and every
class weighing the same, the weights are :math:`B = (G + \lambda I)^{-1} M` with

.. math:: G = \frac1k \sum_c \mu_c \mu_c^\top + R_c^\top R_c / n_c, \qquad
    M = \frac1k [\mu_1, \ldots, \mu_k],

which is ridge regression of one-hot labels on all rows ever taken in. Being averages, both sides
keep their scale while classes come, and so does the best strength.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from evergraph.closed_form.moments import Moments


class Gram:
    r"""The smaller of the two products of rows :math:`A` with themselves.

    With fewer rows than columns :math:`A A^\top + \lambda I` is decomposed instead of
    :math:`A^\top A + \lambda I`, which gives the same solutions.

    Args:
        rows: The matrix A, ``[a, d]`` in double precision.
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.wide = rows.shape[0] < rows.shape[1]
        self.matrix = rows @ rows.t() if self.wide else rows.t() @ rows

    def products(self, x: Tensor) -> Tensor | None:
        """Computes A x of every row, ``[a, m]``, where a :class:`GramFactor` needs it."""
        return self.rows @ x.t() if self.wide else None


class GramFactor:
    """A :class:`Gram` decomposed for one strength λ."""

    def __init__(self, gram: Gram, strength: float) -> None:
        self.gram, self.strength = gram, strength
        matrix = gram.matrix.clone()
        matrix.diagonal().add_(strength)
        self.lower: Tensor = torch.linalg.cholesky(matrix)

    def regress(self, targets: Tensor) -> Tensor:
        """Computes (A^T A + λ)^-1 A^T t of targets ``[a, k]``: the weights, ``[d, k]``."""
        rows = self.gram.rows
        if not self.gram.wide:
            weights: Tensor = torch.cholesky_solve(rows.t() @ targets, self.lower)
            return weights
        # (A^T A + λ)^-1 A^T = A^T (A A^T + λ)^-1.
        inner: Tensor = torch.cholesky_solve(targets, self.lower)
        return rows.t() @ inner

    def solve(self, x: Tensor, products: Tensor | None) -> Tensor:
        """Computes (A^T A + λ)^-1 x of every row, ``[m, d]``; takes :meth:`Gram.products`."""
        if products is None:
            direct: Tensor = torch.cholesky_solve(x.t(), self.lower).t()
            return direct
        inner = torch.cholesky_solve(products, self.lower)  # [a, m]
        return (x - inner.t() @ self.gram.rows) / self.strength

    def leverage(self, x: Tensor, products: Tensor | None) -> Tensor:
        """Computes x^T (A^T A + λ)^-1 x of every row, ``[m]``; takes :meth:`Gram.products`."""
        right = x.t() if products is None else products
        half: Tensor = torch.linalg.solve_triangular(self.lower, right, upper=False)
        inside = half.square().sum(dim=0)
        if products is None:
            return inside
        return (x.square().sum(dim=1) - inside) / self.strength

    def own_leverage(self) -> Tensor:
        """Computes the leverage of every row of A itself, ``[a]``."""
        if not self.gram.wide:
            return self.leverage(self.gram.rows, None)
        # A (A^T A + λ)^-1 A^T = I - λ (A A^T + λ)^-1.
        return 1 - self.strength * torch.cholesky_inverse(self.lower).diagonal()


@dataclass(frozen=True)
class TrainingRows:
    """Labelled rows that a :class:`RidgeSystem` holds, with what no strength changes."""

    x: Tensor  # [m, d]
    labels: Tensor  # [m]
    column: Tensor  # [m], the column of the weights that belongs to the label
    weight: Tensor  # [m], what the row weighs among all rows
    products: Tensor | None  # see Gram.products


class RidgeSystem(Gram):
    r"""The equations :math:`(G + \lambda I) B = M` of some moments, for any strength.

    :math:`G = A^\top A` with a row of :math:`A` per mean and per row of a factor.
    """

    def __init__(self, moments: Moments) -> None:
        parts = [part.to(torch.float64) for part in moments.classes.values()]
        k = len(parts)
        self.labels = list(moments.classes)
        self.counts = torch.tensor([part.count for part in parts]).to(parts[0].mean)
        # What a rank limit dropped is spread evenly, which adds to every strength.
        self.floor = sum(part.rest / part.count for part in parts) / k
        means = torch.stack([part.mean for part in parts])
        scaled = [part.factor / math.sqrt(part.count) for part in parts]
        super().__init__(torch.cat([means, *scaled]) / math.sqrt(k))

    def columns_of(self, labels: Tensor) -> Tensor:
        """Returns the column of the weights that belongs to each label, ``[m]``."""
        return torch.searchsorted(torch.tensor(self.labels, device=labels.device), labels)

    def training_rows(self, x: Tensor, labels: Tensor) -> TrainingRows:
        """Prepares labelled rows ``[m, d]``, which must be among those that the moments hold."""
        column = self.columns_of(labels)
        each: Tensor = (self.counts * len(self.labels)).reciprocal()
        return TrainingRows(x, labels, column, each[column], self.products(x))

    def leave_one_out_errors(
        self, train: TrainingRows, strengths: Sequence[float]
    ) -> dict[float, float]:
        """Returns every strength's squared error of rows predicted without them, classes alike."""
        weights, errors = balanced_weights(train.labels), {}
        for strength in strengths:
            residuals = Ridge(self, strength).leave_one_out_residuals(train)
            errors[strength] = float((residuals.square().sum(dim=1) * weights).sum())
        return errors


class Ridge(GramFactor):
    """Ridge regression: a :class:`RidgeSystem` solved for one strength."""

    def __init__(self, system: RidgeSystem, strength: float) -> None:
        super().__init__(system, strength + system.floor)
        self.system = system

    @cached_property
    def weights(self) -> Tensor:
        """B, ``[d, k]``."""
        rows, k = self.system.rows, len(self.system.labels)
        # M = A^T T where T picks the means.
        picks = torch.eye(rows.shape[0], k, dtype=rows.dtype, device=rows.device) / math.sqrt(k)
        return self.regress(picks)

    def residuals(self, train: TrainingRows) -> Tensor:
        """Computes one-hot labels minus scores, ``[m, k]``."""
        return _plus_one_hot(-(train.x @ self.weights), train)

    def leave_one_out_residuals(self, train: TrainingRows) -> Tensor:
        r"""Computes the residual of every row as predicted without it, ``[m, k]``.

        Leaving row :math:`i` of weight :math:`w_i` out of ridge regression turns its residual
        :math:`e_i` into :math:`e_i / (1 - h_i)` with
        :math:`h_i = w_i x_i^\top (G + \lambda I)^{-1} x_i`.
        """
        x, weight = train.x, train.weight
        # No row explains itself better than it would alone; only rounded moments say otherwise.
        least = self.strength / (weight * x.square().sum(dim=1) + self.strength)
        stays = torch.maximum(1 - weight * self.leverage(x, train.products), least)
        return self.residuals(train) / stays[:, None]

    def leave_one_out_scores(self, train: TrainingRows) -> Tensor:
        """Computes the scores of every row as predicted without it, ``[m, k]``."""
        return _plus_one_hot(-self.leave_one_out_residuals(train), train)

    def weights_without(self, group: TrainingRows) -> Tensor:
        r"""Solves for the weights without a group of rows, ``[d, k]``.

        With :math:`X` the group, :math:`W` its weights and :math:`E` its residuals, the residuals
        of the group as predicted without itself are :math:`R = (I - H)^{-1} E`,
        :math:`H = X (G + \lambda I)^{-1} X^\top W`, and the weights become
        :math:`B - (G + \lambda I)^{-1} X^\top W R`. Classes go on to weigh what they weighed.
        """
        x, weight = group.x, group.weight
        root = weight.sqrt()[:, None]
        solved = self.solve(x, group.products)
        own, turn = torch.linalg.eigh(root * (x @ solved.t()) * root.t())
        # As for single rows: no group explains itself better than it would alone.
        least = self.strength / (float((weight * x.square().sum(dim=1)).sum()) + self.strength)
        stays = torch.clamp(1 - own, min=least)[:, None]
        missed: Tensor = turn @ (turn.t() @ (root * self.residuals(group)) / stays)
        return self.weights - solved.t() @ (root * missed)


def balanced_weights(labels: Tensor) -> Tensor:
    """Weighs rows so that each class present weighs the same and all sum to one, ``[m]``."""
    _, column, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    weights: Tensor = (counts * counts.numel()).double().reciprocal()[column]
    return weights


def _plus_one_hot(scores: Tensor, train: TrainingRows) -> Tensor:
    """Adds one to the entry of every row's label, in place."""
    scores[torch.arange(train.column.numel(), device=scores.device), train.column] += 1
    return scores
