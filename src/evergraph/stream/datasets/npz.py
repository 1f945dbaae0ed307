"""Graphs in npz files, read without pickle and without trusting what the files declare.

The plain format holds ``edge_index [2, E]``, ``y [n]``, maybe ``class_names``, and the features
as a dense ``x [n, d]`` or as the arrays of a CSR matrix: ``x_data``, ``x_indices``, ``x_indptr``
and ``x_shape``. ``names [n]`` are what the nodes are called. A graph that grew adds ``time [n]``,
when each node came, and maybe ``edge_time [E]``, from when on each edge is there: whole numbers
such as years, or places in ``times``, which then names the steps. Other formats
(:mod:`~evergraph.stream.datasets.raw`) are checked the same way.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evergraph.errors import InputError
from evergraph.files import make_folder, physical_memory, write_atomic
from evergraph.stream.features import Features, SparseRows, from_scipy_parts
from evergraph.stream.graph import Graph

Array = np.ndarray[Any, np.dtype[Any]]

#: The first layer has a weight per column, so more than this is a mistake in the file.
MAX_COLUMNS = 10_000_000
#: A label above this is an identifier of something else, not a class number.
MAX_CLASSES = 1_000_000
#: The memory is so many times the arrays of a file: cleaning and ordering copy them.
MEMORY_PARTS = 4
#: Compressed more than this, arrays are all but empty and may take no more bytes than that.
EMPTY_RATIO, EMPTY_BYTES = 500, 2 << 30
#: What zipfile, zlib and numpy raise on damaged bytes.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)
_SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
_OPTIONAL = ("class_names", "time", "edge_time", "times", "names")
_KINDS = {"iu": "integers", "fiub": "numbers", "USiu": "text"}


def read_plain(path: Path, name: str | None = None) -> Graph:
    """Reads a graph; its name is the file's unless given."""
    arrays = read_arrays(path, ("edge_index", "y"), (*_SPARSE, "x", *_OPTIONAL))
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
    beside = {key: arrays[key] for key in _OPTIONAL if key in arrays}
    edges, labels = arrays["edge_index"], arrays["y"]
    return build_graph(path, name or path.stem, features, edges, labels, **beside)


