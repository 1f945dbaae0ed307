"""Archives of arrays (npz), read without pickle and without trusting declared sizes."""

from __future__ import annotations

import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from evergraph.errors import InputError
from evergraph.stream.graph import Features, Graph, SparseRows, from_scipy_parts

Array = np.ndarray[Any, np.dtype[Any]]

#: Deflate cannot shrink data more than this; a larger claim is not a real archive.
MAX_DEFLATE_RATIO = 1032
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


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Array]:
    """Reads the named arrays of an npz file; other keys are not touched.

    Raises:
        InputError: If the file is absent, damaged, not an npz, lacks a required key or
            holds Python objects under a wanted key.
    """
    if not path.is_file():
        raise InputError(f"Expected a file at '{path}' (got none); check the path.")
    try:
        with zipfile.ZipFile(path) as archive:
            present = {info.filename: info for info in archive.infolist()}
            for key in required:
                if f"{key}.npy" not in present:
                    raise InputError(
                        f"Expected '{key}' in '{path}' (got "
                        f"{_listing(present)}); add the missing array."
                    )
            wanted = [key for key in (*required, *optional) if f"{key}.npy" in present]
            return {key: _read_one(archive, present[f"{key}.npy"], key, path) for key in wanted}
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            f"Expected '{path}' to be an npz archive (got {_brief(error)}); the file is "
            "truncated or of another kind, so make or download it again."
        ) from None


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes an npz file in one step: the same arrays give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for key, array in arrays.items():
                info = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                with archive.open(info, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read_one(archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str, path: Path) -> Array:
    try:
        with archive.open(info) as member:
            shape, dtype, header = _read_header(member)
        if dtype.hasobject:
            raise InputError(
                f"Expected '{key}' of '{path}' to hold numbers or text (got Python objects, "
                "which need pickle); save it as a plain array."
            )
        size = math.prod(shape) * dtype.itemsize
        # Both checks come before the allocation, so that a lie costs nothing.
        if header + size != info.file_size or size > MAX_DEFLATE_RATIO * info.compress_size:
            raise ValueError(f"a header that declares shape {shape}, against the stored bytes")
        with archive.open(info) as member:
            array: Array = np.lib.format.read_array(member, allow_pickle=False)
            member.read(1)  # reaching the end makes zipfile verify the checksum
        return array
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            f"Expected '{key}' of '{path}' to be readable (got {_brief(error)}); the file is "
            "damaged, so make or download it again."
        ) from None


def _read_header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Returns an array's shape, dtype and the number of bytes before its data."""
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(member)
    else:
        raise ValueError(f"array format version {version}")
    if any(length < 0 for length in shape):
        raise ValueError(f"a negative length in shape {shape}")
    return shape, dtype, member.tell()


def _listing(names: Mapping[str, Any]) -> str:
    keys = sorted(name.removesuffix(".npy") for name in names)
    shown = ", ".join(keys[:8]) + (", …" if len(keys) > 8 else "")
    return f"only {shown}" if keys else "an empty archive"


def _brief(error: Exception) -> str:
    """Keeps an exception's message to one line without a full stop."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.rstrip(".")[:160]


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
