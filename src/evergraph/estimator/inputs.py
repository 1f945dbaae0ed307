"""What users hand over, in the forms they have it: ids, features, edges, labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.growing import Id
from evergraph.stream import Features, SparseRows
from evergraph.stream.graph import from_scipy_parts

#: Longer names are not names; each is kept as it is.
MAX_ID_LENGTH = 4096
INT64 = range(-(2**63), 2**63)


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
    """Reads one row of numbers per id: arrays, tensors, frames or SciPy's sparse matrices.

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
    if hasattr(x, "tocsr"):
        rows = x.tocsr()
        rows.sum_duplicates()
        x = from_scipy_parts(rows.data, rows.indices, rows.indptr, rows.shape[1])
    x = x.with_values(x.values.float()) if isinstance(x, SparseRows) else _dense(x)
    if len(x.shape) != 2 or x.shape[0] != count or x.shape[1] == 0:
        raise InputError(
            f"Expected 'x' of shape [{count}, d], one row per id (got {list(x.shape)}); correct it."
        )
    _check_finite(x)
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


def _check_finite(x: Features) -> None:
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