def write_plain(graph: Graph, path: Path) -> None:
    """Writes a graph in the smallest dtypes that hold it; the same graph, the same bytes."""
    x, numbers = graph.x, {"edge_index": graph.edges, "y": graph.y}
    shape = {}
    if isinstance(x, SparseRows):
        shape = {"x_shape": np.array(x.shape, dtype=np.int64)}
        numbers |= {"x_data": x.values, "x_indices": x.indices, "x_indptr": x.indptr}
    else:
        numbers["x"] = x
    texts = {"class_names": graph.class_names}
    if graph.time is not None and graph.edge_time is not None:
        numbers |= {"time": graph.time, "edge_time": graph.edge_time}
        texts["times"] = graph.times
    texts |= {"names": graph.node_names} if graph.node_names else {}
    arrays = {key: smallest(tensor.numpy()) for key, tensor in numbers.items()}
    arrays |= {key: np.array(words, dtype=np.str_) for key, words in texts.items()}
    write_arrays(path, arrays | shape)


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes an npz file, whole or not at all."""
    content = io.BytesIO()
    np.savez_compressed(content, **dict[str, Any](arrays))
    make_folder(path.parent)
    write_atomic(path, content.getvalue())


def build_graph(
    path: Path, name: str, x: Features, edge_index: Array, y: Array, **beside: Array
) -> Graph:
    """Checks arrays that came from ``path`` and builds the graph.

    ``beside`` holds what a graph may lack: ``class_names``, ``time``, ``edge_time``, ``times`` and
    ``names``.
    """
    check_kind(path, "edge_index", edge_index, "iu")
    check_kind(path, "y", y, "fiub")
    labels = torch.from_numpy(y if y.dtype.kind == "f" else y.astype(np.int64))
    texts = {
        key: _texts(path, key, beside[key])
        for key in ("class_names", "times", "names")
        if key in beside
    }
    class_names = texts.get("class_names")
    if class_names is None and bool((labels >= MAX_CLASSES).any()):
        raise InputError(
            f"Expected 'y' of '{path}' below {MAX_CLASSES} (got {int(labels.max())}); number the "
            "classes from 0."
        )
    edges = torch.from_numpy(edge_index.astype(np.int64, copy=False))
    dated = {}
    for key in ("time", "edge_time"):
        if key in beside:
            check_kind(path, key, beside[key], "iu")
            dated[key] = torch.from_numpy(beside[key].astype(np.int64))
    try:
        return Graph.build(
            name,
            x,
            edges,
            labels,
            class_names,
            times=texts.get("times", ()),
            node_names=texts.get("names", ()),
            **dated,
        )
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
    keys = csr_rows(indptr) * num_columns + indices.astype(np.int64)
    if bool((keys[1:] < keys[:-1]).any()):
        order = np.argsort(keys, kind="stable")
        data, indices = data[order], indices[order]
    with np.errstate(over="ignore"):  # Graph.build refuses the infinities
        return from_scipy_parts(data, indices, indptr, num_columns)


def csr_rows(indptr: Array) -> Array:
    """Returns the row of every entry that a CSR pointer counts."""
    pointer = indptr.astype(np.int64)
    return np.repeat(np.arange(pointer.size - 1), pointer[1:] - pointer[:-1])


def check_csr(path: Path, prefix: str, indices: Array, indptr: Array, shape: Array) -> int:
    """Checks that the structure of a CSR matrix is consistent; returns the column count."""
    for part, array in (("indices", indices), ("indptr", indptr), ("shape", shape)):
        check_kind(path, f"{prefix}{part}", array, "iu")
    if shape.shape != (2,) or int(shape[0]) < 0 or not 1 <= int(shape[1]) <= MAX_COLUMNS:
        raise InputError(
            f"Expected '{prefix}shape' of '{path}' as two numbers, rows and columns in "
            f"[1, {MAX_COLUMNS}] (got {shape.reshape(-1)[:4].tolist()}); correct it."
        )
    if indices.ndim != 1:
        raise InputError(
            f"Expected '{prefix}indices' of '{path}' in one dimension (got shape "
            f"{list(indices.shape)}); flatten it."
        )
    entries, pointer = int(shape[0]) + 1, indptr.astype(np.int64, copy=False).reshape(-1)
    rises = pointer.size == entries and bool((np.diff(pointer) >= 0).all())
    if not rises or pointer[0] != 0 or pointer[-1] != indices.size:
        raise InputError(
            f"Expected '{prefix}indptr' of '{path}' with {entries} entries that rise from 0 to "
            f"{indices.size} (got {pointer.size}, from {pointer[:1]} to {pointer[-1:]}, or a "
            "fall between); rebuild the CSR arrays."
        )
    return int(shape[1])


def check_kind(path: Path, key: str, array: Array, kinds: str) -> None:
    """Refuses an array whose dtype is not of the expected kinds."""
    if array.dtype.kind not in kinds:
        raise InputError(
            f"Expected '{key}' of '{path}' to hold {_KINDS[kinds]} (got {array.dtype}); convert it."
        )


def _texts(path: Path, key: str, array: Array) -> tuple[str, ...]:
    check_kind(path, key, array, "USiu")
    text = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    return tuple(str(item) for item in text.reshape(-1).tolist())


def smallest(array: Array) -> Array:
    """Casts to the smallest unsigned dtype that holds every value exactly, if one does."""
    if array.size == 0 or bool((np.signbit(array) if array.dtype.kind == "f" else array < 0).any()):
        return array
    high = array.max()
    if high > np.iinfo(np.uint32).max:
        return array
    small = array.astype(np.min_scalar_type(int(high)))
    return small if bool((small == array).all()) else array


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Array]:
    """Reads the named arrays of an npz file; other keys are not touched.

    Refuses a file that is absent, damaged, no npz, lacks a required key, holds Python objects under
    a wanted key, or declares more than fits in the memory.
    """
    if not os.path.isfile(path):
        raise InputError(f"Expected a file at '{path}' (got none); check the path.")
    sizes: dict[str, int] = {}
    arrays: dict[str, Array] = {}
    expected = f"Expected '{path}' to be an npz archive"
    reporting = _reporting_damage(expected, "truncated or of another kind")
    with reporting, zipfile.ZipFile(path) as archive:
        present = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        for key in required:
            if key not in present:
                keys = sorted(present)
                shown = ", ".join(keys[:8]) + (", …" if len(keys) > 8 else "")
                there = f"only {shown}" if keys else "an empty archive"
                raise InputError(
                    f"Expected '{key}' in '{path}' (got {there}); add the missing array."
                )
        wanted = {key: present[key] for key in (*required, *optional) if key in present}
        for key, info in wanted.items():
            with _reporting_damage(f"Expected '{key}' of '{path}' to be readable", "damaged"):
                sizes[key] = _declared_size(archive, info, f"'{key}' of '{path}'")
        unpacked = sum(info.file_size for info in wanted.values())
        _check_memory(path, sizes, unpacked / sum(info.compress_size for info in wanted.values()))
        for key, info in wanted.items():
            reporting = _reporting_damage(f"Expected '{key}' of '{path}' to be readable", "damaged")
            with reporting, archive.open(info) as member:
                arrays[key] = np.lib.format.read_array(member, allow_pickle=False)
                member.read(1)  # reaching the end makes zipfile verify the checksum
    return arrays


def _declared_size(archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str) -> int:
    """Reads an array's header alone and returns the bytes that the array takes in use."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        else:
            raise ValueError(f"array format version {version}")
        header = member.tell()
    if dtype.hasobject:
        raise InputError(
            f"Expected {what} to hold numbers or text (got Python objects, which need pickle); "
            "save it as a plain array."
        )
    count = math.prod(shape)
    if min(shape, default=0) < 0 or header + count * dtype.itemsize != info.file_size:
        raise ValueError(f"a header that declares shape {shape}, against the stored bytes")
    return count * max(dtype.itemsize, 4)  # nothing smaller than float32 is computed with


