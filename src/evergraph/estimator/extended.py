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
    GrowingGraph,
    Grown,
    Names,
    Neighbourhood,
    join_both_ways,
    show,
    sparse,
)
from evergraph.estimator.inputs import Change
from evergraph.estimator.state import State
from evergraph.estimator.step import bring_to_scale, check_nodes
from evergraph.nn.receptive_field import ReceptiveField, receptive_field
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
        pairs: New undirected edges, each once, ``[2, e]``.
        more: What they weigh there and back, ``[e, 2]``, where the graph knows that of its own.
    """

    base: GrowingGraph = field(default_factory=GrowingGraph.empty)
    x: Features = field(default_factory=lambda: torch.empty(0, 0))
    pairs: Tensor = field(default_factory=lambda: torch.empty(2, 0, dtype=torch.int64))
    more: Tensor | None = None

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
        arcs = None
        if self.arcs is not None and self.more is not None:
            arcs = Arcs(torch.cat([self.arcs.tensor, self.more]), self.directed)
        return join_both_ways(pairs, self.num_nodes, arcs)

    def has_edges(self, pairs: Tensor) -> Tensor:
        """Tells for each pair of rows ``[2, m]`` whether it is an edge."""
        found = self._among(pairs, self.pairs)
        old = (pairs < len(self.names)).all(dim=0)
        found[old] |= self.base.has_edges(pairs[:, old])
        return found

    def take(self, rows: Tensor) -> Features:
        """Copies the features of some nodes, in their order."""
        n = len(self.names)
        if not bool((rows >= n).any()):
            return self.base.take(rows)
        new = rows >= n
        order = torch.cat([torch.nonzero(~new).flatten(), torch.nonzero(new).flatten()])
        joined = join_rows(self.base.take(rows[~new]), self.x[rows[new] - n])
        return joined[torch.argsort(order)]

    def neighbourhood(
        self, nodes: Tensor, depth: int, beside: Tensor | None = None, *, links: bool = False
    ) -> Neighbourhood:
        """Cuts out nodes and all within ``depth`` steps; nobody learns from an extended graph."""
        assert beside is None
        assert not links
        rows, part = self._part(nodes, depth)
        return Neighbourhood(rows, self.take(rows), part)

    def field(self, nodes: Tensor, depth: int) -> ReceptiveField:
        """Finds what ``depth`` layers need; in place of features there are nodes."""
        rows, part = self._part(nodes, depth)
        return receptive_field(rows, part, torch.searchsorted(rows, nodes), depth)

    def _part(self, nodes: Tensor, depth: int) -> tuple[Tensor, Adjacency]:
        """Finds rows within ``depth`` steps, ascending, and the edges into all but the rim."""
        inner = torch.unique(nodes)
        for _ in range(depth - 1):
            inner = self._around(inner)[0]
        rows, edges, arcs = self._around(inner) if depth else (inner, self.pairs[:, :0], None)
        old, ends = rows < len(self.names), self.pairs.flatten()
        touched = torch.isin(ends, rows)
        at = torch.searchsorted(rows, ends[touched])
        degree = torch.bincount(at, minlength=len(rows))
        degree[old] += self.base.degree_of(rows[old])
        if self.more is not None and arcs is not None:
            weight = edge_weight(self.more).double().repeat(2)[touched]
            strength = torch.bincount(at, weight, minlength=len(rows)).double()  # of none: whole
            strength[old] += self.base.strength[rows[old]]
            arcs = replace(arcs, strength=strength)
        part = Adjacency.from_edges(torch.searchsorted(rows, edges), rows.numel(), False, arcs)
        return rows, replace(part, whole_degree=degree)

    def _around(self, inner: Tensor) -> tuple[Tensor, Tensor, Arcs | None]:
        """Returns nodes with their neighbours, and the edges into the nodes with their arcs."""
        found, _, counts, near, via = self.base._reach(inner[inner < len(self.names)], 1)
        ends = np.stack([found[near], np.repeat(found[: counts.size], counts)])
        known, arcs = torch.from_numpy(ends), self.base.arcs_at(via, inner[:0])
        both = torch.cat([self.pairs, self.pairs.flip(0)], dim=1)
        into = torch.isin(both[1], inner)
        edges = torch.cat([known, both[:, into]], dim=1)
        if arcs is not None and self.more is not None:
            beside = torch.cat([self.more, self.more.flip(1)])[into]
            arcs = Arcs(torch.cat([arcs.weights, beside]), self.directed)
        return torch.unique(torch.cat([inner, edges[0]])), edges, arcs

    def _among(self, pairs: Tensor, others: Tensor) -> Tensor:
        first, second = (_keys(some, self.num_nodes) for some in (pairs, others))
        return torch.isin(first, second)


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
    extended = ExtendedGraph(
        **parts,
        base=graph,
        x=torch.empty(0, graph.width) if change.x is None else change.x,
        pairs=torch.from_numpy(pairs[:, here]),
        more=None if arcs is None else torch.from_numpy(arcs[here]),
    )
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


def _keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """Encodes undirected pairs ``[2, *]``."""
    return pairs.max(dim=0).values * num_nodes + pairs.min(dim=0).values
