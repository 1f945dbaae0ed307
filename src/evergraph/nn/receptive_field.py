"""Receptive fields: what the rows of some nodes depend on, layer by layer, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.stream.adjacency import Adjacency
from evergraph.stream.graph import Features, take_rows

#: One graph for all layers, or one for each, the layer that sees the features first.
Graphs = Adjacency | tuple[Adjacency, ...]
#: Above this share of all nodes the features are read in place instead of being copied.
WHOLE = 0.8


@dataclass(frozen=True)
class Field:
    """A network's input, cut to what some nodes hear; their rows come out as they would anyway."""

    features: Features  # what the first layer reads
    graphs: tuple[Adjacency, ...]  # a layer each: from the rows it reads to those it gives
    rows: Tensor | None  # where each wanted node is among the last layer's rows; None: in place


def receptive_field(features: Features, graph: Adjacency, wanted: Tensor, depth: int) -> Field:
    """Finds what ``depth`` layers need to give the rows of the wanted nodes exactly.

    Every layer keeps the order of nodes and edges, so that sums run as on the whole graph.
    """
    n = graph.num_nodes
    needed = torch.zeros(n, dtype=torch.bool, device=graph.device)
    needed[wanted] = True
    targets = torch.nonzero(needed).flatten()
    target_place = _places(targets, n)
    rows = None if torch.equal(targets, wanted) else target_place[wanted]
    graphs: list[Adjacency] = []
    for layer in range(depth):
        heard = needed[graph.dst]
        src, dst = graph.src[heard], graph.dst[heard]
        needed = needed.clone()
        needed[src] = True
        sources = torch.nonzero(needed).flatten()
        if layer == depth - 1 and sources.numel() > WHOLE * n:
            sources = torch.arange(n, device=graph.device)
        place = _places(sources, n)
        degree = graph.degree if graph.whole_degree is None else graph.whole_degree
        graphs.append(
            Adjacency.between(place[src], target_place[dst], place[targets], degree[sources])
        )
        targets, target_place = sources, place
    cut = features if targets.numel() == n else take_rows(features, targets)
    return Field(cut, tuple(reversed(graphs)), rows)


def _places(nodes: Tensor, num_nodes: int) -> Tensor:
    """Tells where each node is in a list, ``[n]``; −1 where it is not."""
    place = torch.full((num_nodes,), -1, device=nodes.device)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    return place


class Fields:
    """Remembers the receptive fields of node lists that come again.

    A list is known by being the same tensor. The first time it comes the answer is None, so
    that lists made anew at every step cost nothing.
    """

    MOST = 16

    def __init__(self, features: Features, depth: int) -> None:
        self.features, self.depth = features, depth
        self._known: list[tuple[Tensor, Adjacency, Field | None]] = []

    def of(self, nodes: Tensor, graph: Adjacency) -> Field | None:
        """Returns the field of some nodes, None if they come for the first time."""
        for at, (known, among, field) in enumerate(self._known):
            if known is nodes and among is graph:
                found = field or receptive_field(self.features, graph, nodes, self.depth)
                self._known[at] = (nodes, graph, found)
                return found
        self._known = [*self._known[1 - self.MOST :], (nodes, graph, None)]
        return None