def _check_memory(path: Path, sizes: Mapping[str, int], ratio: float) -> None:
    """Refuses arrays that together would not fit in the memory, before any is unpacked."""
    total, room = sum(sizes.values()), physical_memory() // MEMORY_PARTS
    if total > room:
        limit = f"{_bytes(room)}, a quarter of this machine's memory"
    elif total > EMPTY_BYTES and ratio > EMPTY_RATIO:
        limit = f"{_bytes(EMPTY_BYTES)} when they are compressed {ratio:.0f} times"
    else:
        return
    key = max(sizes, key=lambda key: sizes[key])
    raise InputError(
        f"Expected the arrays of '{path}' to take at most {limit} (got {_bytes(total)}, "
        f"{_bytes(sizes[key])} of it declared by '{key}'); store features that are mostly zeros "
        f"as {', '.join(_SPARSE)}, or take a machine with more memory."
    )


@contextmanager
def _reporting_damage(expected: str, fault: str) -> Iterator[None]:
    """Turns what damaged bytes raise into one sentence."""
    try:
        yield
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            f"{expected} (got {brief(error)}); the file is {fault}, so make or download it again."
        ) from None


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def brief(error: BaseException) -> str:
    """Keeps an exception's message to one line without a full stop."""
    text = str(error).strip().strip("<>'\"") or type(error).__name__
    return text.splitlines()[0].rstrip(".")[:160]
