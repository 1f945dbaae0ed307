"""Importance sampling (ContinualGNN): a reservoir that favours mixed neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.memory.buffer import SelectionPool


@dataclass(frozen=True)
class Importance:
    r"""Keeps a reservoir that nodes with neighbours of other classes enter more easily.

    A class's nodes arrive by ascending id and are stored until its budget :math:`m_c` is
    spent. From then on the :math:`n_c`-th replaces a random stored one with probability
    :math:`\min(1, (m_c / n_c)(1 + \alpha \, imp(v)))`. When a class comes again, the nodes
    in the pool count, not those forgotten in between.

    A smaller budget is another reservoir, not a prefix. Where the buffer cuts a class down
    later it keeps the first places; replacements fall on all places alike.

    Args:
        alpha: α, how much importance adds; 1 in the paper.
    """

    alpha: float = 1.0

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Returns what the reservoir holds in the end, place by place."""
        nodes = pool.nodes[pool.rows_of(label)]
        budget = min(budget, nodes.numel())
        arrival = torch.arange(budget, nodes.numel())
        if budget == 0 or arrival.numel() == 0:
            return nodes[:budget]
        boost = 1 + self.alpha * importance(pool, nodes[budget:]).cpu()
        enters = torch.rand(arrival.shape, dtype=torch.float64, generator=pool.generator) < (
            budget / (arrival + 1) * boost
        )
        place = torch.randint(budget, arrival.shape, generator=pool.generator)
        # Whoever comes to a place last stays: the largest arrival.
        held = torch.arange(budget).scatter_reduce(0, place[enters], arrival[enters], "amax")
        return nodes[held.to(nodes.device)]


def importance(pool: SelectionPool, nodes: Tensor) -> Tensor:
    r"""Computes :math:`\sigma(10 s - 5)` of each node, float64 ``[m]``.

    :math:`s` is the number of neighbours with another label over one more than the number
    with any label. Labels are those of the pool and of the buffer; no other may be read.
    """
    known = torch.full_like(pool.adjacency.degree, -1)
    if pool.kept is not None:
        known[pool.kept.nodes] = pool.kept.labels
    known[pool.nodes] = pool.labels
    owner, neighbor = pool.adjacency.edges_into(nodes)
    labelled = known[neighbor] >= 0
    differs = labelled & (known[neighbor] != known[nodes][owner])
    total = torch.bincount(owner[labelled], minlength=nodes.numel())
    other = torch.bincount(owner[differs], minlength=nodes.numel())
    return torch.sigmoid(10 * other.double() / (total + 1) - 5)
