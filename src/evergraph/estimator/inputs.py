"""Change: what users hand over, in the forms they have it, read into one transaction.

Ids, features, edges and labels come as lists, arrays, tensors and frames, or together as a graph of
PyG or NetworkX, taken apart without importing either. One file, so that there is one way in.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.graph import Id
from evergraph.stream import Features, SparseRows
from evergraph.stream.graph import from_scipy_parts

#: Longer names are not names; each is kept as it is.
MAX_ID_LENGTH = 4096
INT64 = range(-(2**63), 2**63)
Pairs = tuple[list[Id], list[Id]]


@dataclass(frozen=True)
class Change:
    """What happens at once, in this order: removals, new features, nodes, edges, labels."""

    kind: str  # learn, update or remove
    removed: list[Id] = field(default_factory=list)
    removed_edges: Pairs = field(default_factory=lambda: ([], []))
    updated: list[Id] = field(default_factory=list)
    updated_x: Features | None = None  # [len(updated), d]
    ids: list[Id] = field(default_factory=list)
    x: Features | None = None  # [len(ids), d]
    edges: Pairs = field(default_factory=lambda: ([], []))
    labels: dict[Id, Id] = field(default_factory=dict)  # of any nodes, new or old
    columns: tuple[str, ...] | None = None  # names of the features, if they have any


def make_change(
    kind: str,
    *,
    columns: Sequence[str] | None,
    removed: Any = None,
    removed_edges: Any = None,
    updated: Any = None,
    updated_x: Any = None,
    ids: Any = None,
    x: Any = None,
    edges: Any = None,
    labels: Any = None,
) -> Change:
    """Reads a change from what a user gave; ``columns`` are the features' names so far."""
    new_ids = unique_ids(ids) if ids is not None else []
    renewed = unique_ids(updated) if updated is not None else []
    names = tuple(columns) if columns is not None else None
    features = changed = None
    if x is not None:
        features, given = read_features(x, len(new_ids), names)
        names = names or given
    elif new_ids:
        raise InputError(
            f"Expected 'x' with a row of features for each of {len(new_ids)} ids (got none); give "
            "them."
        )
    if updated_x is not None:
        changed, given = read_features(updated_x, len(renewed), names)
        names = names or given
    return Change(
        kind,
        removed=unique_ids(removed) if removed is not None else [],
        removed_edges=read_edges(removed_edges),
        updated=renewed if changed is not None else [],
        updated_x=changed,
        ids=new_ids,
        x=features,
        edges=read_edges(edges),
        labels=read_labels(labels, new_ids or renewed),
        columns=names,
    )


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


def read_ids(values: Any, field: str = "ids") -> list[Id]:
    """Reads names of nodes: all text or all whole numbers."""
    items = _items(values, field)
    for row, item in enumerate(items, 1):
        if isinstance(item, str):
            _check_text(item, field, row)
        elif not _is_int(item):
            raise InputError(
                f"Expected '{field}' as text or whole numbers (got {_show(item)} in row {row}); "
                "convert it."
            )
    _check_one_kind(items, field)
    return items


def unique_ids(values: Any, field: str = "ids") -> list[Id]:
    """Reads names of nodes, each of which may come once."""
    ids = read_ids(values, field)
    if len(set(ids)) < len(ids):
        seen: set[Id] = set()
        for row, item in enumerate(ids, 1):
            if item in seen:
                raise InputError(
                    f"Expected '{field}' without repetition (got {_show(item)} again in row {row})"
                    "; keep one."
                )
            seen.add(item)
    return ids


def read_labels(values: Any, ids: Sequence[Id]) -> dict[Id, Id]:
    """Reads class names beside ids; None and NaN stand for no label.

    A mapping names the labelled nodes itself.
    """
    if values is None:
        return {}
    if isinstance(values, dict):
        keys = read_ids(list(values), "labels")
        return read_labels(list(values.values()), keys)
    items = _items(values, "labels")
    if len(items) != len(ids):
        raise InputError(
            f"Expected 'labels' with one entry per id, {len(ids)} (got {len(items)}); give None "
            "where there is no label."
        )
    labels: dict[Id, Id] = {}
    for row, (name, item) in enumerate(zip(ids, items, strict=True), 1):
        if _is_missing(item):
            continue
        if isinstance(item, str):
            _check_text(item, "labels", row)
        elif isinstance(item, float) and item.is_integer():  # a column with missing entries
            item = int(item)  # noqa: PLW2901
        elif not _is_int(item):
            raise InputError(
                f"Expected 'labels' as text or whole numbers (got {_show(item)} in row {row}); "
                "convert it."
            )
        labels[name] = item
    _check_one_kind(list(labels.values()), "labels")
    return labels


