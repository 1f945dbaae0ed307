"""Structural features: what the graph alone tells of nodes that have no features of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from evergraph.errors import InputError
from evergraph.estimator.extended import extend
from evergraph.estimator.graph import Array
from evergraph.estimator.inputs import make_change, unique_ids
from evergraph.estimator.state import State
from evergraph.stream import Adjacency

NAMES = ("degree", "degree of neighbours", "pagerank", "return in two steps")
#: Steps of PageRank, and how likely each is to go on.
STEPS, ONWARD = 50, 0.85


def with_structure(state: State, parts: dict[str, Any]) -> dict[str, Any]:
    """Computes features where ``structural`` ones are asked for, of new nodes or known ones.

    They are of the graph with the edges that come along, and stay as they are until they are
    updated: a node that arrives does not change what is known of others.
    """
    for ids, x in (("ids", "x"), ("updated", "updated_x")):
        if not isinstance(parts.get(x), str):
            continue
        if parts[x] != "structural":
            raise InputError(f"Expected 'x' as numbers or 'structural' (got {parts[x]!r}).")
        names, graph = unique_ids(parts[ids]), state.graph
        if ids == "ids":
            nothing = np.zeros((len(names), max(graph.width, 1)))
            change = make_change("learn", columns=None, ids=names, x=nothing, edges=parts["edges"])
            state_with, rows = extend(state, change)
            graph = state_with.graph
        else:
            rows = graph.find(names, "ids")
        found = structural_features(graph.adjacency)[rows.numpy()]
        parts = {**parts, x: found, "columns": state.columns or NAMES}
    return parts


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
