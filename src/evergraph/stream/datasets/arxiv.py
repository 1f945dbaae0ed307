"""ogbn-arxiv: OGB's raw csv.gz files, parsed without OGB's pickled caches."""

from __future__ import annotations

import csv
import gzip
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.errors import InputError
from evergraph.stream.datasets import download
from evergraph.stream.datasets.npz import Array, build_graph, dense_features
from evergraph.stream.graph import Graph

NAME = "ogbn-arxiv"
EDGES = "ogbn_arxiv/raw/edge.csv.gz"
FEATURES = "ogbn_arxiv/raw/node-feat.csv.gz"
LABELS = "ogbn_arxiv/raw/node-label.csv.gz"
#: The file's name is misspelt at the source.
CLASSES = "ogbn_arxiv/mapping/labelidx2arxivcategeory.csv.gz"


def load_arxiv(root: Path) -> Graph:
    """Reads the raw files, after a download through ``ogb`` if there are none."""
    if download.find_file(root, EDGES) is None:
        wanted = (EDGES, FEATURES, LABELS, CLASSES)
        download.obtain(NAME, root, {f"arxiv/{path.partition('/')[2]}": path for path in wanted})
    edges, features, labels = (_existing(root, path) for path in (EDGES, FEATURES, LABELS))
    classes = download.find_file(root, CLASSES)
    y = read_table(labels, np.int64)
    x = read_table(features, np.float32)
    edge_index = read_table(edges, np.int64)
    if y.shape[1] != 1 or edge_index.shape[1] != 2:
        path, expected, got = (
            (labels, 1, y.shape[1]) if y.shape[1] != 1 else (edges, 2, edge_index.shape[1])
        )
        raise InputError(
            f"Expected '{path}' with columns: {expected} (got {got}); download it again."
        )
    names = read_class_names(classes) if classes is not None else None
    return build_graph(
        edges.parent, NAME, dense_features(features, x), edge_index.T, y[:, 0], names=names
    )


def read_table(path: Path, dtype: type[Any]) -> Array:
    """Parses a csv.gz of numbers without a header into ``[rows, columns]``."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file; refused below
            table: Array = np.loadtxt(file, dtype=dtype, delimiter=",", comments=None, ndmin=2)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(
            f"Expected '{path}' to be a gzipped table of {np.dtype(dtype).name} (got "
            f"{str(error).splitlines()[0].rstrip('.')}); download it again."
        ) from None
    if table.size == 0:
        raise InputError(f"Expected rows in '{path}' (got none); download it again.")
    return table


def read_class_names(path: Path) -> Array:
    """Reads ``label idx,arxiv category`` rows into names in label order."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row][1:]
        names = {int(row[0]): row[1] for row in rows}
    except (OSError, EOFError, zlib.error, ValueError, IndexError, csv.Error) as error:
        raise InputError(
            f"Expected '{path}' to be a gzipped table of label and category (got {error}); "
            "download it again or remove it."
        ) from None
    if sorted(names) != list(range(len(names))):
        raise InputError(
            f"Expected '{path}' to name labels 0 to {len(names) - 1} (got gaps); "
            "download it again or remove it."
        )
    return np.array([names[label] for label in range(len(names))], dtype=np.str_)


def _existing(root: Path, relative: str) -> Path:
    path = download.find_file(root, relative)
    if path is None:
        raise InputError(
            f"Expected '{relative}' below '{root}' beside the other raw files of '{NAME}' "
            "(got none); put it there, or remove the folder so that it is downloaded again."
        )
    return path
