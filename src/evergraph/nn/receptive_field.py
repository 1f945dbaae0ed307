"""Receptive fields: the part of a graph that some nodes' rows depend on, or a sample of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from evergraph.stream.adjacency import Adjacency, OnDevice, runs
from evergraph.stream.features import Features

#: One graph for all layers, or one for each, the layer that sees the features first.
Graphs = Adjacency | tuple[Adjacency, ...]
#: Above this share of all nodes the features are read in place instead of being copied.
WHOLE = 0.8
#: The most neighbours that nodes at the edge of a part keep where exact rows are not needed.
FEW = 5


@dataclass(frozen=True)
class ReceptiveField(OnDevice):
    """A network's input: all of a graph, or what some nodes hear of it."""

    features: Features  # what the first layer reads
    graphs: Graphs  # a layer each: from the rows it reads to those it gives
    rows: Tensor | None  # where each wanted node is among the last layer's rows; None: in place


def receptive_field(
    features: Features, graph: Adjacency, wanted: Tensor, depth: int
) -> ReceptiveField:
    """Finds what ``depth`` layers need to give the rows of the wanted nodes exactly.

    Every layer keeps the order of nodes and edges, so that sums run as on the whole graph.
    """
    n = graph.num_nodes
    needed = torch.zeros(n, dtype=torch.bool, device=graph.device)
    needed[wanted] = True
    targets = torch.nonzero(needed).flatten()
    rows = None if torch.equal(targets, wanted) else _places(targets, n)[wanted]
    graphs: list[Adjacency] = []
    for layer in range(depth):
        owner, rank = runs(graph.degree[targets])
        heard = graph.indptr[targets][owner] + rank
        src = graph.src[heard]
        needed = needed.clone()
        needed[src] = True
        sources = torch.nonzero(needed).flatten()
        if layer == depth - 1 and sources.numel() > WHOLE * n:
            sources = torch.arange(n, device=graph.device)
        place = _places(sources, n)
        degree = graph.degree if graph.whole_degree is None else graph.whole_degree
        arcs = graph.arcs and graph.arcs.take(heard, graph.strength[sources])
        graphs.append(Adjacency.between(place[src], owner, place[targets], degree[sources], arcs))
        targets = sources
    cut = features if targets.numel() == n else features[targets]
    return ReceptiveField(cut, tuple(reversed(graphs)), rows)


def surroundings(
    features: Features, graph: Adjacency, wanted: Tensor, depth: int
) -> ReceptiveField:
    """Cuts out the wanted nodes and what is within ``depth`` steps of a symmetric graph.

    It is one graph, with all edges among those that are nearer. Of the edges of each that lead
    farther it has :data:`FEW` at most, evenly spaced, from both ends.
    """
    needed = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    needed[wanted] = True
    for _ in range(depth):
        inner, nodes = needed, torch.nonzero(needed).flatten()
        owner, rank = runs(counts := graph.degree[nodes])
        src, dst = graph.src[graph.indptr[nodes][owner] + rank], nodes[owner]
        needed = inner.clone()
        needed[src] = True
    back = ~inner[src] & evenly(rank, counts[owner], FEW)
    stay = inner[src] | back
    needed = inner.clone()
    needed[src[back]] = True
    nodes = torch.nonzero(needed).flatten()
    place = _places(nodes, graph.num_nodes)
    ends = torch.cat([src[stay], dst[back]]), torch.cat([dst[stay], src[back]])
    degree = graph.degree if graph.whole_degree is None else graph.whole_degree
    part = Adjacency.from_edges(place[torch.stack(ends)], nodes.numel())
    part = replace(part, whole_degree=degree[nodes]).weighed_as(graph, nodes)
    return ReceptiveField(features[nodes], part, place[wanted])


def evenly(rank: Any, count: Any, most: int) -> Any:
    """Tells of the ``rank``-th of so many whether it is among the most that are evenly spaced."""
    return (rank + 1) * most // count > rank * most // count  # all where there are no more


def _places(nodes: Tensor, num_nodes: int) -> Tensor:
    """Tells where each node is in a list, ``[n]``; −1 where it is not."""
    place = torch.full((num_nodes,), -1, device=nodes.device)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    return place


class StepFields:
    """Receptive fields of the node lists that every step asks for again, in the same order.

    The n-th list of a step is compared with the n-th of the step before: the first time it is only
    noted, the second time its field is found, and a list that is drawn anew at every step costs no
    more than the comparison. Of a part of a graph, where most nodes are at the rim, it is found at
    once.
    """

    def __init__(self, features: Features, graph: Adjacency, depth: int) -> None:
        self.features, self.graph, self.depth = features, graph, depth
        self._known: list[tuple[Tensor, ReceptiveField | None]] = []
        self._at = 0

    def rewind(self) -> None:
        """Begins a step."""
        self._at = 0

    def next(self, nodes: Tensor) -> ReceptiveField | None:
        """Returns the field of the step's next list, None while it may still change."""
        at, self._at = self._at, self._at + 1
        if at == len(self._known):
            cut = None
            if self.graph.whole_degree is not None:
                cut = receptive_field(self.features, self.graph, nodes, self.depth)
            self._known.append((nodes, cut))
            return cut
        before, field = self._known[at]
        # A recorded step cannot compare; it is recorded after steps in which all was the same.
        recording = nodes.is_cuda and torch.cuda.is_current_stream_capturing()
        if not recording:
            if not torch.equal(before, nodes):
                self._known[at] = (nodes, None)
                return None
            if field is None:
                field = receptive_field(self.features, self.graph, nodes, self.depth)
                self._known[at] = (nodes, field)
        return field


def sample_field(
    features: Features,
    graph: Adjacency,
    wanted: Tensor,
    depth: int,
    *,
    fanout: int,
    generator: torch.Generator,
) -> ReceptiveField:
    """Draws at most ``fanout`` neighbours of every node, ``depth`` steps out.

    With a fanout of at least the highest degree, a network of ``depth`` layers gives the
    wanted nodes exactly what it gives them on the whole graph. All layers read one directed graph
    whose first nodes are the wanted ones, each once.
    """
    nodes, rows = torch.unique(wanted, return_inverse=True)
    place = _places(nodes, graph.num_nodes)
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
    part = replace(part, whole_degree=graph.degree[nodes]).weighed_as(graph, nodes)
    return ReceptiveField(features[nodes], part, rows)


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
