r"""Beliefs: a node is what its features and its neighbours' classes make likely.

Averaging what neighbours score asks that they be alike. Here they may be anything: from the beliefs
:math:`b` of all nodes follows how much oftener than by chance an edge joins class :math:`c` to
:math:`c'`, the affinity :math:`R_{cc'}`, and with :math:`u_i` the scores of node :math:`i`'s own
features

.. math:: b_i \leftarrow \mathrm{softmax}\Bigl(u_i + \sum_{j \sim i} \log (R\, b_j)\Bigr),

the step of mean-field inference in a block model. Nothing is learned from labels and nothing kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.closed_form.smoothing import Smoothing
from evergraph.kernels.ops import SparseMatrix
from evergraph.stream.adjacency import Adjacency

#: Times that beliefs are exchanged.
STEPS = 2
#: Weight of joining by chance in the affinity, so that no two classes exclude each other.
CHANCE = 0.02


def neighbours(graph: Adjacency) -> Smoothing:
    """Returns what sums over a node's neighbours."""
    ones = torch.ones(graph.src.shape, device=graph.device)
    return Smoothing(SparseMatrix(graph.pattern, ones), None)


def affinity(beliefs: Tensor, around: Smoothing) -> Tensor:
    """Estimates how much oftener than by chance edges join two classes, ``[..., k, k]``.

    Beliefs are squared first, for unsure nodes would make all classes look alike. Classes without
    any edge are joined to all others as by chance.

    Args:
        beliefs: Probability of every class for every node, ``[..., n, k]``.
        around: Sums over a node's neighbours.
    """
    sure = beliefs.square()
    sure = sure / sure.sum(dim=-1, keepdim=True)
    joined = sure.transpose(-1, -2) @ _summed(sure, around)
    ends = joined.sum(dim=-1, keepdim=True)
    chance = ends * ends.transpose(-1, -2) / ends.sum(dim=-2, keepdim=True).clamp(min=1e-12)
    oftener = torch.where(chance > 0, joined / chance.clamp(min=1e-12), 1)
    return (oftener + CHANCE) / (1 + CHANCE)


def exchange(own: Tensor, beliefs: Tensor, around: Smoothing) -> Tensor:
    """Lets all nodes hear their neighbours; returns logarithms of beliefs, ``[..., n, k]``.

    Args:
        own: Scores of nodes' own features, ready for the softmax, ``[..., n, k]``.
        beliefs: What nodes are believed to be at first, ``[..., n, k]``.
        around: Sums over a node's neighbours.
    """
    logits = beliefs.log()
    for _ in range(STEPS):
        heard = (beliefs @ affinity(beliefs, around)).log()
        logits = own + _summed(heard, around)
        beliefs = logits.softmax(dim=-1)
    return logits.log_softmax(dim=-1)


def _summed(rows: Tensor, around: Smoothing) -> Tensor:
    """Sums ``[..., n, k]`` over neighbours, all columns at once."""
    by_node = rows.movedim(-2, 0)  # [n, ..., k]
    total = around.times(by_node.reshape(by_node.shape[0], -1).float()).double()
    return total.reshape(by_node.shape).movedim(0, -2)
