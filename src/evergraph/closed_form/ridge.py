r"""Ridge regression from moments, its strength chosen by leaving one out in closed form.

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

import torch
from torch import Tensor

from evergraph.closed_form.moments import Moments


class RidgeSystem:
    r"""The equations :math:`(G + \lambda I) B = M` of some moments, for any strength.

    :math:`G = A^\top A` with a row of :math:`A` per mean and per row of a factor. Whichever of
    :math:`A^\top A` and :math:`A A^\top` is smaller is decomposed.
    """

    def __init__(self, moments: Moments) -> None:
        parts = [part.to(torch.float64) for part in moments.classes.values()]
        k = len(parts)
        self.labels = list(moments.classes)
        self.counts = torch.tensor([part.count for part in parts]).to(parts[0].mean)
        # What a rank limit dropped is spread evenly, which adds to every strength.
        self.floor = sum(part.rest / part.count for part in parts) / k
        means = torch.stack([part.mean for part in parts])
        self.right = means.t() / k  # [d, k], the matrix M
        scaled = [part.factor / math.sqrt(part.count) for part in parts]
        self.rows = torch.cat([means, *scaled]) / math.sqrt(k)  # A
        self.wide = self.rows.shape[0] < self.rows.shape[1]
        self.gram = self.rows @ self.rows.t() if self.wide else self.rows.t() @ self.rows
        self._products: tuple[Tensor, Tensor] | None = None

    def products(self, x: Tensor) -> Tensor:
        """Computes A x of every row, ``[a, m]``; once for the same rows at many strengths."""
        if self._products is None or self._products[0] is not x:
            self._products = x, self.rows @ x.t()
        return self._products[1]

    def columns_of(self, labels: Tensor) -> Tensor:
        """Returns the column of the weights that belongs to each label, ``[m]``."""
        return torch.searchsorted(torch.tensor(self.labels, device=labels.device), labels)

    def row_weights(self, labels: Tensor) -> Tensor:
        """Returns what a row of each label weighs among all rows, ``[m]``."""
        each: Tensor = (self.counts * len(self.labels)).reciprocal()
        return each[self.columns_of(labels)]

    def decompose(self, strength: float) -> RidgeFactor:
        """Prepares everything that depends on the strength."""
        matrix = self.gram.clone()
        matrix.diagonal().add_(strength + self.floor)
        return RidgeFactor(self, strength + self.floor, torch.linalg.cholesky(matrix))


@dataclass(frozen=True)
class RidgeFactor:
    """A :class:`RidgeSystem` decomposed for one strength."""

    system: RidgeSystem
    strength: float
    lower: Tensor

    def weights(self) -> Tensor:
        """Solves for the weights, ``[d, k]``."""
        right, rows = self.system.right, self.system.rows
        if not self.system.wide:
            weights: Tensor = torch.cholesky_solve(right, self.lower)
            return weights
        # M = A^T T where T picks the means, and (A^T A + λ)^-1 A^T = A^T (A A^T + λ)^-1.
        k = right.shape[1]
        picks = torch.eye(rows.shape[0], k, dtype=rows.dtype, device=rows.device) / math.sqrt(k)
        inner: Tensor = torch.cholesky_solve(picks, self.lower)
        return rows.t() @ inner

    def solve(self, x: Tensor) -> Tensor:
        """Computes (G + λ)^-1 x of every row, ``[m, d]``."""
        if not self.system.wide:
            direct: Tensor = torch.cholesky_solve(x.t(), self.lower).t()
            return direct
        inner = torch.cholesky_solve(self.system.products(x), self.lower)  # [a, m]
        return (x - inner.t() @ self.system.rows) / self.strength

    def leverage(self, x: Tensor) -> Tensor:
        """Computes x^T (G + λ)^-1 x of every row, ``[m]``."""
        if not self.system.wide:
            return _solved(self.lower, x.t()).square().sum(dim=0)
        inside = _solved(self.lower, self.system.products(x)).square().sum(dim=0)
        return (x.square().sum(dim=1) - inside) / self.strength

    def left_out_residuals(self, weights: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        r"""Computes what every row misses of its one-hot label as predicted without it, ``[m, k]``.

        Leaving row :math:`i` of weight :math:`w_i` out of ridge regression turns its residual
        :math:`e_i` into :math:`e_i / (1 - h_i)` with
        :math:`h_i = w_i x_i^\top (G + \lambda I)^{-1} x_i`. The rows must be among those that
        the moments hold.
        """
        column = self.system.columns_of(labels)
        weight = self.system.row_weights(labels)
        wrong = -(x @ weights)
        wrong[torch.arange(column.numel(), device=column.device), column] += 1
        # No row explains itself better than it would alone; only rounded moments say otherwise.
        least = self.strength / (weight * x.square().sum(dim=1) + self.strength)
        stays = torch.maximum(1 - weight * self.leverage(x), least)
        return wrong / stays[:, None]

    def left_out_error(self, weights: Tensor, x: Tensor, labels: Tensor) -> float:
        """Averages the squared error of every row as predicted without it, classes alike."""
        errors = self.left_out_residuals(weights, x, labels).square().sum(dim=1)
        return float((errors * class_shares(labels)).sum())

    def left_out_scores(self, weights: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        """Computes the scores of every row as predicted without it, ``[m, k]``."""
        column = self.system.columns_of(labels)
        scores = -self.left_out_residuals(weights, x, labels)
        scores[torch.arange(column.numel(), device=column.device), column] += 1
        return scores


def class_shares(labels: Tensor) -> Tensor:
    """Weighs rows so that each class present weighs the same and all sum to one, ``[m]``."""
    _, column, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    shares: Tensor = (counts * counts.numel()).double().reciprocal()[column]
    return shares


def left_out_errors(
    system: RidgeSystem, x: Tensor, labels: Tensor, strengths: Sequence[float]
) -> dict[float, float]:
    """Returns what every strength costs on rows that the system holds, each left out."""
    errors = {}
    for strength in strengths:
        factor = system.decompose(strength)
        errors[strength] = factor.left_out_error(factor.weights(), x, labels)
    return errors


def _solved(lower: Tensor, right: Tensor) -> Tensor:
    solution: Tensor = torch.linalg.solve_triangular(lower, right, upper=False)
    return solution
