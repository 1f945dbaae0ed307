"""The plain npz format: sparse or dense features, stored edges, labels, class names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from evergraph.errors import InputError
from evergraph.stream.datasets.npz import Array, read_arrays, write_arrays
from evergraph.stream.features import Features, SparseRows, from_scipy_parts
from evergraph.stream.graph import Graph

#: The first layer has a weight per column, so more than this is a mistake in the file.
MAX_COLUMNS = 10_000_000
#: A label above this is an identifier of something else, not a class number.
MAX_CLASSES = 1_000_000

_SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
_KINDS = {"iu": "integers", "fiub": "numbers", "US": "text", "USiu": "text"}


def read_plain(path: Path, name: str | None = None) -> Graph:
    """Reads a graph; its name is the file's unless given.

    Raises:
        InputError: In one sentence that names the file, the key and the remedy.
    """
    arrays = read_arrays(path, ("edge_index", "y"), (*_SPARSE, "x", "class_names"))
    features: Features
    if "x" in arrays:
        features = dense_features(path, arrays["x"])
    else:
        for key in _SPARSE:
            if key not in arrays:
                raise InputError(
                    f"Expected '{key}' in '{path}' (got no features under it); store "
                    "x_data, x_indices, x_indptr and x_shape, or a dense x."
                )
        features = sparse_features(path, arrays, "x_")
    names = arrays.get("class_names")
    return build_graph(
        path, name or path.stem, features, arrays["edge_index"], arrays["y"], names=names
    )


def write_plain(graph: Graph, path: Path) -> None:
    """Writes a graph in the smallest dtypes that hold it; the same graph, the same bytes."""
    arrays: dict[str, Array] = {}
    if isinstance(graph.x, SparseRows):
        arrays["x_data"] = _smallest(graph.x.values.numpy())
        arrays["x_indices"] = _smallest(graph.x.indices.numpy())
        arrays["x_indptr"] = _smallest(graph.x.indptr.numpy())
        arrays["x_shape"] = np.array(graph.x.shape, dtype=np.int64)
    else:
        arrays["x"] = _smallest(graph.x.numpy())
    arrays["edge_index"] = _smallest(graph.edges.numpy())
    arrays["y"] = _smallest(graph.y.numpy())
    arrays["class_names"] = np.array(graph.class_names, dtype=np.str_)
    write_arrays(path, arrays)


def build_graph(
    path: Path, name: str, x: Features, edge_index: Array, y: Array, *, names: Array | None = None
) -> Graph:
    """Checks edges, labels and names that came from ``path`` and builds the graph."""
    check_kind(path, "edge_index", edge_index, "iu")
    labels = _labels(path, y)
    class_names = None
    if names is not None:
        check_kind(path, "class_names", names, "USiu")
        text = np.char.decode(names, "utf-8", "replace") if names.dtype.kind == "S" else names
        class_names = tuple(str(item) for item in text.reshape(-1))
    elif labels.size and int(labels.max()) >= MAX_CLASSES:
        raise InputError(
            f"Expected 'y' of '{path}' below {MAX_CLASSES} (got {labels.max()}); number the "
            "classes from 0."
        )
    edges = torch.from_numpy(edge_index.astype(np.int64, copy=False))
    try:
        return Graph.build(name, x, edges, torch.from_numpy(labels), class_names)
    except InputError as error:
        raise InputError(f"In '{path}': {error}") from None


def dense_features(path: Path, x: Array, key: str = "x") -> torch.Tensor:
    """Checks a dense ``[n, d]`` matrix and returns it as float32."""
    check_kind(path, key, x, "fiub")
    if x.ndim != 2 or not 1 <= x.shape[1] <= MAX_COLUMNS:
        raise InputError(
            f"Expected '{key}' of '{path}' of shape [n, d] with d in [1, {MAX_COLUMNS}] "
            f"(got {list(x.shape)}); store one row of features per node."
        )
    with np.errstate(over="ignore"):  # Graph.build refuses the infinities
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


def sparse_features(path: Path, arrays: dict[str, Array], prefix: str) -> SparseRows:
    """Checks the four arrays of a CSR matrix against each other and joins them."""
    data, indices, indptr, shape = (
        arrays[f"{prefix}{part}"] for part in ("data", "indices", "indptr", "shape")
    )
    check_kind(path, f"{prefix}data", data, "fiub")
    if data.ndim != 1 or data.shape != indices.shape:
        raise InputError(
            f"Expected '{prefix}data' and '{prefix}indices' of '{path}' of one equal length "
            f"(got shapes {list(data.shape)} and {list(indices.shape)}); correct them."
        )
    num_columns = check_csr(path, prefix, indices, indptr, shape)
    # Columns ascending in each row, so that one graph has one fingerprint in every file.
    pointer = indptr.astype(np.int64)
    rows = np.repeat(np.arange(pointer.size - 1), pointer[1:] - pointer[:-1])
    keys = rows * num_columns + indices.astype(np.int64)
    if bool((keys[1:] < keys[:-1]).any()):
        order = np.argsort(keys, kind="stable")
        data, indices = data[order], indices[order]
    with np.errstate(over="ignore"):  # Graph.build refuses the infinities
        return from_scipy_parts(data, indices, indptr, num_columns)


def check_csr(path: Path, prefix: str, indices: Array, indptr: Array, shape: Array) -> int:
    """Checks that the structure of a CSR matrix is consistent; returns the column count."""
    for part, array in (("indices", indices), ("indptr", indptr), ("shape", shape)):
        check_kind(path, f"{prefix}{part}", array, "iu")
    if shape.shape != (2,) or int(shape[0]) < 0 or not 1 <= int(shape[1]) <= MAX_COLUMNS:
        raise InputError(
            f"Expected '{prefix}shape' of '{path}' as two numbers, rows and columns in "
            f"[1, {MAX_COLUMNS}] (got {shape.reshape(-1)[:4].tolist()}); correct it."
        )
    rows = int(shape[0])
    if indptr.shape != (rows + 1,):
        raise InputError(
            f"Expected '{prefix}indptr' of '{path}' with {rows + 1} entries, rows plus one "
            f"(got shape {list(indptr.shape)}); correct it or '{prefix}shape'."
        )
    if indices.ndim != 1:
        raise InputError(
            f"Expected '{prefix}indices' of '{path}' in one dimension (got shape "
            f"{list(indices.shape)}); flatten it."
        )
    pointer = indptr.astype(np.int64, copy=False)
    if pointer[0] != 0 or pointer[-1] != indices.size or bool((np.diff(pointer) < 0).any()):
        raise InputError(
            f"Expected '{prefix}indptr' of '{path}' to rise from 0 to {indices.size} "
            f"(got {pointer[0]} to {pointer[-1]}, or a fall between); rebuild the CSR arrays."
        )
    return int(shape[1])


def check_kind(path: Path, key: str, array: Array, kinds: str) -> None:
    """Refuses an array whose dtype is not of the expected kinds."""
    if array.dtype.kind not in kinds:
        raise InputError(
            f"Expected '{key}' of '{path}' to hold {_KINDS[kinds]} (got {array.dtype}); convert it."
        )


def _labels(path: Path, y: Array) -> Array:
    if y.dtype.kind == "f":
        missing = int((~np.isfinite(y)).sum())
        if missing:
            raise InputError(
                f"Expected 'y' of '{path}' with a class for every node (got {missing} of "
                f"{y.size} missing); label those nodes or leave them out."
            )
    check_kind(path, "y", y, "iu")
    if y.ndim != 1:
        raise InputError(
            f"Expected 'y' of '{path}' of shape [n] (got {list(y.shape)}); store one class "
            "number per node."
        )
    return y.astype(np.int64)


def _smallest(array: Array) -> Array:
    """Casts to the smallest unsigned dtype that holds every value exactly, if one does."""
    if array.size == 0 or bool((np.signbit(array) if array.dtype.kind == "f" else array < 0).any()):
        return array
    high = array.max()
    if high > np.iinfo(np.uint32).max:
        return array
    small = array.astype(np.min_scalar_type(int(high)))
    return small if bool((small == array).all()) else array
