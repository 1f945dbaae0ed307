"""Neighbour sampling: the part of a graph that a few nodes need, drawn without Python loops."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.stream.adjacency import Adjacency


@dataclass(frozen=True)
class Block:
    """A small graph around some nodes: they hear whom they heard, or a sample of them."""

    nodes: Tensor  # [m] nodes of the whole graph, the wanted ones first, each once
    adjacency: Adjacency  # among them, directed
    rows: Tensor  # where each wanted node is, in the order asked for


def sample_block(
    graph: Adjacency, wanted: Tensor, fanout: int, depth: int, generator: torch.Generator
) -> Block:
    """Draws at most ``fanout`` neighbours of every node, ``depth`` steps out.

    With a fanout of at least the highest degree, a network of ``depth`` layers gives the
    wanted nodes exactly what it gives them on the whole graph.
    """
    nodes, rows = torch.unique(wanted, return_inverse=True)
    place = torch.full((graph.num_nodes,), -1, device=graph.device)
    place[nodes] = torch.arange(nodes.numel(), device=graph.device)
    first, sources, targets = 0, [], []
    for _ in range(depth):
        frontier = nodes[first:]
        owner, neighbour = sample_neighbours(graph, frontier, fanout, generator)
        targets.append(owner + first)
        first = nodes.numel()
        fresh = torch.unique(neighbour[place[neighbour] < 0])
        place[fresh] = torch.arange(first, first + fresh.numel(), device=graph.device)
        nodes = torch.cat([nodes, fresh])
        sources.append(place[neighbour])
    edges = torch.stack([torch.cat(sources), torch.cat(targets)])
    part = Adjacency.from_edges(edges, nodes.numel(), symmetric=False)
    return Block(nodes, replace(part, whole_degree=graph.degree[nodes]), rows)


def sample_neighbours(
    graph: Adjacency, nodes: Tensor, fanout: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draws at most ``fanout`` distinct neighbours of each node, uniformly.

    Returns ``(owner, neighbour)`` as :meth:`Adjacency.edges_into` does.
    """
    degree = graph.degree[nodes]
    rich = torch.nonzero(degree > fanout).flatten()
    owner, neighbour = graph.edges_into(nodes[degree <= fanout])
    owner = torch.nonzero(degree <= fanout).flatten()[owner]
    if rich.numel() == 0:
        return owner, neighbour
    chosen = _distinct(degree[rich], fanout, generator)  # [rich, fanout]
    drawn = graph.src[graph.indptr[nodes[rich]][:, None] + chosen]
    both = torch.cat([owner, rich.repeat_interleave(fanout)])
    order = torch.argsort(both, stable=True)
    return both[order], torch.cat([neighbour, drawn.flatten()])[order]


def _distinct(sizes: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draws ``count`` distinct numbers below each size, uniformly (Floyd's algorithm)."""
    chosen = torch.full((sizes.numel(), count), -1, device=sizes.device)
    for k in range(count):
        limit = sizes - count + k  # the k-th draw is among 0 .. limit
        share = torch.rand(
            sizes.numel(), dtype=torch.float64, generator=generator, device=sizes.device
        )
        draw = torch.minimum((share * (limit + 1)).long(), limit)
        taken = (chosen[:, :k] == draw[:, None]).any(dim=1)
        chosen[:, k] = torch.where(taken, limit, draw)
    return chosen
