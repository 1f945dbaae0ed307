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

from evergraph.closed_form.gram import Gram, GramFactor
from evergraph.closed_form.moments import Moments


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

    def row_weights(self, labels: Tensor) -> Tensor:
        """Returns what a row of each label weighs among all rows, ``[m]``."""
        each: Tensor = (self.counts * len(self.labels)).reciprocal()
        return each[self.columns_of(labels)]

    def decompose(self, strength: float) -> RidgeFactor:
        """Prepares everything that depends on the strength."""
        whole = strength + self.floor
        return RidgeFactor(self, whole, self.lower(whole))


@dataclass(frozen=True)
class RidgeFactor(GramFactor):
    """A :class:`RidgeSystem` decomposed for one strength."""

    system: RidgeSystem

    def weights(self) -> Tensor:
        """Solves for the weights, ``[d, k]``."""
        rows, k = self.system.rows, len(self.system.labels)
        # M = A^T T where T picks the means.
        picks = torch.eye(rows.shape[0], k, dtype=rows.dtype, device=rows.device) / math.sqrt(k)
        return self.regress(picks)

    def _wrong(self, weights: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        """Computes what every row misses of its one-hot label, ``[m, k]``."""
        column = self.system.columns_of(labels)
        wrong = -(x @ weights)
        wrong[torch.arange(column.numel(), device=column.device), column] += 1
        return wrong

    def left_out_residuals(self, weights: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        r"""Computes what every row misses of its one-hot label as predicted without it, ``[m, k]``.

        Leaving row :math:`i` of weight :math:`w_i` out of ridge regression turns its residual
        :math:`e_i` into :math:`e_i / (1 - h_i)` with
        :math:`h_i = w_i x_i^\top (G + \lambda I)^{-1} x_i`. The rows must be among those that
        the moments hold.
        """
        weight = self.system.row_weights(labels)
        # No row explains itself better than it would alone; only rounded moments say otherwise.
        least = self.strength / (weight * x.square().sum(dim=1) + self.strength)
        stays = torch.maximum(1 - weight * self.leverage(x), least)
        return self._wrong(weights, x, labels) / stays[:, None]

    def weights_without(self, weights: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        r"""Solves for the weights without a group of rows, ``[d, k]``.

        With :math:`X` the group, :math:`W` its weights and :math:`E` what it misses, the group as
        predicted without itself misses :math:`R = (I - H)^{-1} E`,
        :math:`H = X (G + \lambda I)^{-1} X^\top W`, and the weights become
        :math:`B - (G + \lambda I)^{-1} X^\top W R`. The rows must be among those that the moments
        hold; classes go on to weigh what they weighed.
        """
        weight = self.system.row_weights(labels)
        root = weight.sqrt()[:, None]
        solved = self.solve(x)
        own, turn = torch.linalg.eigh(root * (x @ solved.t()) * root.t())
        # As for single rows: no group explains itself better than it would alone.
        least = self.strength / (float((weight * x.square().sum(dim=1)).sum()) + self.strength)
        stays = torch.clamp(1 - own, min=least)[:, None]
        missed: Tensor = turn @ (turn.t() @ (root * self._wrong(weights, x, labels)) / stays)
        return weights - solved.t() @ (root * missed)

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
