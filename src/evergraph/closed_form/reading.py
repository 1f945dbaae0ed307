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
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.closed_form.calibration import least_loss
from evergraph.closed_form.features import RowSource
from evergraph.closed_form.ridge import RidgeFactor, class_shares
from evergraph.closed_form.smoothing import Smoothing
from evergraph.stream.tasks import LabelledNodes

#: Shares that leaving one out chooses from.
SHARES = (0.0, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Times that neighbours are averaged.
STEPS = 5
#: Most nodes seen before that shares are judged on, evenly spaced.
MOST_JUDGED = 20_000


def coefficients(share: float) -> list[float]:
    """Returns how much each power of the averaging matrix counts; they sum to one."""
    near = [(1 - share) * share**step for step in range(STEPS)]
    return [*near, share**STEPS]


def read(scores: Tensor, average: Smoothing, share: float) -> Tensor:
    """Mixes the scores of all nodes with those of their surroundings, ``[n, k]``."""
    return scores if share == 0 else _mixed(_powers(scores, average), share)


@dataclass(frozen=True)
class Known:
    """What is known of nodes before a task: ``num_nodes`` were there, of these classes."""

    num_nodes: int
    classes: Sequence[int]


def judge_shares(
    factor: RidgeFactor,
    source: RowSource,
    average: Smoothing,
    trained: LabelledNodes,
    known: Known,
    *,
    x: Tensor,
    shares: Sequence[float] = SHARES,
) -> dict[float, float]:
    """Returns what every share costs: a mean loss over classes, at the best temperature.

    Training nodes tell their class; each is left out. They are of the present classes alone, and
    a share may favour these by drowning all others. So nodes that were there before a class was
    first seen are asked as well, not for their class, which nobody knows any more, but for being of
    one of the classes known before; they count for as many classes as those are.

    Args:
        factor: The equations, decomposed; they hold the rows of the training nodes.
        source: The rows of all nodes.
        average: Averages over a node and its neighbours.
        trained: The current training nodes with their labels.
        known: Nodes and classes before this task.
        x: The rows of the training nodes, ``[m, d]``.
        shares: What to compare.
    """
    nodes, labels = trained.nodes, trained.labels
    system, weights = factor.system, factor.weights()
    missed = factor.left_out_residuals(weights, x, labels)
    own = system.row_weights(labels) * _self_products(factor, source, average, nodes, x)
    powers = _powers(source.times(weights), average)
    before = _nodes_before(known, nodes)
    column, alike = system.columns_of(labels), class_shares(labels)
    present = int(torch.unique(labels).numel())
    old = torch.tensor([label in set(known.classes) for label in system.labels], device=x.device)
    asked = 0 if bool(old.all()) or not before.numel() else int(old.sum())
    costs = {}
    for share in shares:
        everyone = _mixed(powers, share)
        scores = everyone[nodes] - _mixed(list(own), share)[:, None] * missed
        earlier = everyone[before]

        def loss(t: float, scores: Tensor = scores, earlier: Tensor = earlier) -> float:
            told = float((alike * cross_entropy(scores / t, column, reduction="none")).sum())
            if not asked:
                return told
            whole = torch.logsumexp(earlier / t, dim=1)
            intruded = float((whole - torch.logsumexp(earlier[:, old] / t, dim=1)).mean())
            return (present * told + asked * intruded) / (present + asked)

        costs[share], _ = least_loss(loss)
    return costs


def _nodes_before(known: Known, nodes: Tensor) -> Tensor:
    """Returns nodes that were there before and are not trained on now, ``[b]``."""
    step = max(1, -(-known.num_nodes // MOST_JUDGED))
    before = torch.arange(0, known.num_nodes, step, device=nodes.device)
    return before[~torch.isin(before, nodes)]


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
