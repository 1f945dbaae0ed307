"""Nodes that are not in the graph, seen as if they were: nothing that is kept changes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.graph import (
    Array,
    GrowingGraph,
    Grown,
    Names,
    join_both_ways,
    show,
    sparse,
)
from evergraph.estimator.inputs import Change
from evergraph.estimator.state import State
from evergraph.estimator.step import bring_to_scale, check_nodes
from evergraph.stream import Adjacency, Features, SparseRows
from evergraph.stream.adjacency import Arcs, edge_weight


@dataclass(frozen=True)
class ExtendedGraph(GrowingGraph):
    """A graph with further nodes behind its own, which it does not store.

    To grow it would take the room behind arrays that the next change needs. Here what is new lies
    beside them, and parts are put together when somebody asks for one.

    Attributes:
        base: The graph as it is stored.
        x: Features of the new nodes, ``[m, d]``.
        pairs: New undirected edges, each once, ``[2, e]``; where edges weigh, :attr:`arcs` tells of
            them behind all others.
    """

    base: GrowingGraph = field(default_factory=GrowingGraph.empty)
    x: Features = field(default_factory=lambda: torch.empty(0, 0))
    pairs: Tensor = field(default_factory=lambda: torch.empty(2, 0, dtype=torch.int64))

    @property
    def num_nodes(self) -> int:
        """Counts all nodes, the new ones last."""
        return len(self.names) + self.x.shape[0]

    @cached_property
    def features(self) -> Features:
        """All features, ``[n + m, d]``."""
        return join_rows(self.base.features, self.x)

    @cached_property
    def adjacency(self) -> Adjacency:
        """The whole graph in the order that kernels read."""
        pairs = torch.cat([self.edges.tensor.T.long(), self.pairs], dim=1)
        arcs = None if self.arcs is None else Arcs(self.arcs.tensor, self.directed)
        return join_both_ways(pairs, self.num_nodes, arcs)

    @cached_property
    def strength(self) -> Tensor:
        """What each node's edges weigh, ``[n + m]``."""
        assert self.arcs is not None
        weight = edge_weight(self.arcs.tensor[self.num_edges :]).double().repeat(2)
        added = torch.bincount(self.pairs.flatten(), weight, minlength=self.num_nodes).double()
        added[: len(self.names)] += self.base.strength
        return added

    def degree_of(self, rows: Tensor) -> Tensor:
        """Counts the neighbours of some nodes, ``[m]``."""
        found, old = self._added[rows], rows < len(self.names)
        found[old] += self.base.degree_of(rows[old])
        return found

    @cached_property
    def _added(self) -> Tensor:
        return torch.bincount(self.pairs.flatten(), minlength=self.num_nodes)

    def has_edges(self, pairs: Tensor) -> Tensor:
        """Tells for each pair of rows ``[2, m]`` whether it is an edge."""
        keys = (some.sort(dim=0).values for some in (pairs, self.pairs))
        found = torch.isin(*(low * self.num_nodes + high for low, high in keys))
        old = (pairs < len(self.names)).all(dim=0)
        found[old] |= self.base.has_edges(pairs[:, old])
        return found

    def take(self, rows: Tensor) -> Features:
        """Copies the features of some nodes, in their order."""
        n, new = len(self.names), rows >= len(self.names)
        beside, known = self.x[rows[new] - n], self.base.take(rows.clamp(max=n - 1))
        if isinstance(beside, Tensor) and isinstance(known, Tensor):
            known[new] = beside
            return known
        places = torch.arange(len(rows))
        places[new] = len(rows) + torch.arange(beside.shape[0])
        return join_rows(known, beside)[places]

    def _reach(self, nodes: Tensor, depth: int) -> tuple[Array, Array, Array, Array, Array]:
        """Lists nodes and all within ``depth`` steps, as for a stored graph, ring by ring."""
        n, found, within = len(self.names), nodes.numpy(), [nodes.numel()]
        place = np.zeros(self.num_nodes, dtype=np.int64)  # from 1 on
        place[found] = np.arange(1, found.size + 1)
        begin, ends = 0, 2 * self.num_edges + np.arange(self.pairs.numel())
        beside = self.pairs.T.flatten().numpy()  # where new edges end, as chains number ends
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
        found, here = graph.names.where(side), new.where(side)
        rows = np.where(here >= 0, here + n, found)
        if (rows < 0).any():
            at = int(np.argmax(rows < 0))
            raise InputError(
                f"Expected 'edges' to name nodes of the graph or of 'ids' (got {show(side[at])} in "
                f"row {at + 1}); give its features too, or correct the name."
            )
        sides.append(torch.from_numpy(rows))
    pairs, arcs = graph.arcs_of(torch.stack(sides), change.weights, n + m)
    known = np.full(pairs.shape[1], -1)
    old = pairs[1] < n
    known[old] = graph.find_edges(*pairs[:, old])
    graph = graph.with_arcs(known, arcs, anew=change.weights is not None)
    here = known < 0
    parts: dict[str, Any] = {part.name: getattr(graph, part.name) for part in fields(GrowingGraph)}
    if graph.arcs is not None and arcs is not None:
        parts["arcs"] = Grown.of(np.concatenate([graph.arcs.array, arcs[here]]))
    x = torch.empty(0, graph.width) if change.x is None else change.x
    extended = ExtendedGraph(**parts, base=graph, x=x, pairs=torch.from_numpy(pairs[:, here]))
    return replace(state, graph=extended, beside=state), torch.arange(n, n + m)


def join_rows(above: Features, below: Features) -> Features:
    """Puts rows below others, in the form of those above."""
    if isinstance(above, Tensor):
        return torch.cat([above, below if isinstance(below, Tensor) else below.dense()])
    under = below if isinstance(below, SparseRows) else sparse(below)
    indptr = torch.cat([above.indptr, under.indptr[1:] + above.indptr[-1]])
    values, indices = (
        torch.cat([getattr(above, name), getattr(under, name)]) for name in ("values", "indices")
    )
    return SparseRows(values, indices, indptr, above.num_columns)
