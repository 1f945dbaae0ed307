"""Graphs of other libraries: PyG's ``Data`` and NetworkX, taken apart without importing either."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from evergraph.errors import InputError
from evergraph.estimator.growing import Id
from evergraph.estimator.inputs import read_ids


def from_object(
    ids: Any, x: Any, edges: Any, labels: Any, *, known: Container[Id]
) -> dict[str, Any]:
    """Returns ids, features, edges and labels, taken from a graph object if ``ids`` is one.

    Of a graph object the nodes that are known already bring their edges alone.
    """
    pyg = hasattr(ids, "edge_index") and hasattr(ids, "num_nodes")
    networkx = hasattr(ids, "nodes") and hasattr(ids, "edges") and hasattr(ids, "adj")
    if not pyg and not networkx:
        return {"ids": ids, "x": x, "edges": edges, "labels": labels}
    for name, value in (("x", x), ("edges", edges), ("labels", labels)):
        if value is not None:
            raise InputError(
                f"Expected no '{name}' beside a graph object, which brings its own (got one); "
                "leave it out."
            )
    return _from_pyg(ids, known) if pyg else _from_networkx(ids, known)


def _from_pyg(data: Any, known: Container[Id]) -> dict[str, Any]:
    """Reads ``x``, ``edge_index`` and, where there are any, ``n_id``, ``y`` and ``train_mask``.

    Without ``n_id`` nodes are called 0, 1, …; without ``train_mask`` every ``y`` of at least 0
    is a label.
    """
    if getattr(data, "x", None) is None:
        raise InputError("Expected 'x' in the Data object (got none); set it.")
    n_id = getattr(data, "n_id", None)
    ids = read_ids(n_id if n_id is not None else range(int(data.num_nodes)), "n_id")
    new = np.array([name not in known for name in ids], dtype=bool)
    rows = np.flatnonzero(new)
    labels: list[Any] = [None] * len(ids)
    if getattr(data, "y", None) is not None:
        y = data.y.flatten().tolist()
        mask = getattr(data, "train_mask", None)
        shown = [True] * len(y) if mask is None else mask.tolist()
        labels = [v if s and v >= 0 else None for v, s in zip(y, shown, strict=True)]
    source, target = data.edge_index.tolist()
    return {
        "ids": [ids[row] for row in rows],
        "x": data.x[rows],
        "edges": [(ids[a], ids[b]) for a, b in zip(source, target, strict=True)],
        "labels": [labels[row] for row in rows],
    }


def _from_networkx(graph: Any, known: Container[Id]) -> dict[str, Any]:
    """Reads node attributes ``x`` and, where there is one, ``label`` (or ``y``)."""
    new = [(name, about) for name, about in graph.nodes(data=True) if name not in known]
    for name, about in new:
        if "x" not in about:
            there = ", ".join(map(str, about)) or "none"
            raise InputError(
                f"Expected an attribute 'x' of node {name!r} (got {there}); set it to a list of "
                "numbers."
            )
    return {
        "ids": [name for name, _ in new],
        "x": [about["x"] for _, about in new] if new else None,
        "edges": [(a, b) for a, b in graph.edges()],
        "labels": [about.get("label", about.get("y")) for _, about in new],
    }