def read_features(
    x: Any, count: int, columns: Sequence[str] | None = None
) -> tuple[Features, tuple[str, ...] | None]:
    """Reads one row of numbers per id: arrays, frames, tensors and SciPy's matrices, also sparse.

    Args:
        x: The features.
        count: How many rows there must be.
        columns: Names of the columns as the first frame had them; a frame is put in that order.

    Returns:
        The features and the names of their columns, if they have any.
    """
    names = None
    if hasattr(x, "columns") and hasattr(x, "to_numpy"):
        names = tuple(str(name) for name in x.columns)
        if columns is not None:
            x, names = _in_order(x, names, columns), tuple(columns)
        x = x.to_numpy()
    if isinstance(x, Tensor) and x.layout != torch.strided and x.ndim == 2:
        x = _from_sparse(x)
    elif hasattr(x, "tocsr"):
        rows = x.tocsr()
        rows.sum_duplicates()
        x = from_scipy_parts(rows.data, rows.indices, rows.indptr, rows.shape[1])
    x = x.with_values(x.values.float()) if isinstance(x, SparseRows) else _dense(x)
    if len(x.shape) != 2 or x.shape[0] != count or x.shape[1] == 0:
        raise InputError(
            f"Expected 'x' of shape [{count}, d], one row per id (got {list(x.shape)}); correct it."
        )
    check_finite(x)
    return x, names


def read_edges(edges: Any, field: str = "edges") -> tuple[list[Id], list[Id]]:
    """Reads pairs of ids: a sequence of pairs, an array ``[m, 2]`` or a frame of two columns."""
    if edges is None:
        return [], []
    if hasattr(edges, "columns") and hasattr(edges, "to_numpy"):
        if len(edges.columns) != 2:
            raise InputError(
                f"Expected '{field}' with two columns (got {len(edges.columns)}); keep the two "
                "that hold ids."
            )
        sides = [edges[name].to_list() for name in edges.columns]
    else:
        if isinstance(edges, Tensor):
            edges = edges.tolist()
        if isinstance(edges, np.ndarray):
            edges = edges.tolist()
        if isinstance(edges, str | dict) or not isinstance(edges, Iterable):
            raise InputError(
                f"Expected '{field}' as pairs of ids (got {type(edges).__name__}); give a list."
            )
        pairs = list(edges)
        for row, pair in enumerate(pairs, 1):
            if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
                raise InputError(
                    f"Expected '{field}' as pairs of ids (got {_show(pair)} in row {row}); give "
                    "two ids each."
                )
        sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    first, second = (read_ids(side, field) for side in sides)
    return first, second


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


def _items(values: Any, field: str) -> list[Any]:
    if hasattr(values, "tolist"):  # NumPy, PyTorch and pandas
        values = values.tolist()
    elif hasattr(values, "to_list"):  # Polars
        values = values.to_list()
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise InputError(
            f"Expected '{field}' as a sequence (got {type(values).__name__}); give a list."
        )
    return [item.item() if isinstance(item, np.generic) else item for item in values]


def _from_sparse(x: Tensor) -> SparseRows:
    """Reads a sparse tensor of any layout."""
    entries = x.detach().cpu().to_sparse(layout=torch.sparse_coo).coalesce()
    rows, columns = entries.indices()
    counts = torch.bincount(rows, minlength=x.shape[0])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(counts, 0)])
    return SparseRows(entries.values(), columns.contiguous(), indptr, x.shape[1])


def _dense(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach().cpu().to(torch.float32).contiguous().clone()
    try:
        with np.errstate(over="ignore"):  # infinities are refused below
            return torch.from_numpy(np.array(x, dtype=np.float32, order="C"))
    except (ValueError, TypeError):
        raise InputError(
            "Expected 'x' as rows of numbers, all of the same length (got something else); convert "
            "text and fill gaps."
        ) from None


def check_finite(x: Features) -> None:
    """Refuses features with NaN or infinity."""
    values = x.values if isinstance(x, SparseRows) else x
    good = torch.isfinite(values)
    if not bool(good.all()):
        at = torch.nonzero(~good)[0]
        row = x.row_index()[at[0]] if isinstance(x, SparseRows) else at[0]
        raise InputError(
            f"Expected 'x' to be finite (got NaN or infinity in row {int(row) + 1}); clean it."
        )


def _in_order(frame: Any, names: tuple[str, ...], columns: Sequence[str]) -> Any:
    """Puts a frame's columns in the order of the first one."""
    if names == tuple(columns):
        return frame
    odd = sorted(set(names) ^ set(columns))
    if odd or len(names) != len(columns):
        raise InputError(
            f"Expected 'x' with the columns of the first batch (got a difference in "
            f"{', '.join(map(repr, odd[:5])) or 'their number'}); add or drop them."
        )
    return frame[list(columns)]


def _check_text(item: str, field: str, row: int) -> None:
    try:
        size = len(item.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= MAX_ID_LENGTH:
        raise InputError(
            f"Expected '{field}' of 1 to {MAX_ID_LENGTH} characters of text (got {_show(item)} in "
            f"row {row}); correct it."
        )


def _check_one_kind(items: Sequence[Any], field: str) -> None:
    texts = sum(isinstance(item, str) for item in items)
    if 0 < texts < len(items):
        kind = isinstance(items[0], str)
        row = next(row for row, item in enumerate(items, 1) if isinstance(item, str) is not kind)
        raise InputError(
            f"Expected '{field}' of one kind, text or whole numbers (got both, the first change in "
            f"row {row}); convert them."
        )


def _is_int(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item in INT64


def _is_missing(item: Any) -> bool:
    if item is None or (isinstance(item, float) and math.isnan(item)):
        return True
    return type(item).__name__ in {"NAType", "NaTType"}  # of pandas


def _show(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 60 else f"{text[:57]}…"
