"""Nodes that are not in the graph, seen as if they were: nothing that is kept changes.

Also what the graph alone, with such nodes, tells of those that have no features of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.graph import Array, GrowingGraph, Grown, Names, show, stack_rows
from evergraph.estimator.inputs import Change, make_change, unique_ids
from evergraph.estimator.state import State
from evergraph.estimator.step import bring_to_scale, check_nodes
from evergraph.stream import Adjacency, Features
from evergraph.stream.adjacency import edge_weight

#: Structural features; steps of PageRank, and how likely each is to go on.
NAMES = ("degree", "degree of neighbours", "pagerank", "return in two steps")
STEPS, ONWARD = 50, 0.85


@dataclass(frozen=True)
class ExtendedGraph(GrowingGraph):
    """A graph with further nodes behind its own, which it does not store.

    To grow it would take the room behind arrays that the next change needs. Here what is new lies
    beside them, and parts are put together when somebody asks for one.

    Attributes:
        base: The graph as it is stored.
        x: Features of the new nodes, ``[m, d]``.
        new: New undirected edges, each once, ``[2, e]``; where edges weigh, :attr:`arcs` tells of
            them behind all others.
    """

    base: GrowingGraph = field(default_factory=GrowingGraph.empty)
    x: Features = field(default_factory=lambda: torch.empty(0, 0))
    new: Tensor = field(default_factory=lambda: torch.empty(2, 0, dtype=torch.int64))

    @property
    def num_nodes(self) -> int:
        """Counts all nodes, the new ones last."""
        return len(self.names) + self.x.shape[0]

    @cached_property
    def features(self) -> Features:
        """All features, ``[n + m, d]``."""
        return stack_rows(self.base.features, self.x)

    @property
    def pairs(self) -> Tensor:
        """All undirected edges, the new ones last, ``[2, E + e]``."""
        return torch.cat([self.base.pairs, self.new], dim=1)

    @cached_property
    def strength(self) -> Tensor:
        """What each node's edges weigh, ``[n + m]``."""
        assert self.arcs is not None
        weight = edge_weight(self.arcs.tensor[self.num_edges :]).double().repeat(2)
        added = torch.bincount(self.new.flatten(), weight, minlength=self.num_nodes).double()
        added[: len(self.names)] += self.base.strength
        return added

    def degree_of(self, rows: Tensor) -> Tensor:
        """Counts the neighbours of some nodes, ``[m]``."""
        found, old = self._added[rows], rows < len(self.names)
        found[old] += self.base.degree_of(rows[old])
        return found

    @cached_property
    def _added(self) -> Tensor:
        return torch.bincount(self.new.flatten(), minlength=self.num_nodes)

    def has_edges(self, pairs: Tensor) -> Tensor:
        """Tells for each pair of rows ``[2, m]`` whether it is an edge."""
        keys = (some.sort(dim=0).values for some in (pairs, self.new))
        found = torch.isin(*(low * self.num_nodes + high for low, high in keys))
        old = (pairs < len(self.names)).all(dim=0)
        found[old] |= self.base.has_edges(pairs[:, old])
        return found

    def take(self, rows: Tensor) -> Features:
        """Copies the features of some nodes, in their order."""
        n, old = len(self.names), rows < len(self.names)
        both = stack_rows(self.base.take(rows[old]), self.x[rows[~old] - n])
        return both[torch.argsort(torch.argsort(~old, stable=True))]  # back in their order

    def _reach(self, nodes: Tensor, depth: int) -> tuple[Array, Array, Array, Array, Array]:
        """Lists nodes and all within ``depth`` steps, as for a stored graph, ring by ring."""
        n, found, within = len(self.names), nodes.numpy(), [nodes.numel()]
        place = np.zeros(self.num_nodes, dtype=np.int64)  # from 1 on
        place[found] = np.arange(1, found.size + 1)
        begin, ends = 0, 2 * self.num_edges + np.arange(self.new.numel())
        beside = self.new.T.flatten().numpy()  # where new edges end, as chains number ends
        parts: list[tuple[Array, Array, Array]] = []
        for _ in range(depth):
            ring = found[begin:]
            old = np.flatnonzero(ring < n)
            near, _, counts, at, via = self.base._reach(torch.from_numpy(ring[old]), 1)
            here = place[beside] > begin
            target = np.concatenate([np.repeat(old, counts), place[beside[here]] - 1 - begin])
            order = np.argsort(target, kind="stable")
            source = np.concatenate([near[at], beside.reshape(-1, 2)[:, ::-1].flatten()[here]])
            via = np.concatenate([via, ends[here]])
            parts.append((np.bincount(target, minlength=ring.size), source[order], via[order]))
            new = np.unique(source[place[source] == 0])
            place[new] = np.arange(found.size + 1, found.size + new.size + 1)
            begin, found = found.size, np.concatenate([found, new])
            within.append(found.size)
        joined = (np.concatenate(part) for part in zip(*parts, strict=True))
        counts, sources, via = joined if parts else (found[:0], found[:0], found[:0])
        return found, np.array(within), counts, place[sources] - 1, via


