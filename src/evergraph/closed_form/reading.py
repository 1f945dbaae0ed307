r"""Reading a node through its neighbours: scores are averaged over the graph.

The scores :math:`s` of all nodes become :math:`\tilde s = (1 - a)\,s + a\,P \tilde s`, where
:math:`P` averages over a node and its neighbours and the share :math:`a` is what comes from there;
a few steps from :math:`\tilde s = s` are taken. Nothing is learned or kept for it. As averaging and
regression are linear, these are the same weights read on the row
:math:`\tilde x_i = \sum_j c_j (P^j x)_i`, so that leaving node :math:`i` out is exact as well:
with :math:`r_i` its residual as predicted without it,

.. math:: \tilde x_i^\top B^{(-i)} = \tilde x_i^\top B
    - w_i\,\tilde x_i^\top (G + \lambda I)^{-1} x_i\; r_i .
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.closed_form.features import RowSource
from evergraph.closed_form.questions import Questions
from evergraph.closed_form.ridge import RidgeFactor
from evergraph.closed_form.smoothing import Smoothing
from evergraph.stream.tasks import LabelledNodes

#: Shares that leaving one out chooses from.
SHARES = (0.0, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Times that neighbours are averaged.
STEPS = 5


def coefficients(share: float) -> list[float]:
    """Returns how much each power of the averaging matrix counts; they sum to one."""
    near = [(1 - share) * share**step for step in range(STEPS)]
    return [*near, share**STEPS]


def read(scores: Tensor, average: Smoothing, share: float) -> Tensor:
    """Mixes the scores of all nodes with those of their surroundings, ``[n, k]``."""
    return scores if share == 0 else _mixed(_powers(scores, average), share)


def judge_shares(
    factor: RidgeFactor,
    source: RowSource,
    average: Smoothing,
    trained: LabelledNodes,
    questions: Questions,
    *,
    x: Tensor,
    shares: Sequence[float] = SHARES,
) -> dict[float, float]:
    """Returns what every share costs by :class:`~evergraph.closed_form.questions.Questions`.

    Args:
        factor: The equations, decomposed; they hold the rows of the training nodes.
        source: The rows of all nodes.
        average: Averages over a node and its neighbours.
        trained: The current training nodes with their labels; each is left out.
        questions: What the training nodes and others are asked.
        x: The rows of the training nodes, ``[m, d]``.
        shares: What to compare.
    """
    nodes, labels, weights = trained.nodes, trained.labels, factor.weights()
    missed = factor.left_out_residuals(weights, x, labels)
    own = factor.system.row_weights(labels) * _self_products(factor, source, average, nodes, x)
    powers = _powers(source.times(weights), average)
    costs = {}
    for share in shares:
        everyone = _mixed(powers, share)
        scores = everyone[nodes] - _mixed(list(own), share)[:, None] * missed
        costs[share] = questions.cost(scores, everyone)
    return costs


def _self_products(
    factor: RidgeFactor, source: RowSource, average: Smoothing, nodes: Tensor, x: Tensor
) -> Tensor:
    """Computes (P^j x)_i^T (G + λ)^-1 x_i of every node and power j, ``[STEPS + 1, m]``."""
    solved = factor.solve(x)  # [m, d]
    products = x.new_zeros(STEPS + 1, nodes.numel())
    for place, columns in source.blocks():
        block = columns
        for step in range(STEPS + 1):
            block = average.times(block.float()) if step else block
            products[step] += (block[nodes] * solved[:, place]).sum(dim=1)
    return products


def _powers(scores: Tensor, average: Smoothing) -> list[Tensor]:
    """Averages scores over neighbours again and again: P^0 s to P^STEPS s."""
    powers = [scores]
    for _ in range(STEPS):
        powers.append(average.times(powers[-1].float()).double())
    return powers


def _mixed(powers: Sequence[Tensor], share: float) -> Tensor:
    terms = zip(coefficients(share), powers, strict=True)
    return torch.stack([part * power for part, power in terms]).sum(dim=0)
