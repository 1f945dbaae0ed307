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

#: Structural features; steps of PageRank, and how likely each is to go on.
NAMES = ("degree", "degree of neighbours", "pagerank", "return in two steps")
STEPS, ONWARD = 50, 0.85


@dataclass(frozen=True)
class ExtendedGraph(GrowingGraph):
    """A graph with further nodes behind its own, which have no names here.

    Its edges are a copy, for the room behind the stored ones is what the next change needs;
    features, which take far more, are put together when somebody asks for all of them.
    """

    base: GrowingGraph = field(default_factory=GrowingGraph.empty)  # as it is stored
    x: Features = field(default_factory=lambda: torch.empty(0, 0))  # of the new nodes, [m, d]

    @property
    def num_nodes(self) -> int:
        """Counts all nodes, the new ones last."""
        return len(self.names) + self.x.shape[0]

    @cached_property
    def features(self) -> Features:
        """All features, ``[n + m, d]``."""
        return stack_rows(self.base.features, self.x)

    def take(self, rows: Tensor) -> Features:
        """Copies the features of some nodes, in their order."""
        n, old = len(self.names), rows < len(self.names)
        both = stack_rows(self.base.take(rows[old]), self.x[rows[~old] - n])
        return both[torch.argsort(torch.argsort(~old, stable=True))]  # back in their order


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
    parts = {part.name: getattr(graph, part.name) for part in fields(graph)} | graph.own_edges()
    x = torch.empty(0, graph.width) if change.x is None else change.x
    extended = ExtendedGraph(**parts, base=graph, x=x)
    seen = extended.with_edges(torch.stack(sides), change.weights)
    return replace(state, graph=seen, beside=state), torch.arange(n, n + m)


def with_structural(state: State, parts: dict[str, Any]) -> dict[str, Any]:
    """Computes the features of a change for which ``structural`` ones are asked.

    They are of the graph with the edges that come along, and stay as they are until they are
    updated: a node that arrives does not change what is known of others.
    """
    ids, x = ("updated", "updated_x") if "updated" in parts else ("ids", "x")
    if parts[x] != "structural":
        raise InputError(f"Expected 'x' as numbers or 'structural' (got {parts[x]!r}).")
    names, seen = unique_ids(parts[ids]), state
    if "updated" in parts:
        rows = state.graph.find(names, "ids")
    else:
        nothing = np.zeros((len(names), max(state.graph.width, 1)))
        new = {"ids": names, "x": nothing, "edges": parts["edges"]}
        seen, rows = extend(state, make_change("learn", columns=None, **new))
    made = structural_features(seen.graph.adjacency)[rows.numpy()]
    return parts | {x: made, "columns": state.columns or NAMES}


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