def extend(state: State, change: Change) -> tuple[State, Tensor]:
    """Returns a state that sees further nodes, and their rows; the given one is left as it was.

    It is for prediction alone. Ids must be new, and edges name these or known nodes; what else a
    change may bring has no part in it.
    """
    check_nodes(state.graph, change)
    change = bring_to_scale(state, change)[1]
    graph, n, m = state.graph, state.graph.num_nodes, len(change.ids)
    new = Names(Grown.empty(np.int64)).append(change.ids)
    sides = []
    for side in change.edges:
        here = new.where(side)
        rows = np.where(here >= 0, here + n, graph.names.where(side))
        if (rows < 0).any():
            at = int(np.argmax(rows < 0))
            raise InputError(
                f"Expected 'edges' to name nodes of the graph or of 'ids' (got {show(side[at])} in "
                f"row {at + 1}); give its features too, or correct the name."
            )
        sides.append(torch.from_numpy(rows))
    graph, pairs, arcs = graph.weighed(torch.stack(sides), change.weights, n + m)
    parts: dict[str, Any] = {part.name: getattr(graph, part.name) for part in fields(GrowingGraph)}
    if graph.arcs is not None and arcs is not None:
        parts["arcs"] = Grown.of(np.concatenate([graph.arcs.array, arcs]))
    x = torch.empty(0, graph.width) if change.x is None else change.x
    extended = ExtendedGraph(**parts, base=graph, x=x, new=torch.from_numpy(pairs.copy()))
    return replace(state, graph=extended, beside=state), torch.arange(n, n + m)


def with_structural(state: State, parts: dict[str, Any]) -> dict[str, Any]:
    """Computes the features of a change for which ``structural`` ones are asked.

    They are of the graph with the edges that come along, and stay as they are until they are
    updated: a node that arrives does not change what is known of others.
    """
    found: dict[str, Any] = {}
    for ids, x in (("ids", "x"), ("updated", "updated_x")):
        if not isinstance(parts.get(x), str):
            continue
        if parts[x] != "structural":
            raise InputError(f"Expected 'x' as numbers or 'structural' (got {parts[x]!r}).")
        names, graph = unique_ids(parts[ids]), state.graph
        if ids == "ids":
            nothing = np.zeros((len(names), max(graph.width, 1)))
            change = make_change("learn", columns=None, ids=names, x=nothing, edges=parts["edges"])
            with_them, rows = extend(state, change)
            graph = with_them.graph
        else:
            rows = graph.find(names, "ids")
        found[x] = structural_features(graph.adjacency)[rows.numpy()]
    return parts | found | {"columns": state.columns or NAMES}


def structural_features(graph: Adjacency) -> Array:
    """Returns :data:`NAMES` of every node, the first three as logarithms, ``[n, 4]``."""
    ones = np.ones(graph.num_edges)
    joined = csr_array((ones, graph.src.numpy(), graph.indptr.numpy()), shape=[graph.num_nodes] * 2)
    degree = graph.degree.double().numpy()
    share, rank = 1 / np.maximum(degree, 1), np.ones(graph.num_nodes)
    for _ in range(STEPS):
        lost = rank[degree == 0].sum() / max(len(rank), 1)  # goes on anywhere
        rank = 1 - ONWARD + ONWARD * (joined @ (rank * share) + lost)
    others = share * (joined @ degree)
    return np.stack([np.log1p(degree), np.log1p(others), np.log(rank), share * (joined @ share)], 1)
