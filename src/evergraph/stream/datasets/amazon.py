"""Amazon Computers: a co-purchase graph in the format of Shchur et al. (2018)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evergraph.stream.datasets import download
from evergraph.stream.datasets.npz import (
    Array,
    build_graph,
    check_csr,
    read_arrays,
    read_plain,
    sparse_features,
)
from evergraph.stream.graph import Graph

NAME = "amazon-computers"
RAW = "Computers/raw/amazon_electronics_computers.npz"

_ADJACENCY = ("adj_indices", "adj_indptr", "adj_shape")
_SPARSE = ("attr_data", "attr_indices", "attr_indptr", "attr_shape")


def load_amazon(root: Path) -> Graph:
    """Reads a plain file, else PyG's raw file, else lets PyG download the raw file."""
    plain = root / f"{NAME}.npz"
    if plain.is_file():
        return read_plain(plain, NAME)
    raw = download.find_file(root, RAW)
    if raw is None:
        download.obtain(NAME, root, RAW)
        raw = root / RAW
    return read_shchur(raw, NAME)


def read_shchur(path: Path, name: str) -> Graph:
    """Parses CSR adjacency and attributes; keys that may hold objects are left alone."""
    arrays = read_arrays(path, (*_ADJACENCY, *_SPARSE, "labels"))
    features = sparse_features(path, arrays, "attr_")
    return build_graph(path, name, features, _edges(path, arrays), arrays["labels"])


def _edges(path: Path, arrays: dict[str, Array]) -> Array:
    indices, indptr, shape = (arrays[key] for key in _ADJACENCY)
    check_csr(path, "adj_", indices, indptr, shape)
    pointer = indptr.astype(np.int64)
    sources = np.repeat(np.arange(indptr.size - 1), pointer[1:] - pointer[:-1])
    return np.stack([sources, indices.astype(np.int64)])
