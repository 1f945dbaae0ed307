"""How many of some nodes are within a few steps of each other, without listing them."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.stream.adjacency import Adjacency

#: Draws that a ball's size is estimated by: the error is one over the root of their number.
SKETCHES = 128


def ball_sizes(graph: Adjacency, nodes: Tensor, hops: int, generator: torch.Generator) -> Tensor:
    """Estimates how many of some nodes are within so many steps of each of them, ``[m]``.

    Every node draws exponential numbers. The smallest in a ball of s nodes is exponential of rate
    s, so that balls are never listed: a step takes the smallest of the neighbours (Cohen, 1997).
    """
    total = torch.zeros(nodes.numel(), dtype=torch.float64, device=nodes.device)
    for _ in range(SKETCHES):
        drawn = torch.rand(nodes.numel(), dtype=torch.float64, generator=generator)
        least = total.new_full((graph.num_nodes,), torch.inf)
        least[nodes] = -torch.log1p(-drawn).to(nodes.device)
        for _ in range(hops):
            least = least.scatter_reduce(0, graph.dst, least[graph.src], "amin")
        total += least[nodes]
    return ((SKETCHES - 1) / total).clamp_(min=1)
