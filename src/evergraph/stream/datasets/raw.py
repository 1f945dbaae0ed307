"""Graphs in the raw files that their authors published, parsed without any pickle.

Each is read from the data root, after a download if it is not there.
"""

from __future__ import annotations

import csv
import gzip
import os
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.errors import InputError
from evergraph.stream.datasets import npz
from evergraph.stream.datasets.download import find_file, obtain, raw_file
from evergraph.stream.graph import Graph

AMAZON = "Computers/raw/amazon_electronics_computers.npz"
REDDIT_DATA = "Reddit/raw/reddit_data.npz"
REDDIT_GRAPH = "Reddit/raw/reddit_graph.npz"
ARXIV_EDGES = "ogbn_arxiv/raw/edge.csv.gz"
ARXIV_FEATURES = "ogbn_arxiv/raw/node-feat.csv.gz"
ARXIV_LABELS = "ogbn_arxiv/raw/node-label.csv.gz"
#: The file's name is misspelt at the source.
ARXIV_CLASSES = "ogbn_arxiv/mapping/labelidx2arxivcategeory.csv.gz"


def load_amazon(root: Path) -> Graph:
    """Reads Amazon Computers from a plain file, else from the raw file."""
    name = "amazon-computers"
    plain = root / f"{name}.npz"
    if os.path.isfile(plain):
        return npz.read_plain(plain, name)
    obtain(name, root, {AMAZON: None})
    return read_shchur(raw_file(name, root, AMAZON), name)


def read_shchur(path: Path, name: str) -> Graph:
    """Parses the CSR adjacency and attributes of Shchur et al. (2018).

    Keys that may hold Python objects are left alone.
    """
    adjacency = ("adj_indices", "adj_indptr", "adj_shape")
    attributes = ("attr_data", "attr_indices", "attr_indptr", "attr_shape")
    arrays = npz.read_arrays(path, (*adjacency, *attributes, "labels"))
    features = npz.sparse_features(path, arrays, "attr_")
    indices, indptr, shape = (arrays[key] for key in adjacency)
    npz.check_csr(path, "adj_", indices, indptr, shape)
    edges = np.stack([npz.csr_rows(indptr), indices.astype(np.int64)])
    return npz.build_graph(path, name, features, edges, arrays["labels"])


def load_reddit(root: Path) -> Graph:
    """Reads Reddit from the two npz files that PyG and DGL share."""
    members = {REDDIT_DATA: "reddit_data.npz", REDDIT_GRAPH: "reddit_graph.npz"}
    obtain("reddit", root, members)
    data_path, graph_path = (raw_file("reddit", root, path) for path in members)
    data = npz.read_arrays(data_path, ("feature", "label"))
    features = npz.dense_features(data_path, data["feature"], "feature")
    # A SciPy sparse archive; its values are all one and stay unread.
    graph = npz.read_arrays(graph_path, ("row", "col", "shape", "format"))
    kind = graph["format"].tobytes().replace(b"\0", b"").decode("ascii", "replace")
    row, col = graph["row"], graph["col"]
    if kind != "coo" or row.ndim != 1 or row.shape != col.shape:
        raise InputError(
            f"Expected 'row' and 'col' of '{graph_path}' of one length, 'format' coo (got shapes "
            f"{list(row.shape)} and {list(col.shape)}, {kind!r}); download the file again."
        )
    for key in ("row", "col", "shape"):
        npz.check_kind(graph_path, key, graph[key], "iu")
    if graph["shape"].tolist() != [features.shape[0]] * 2:
        raise InputError(
            f"Expected 'shape' of '{graph_path}' to be {features.shape[0]} nodes both ways "
            f"(got {graph['shape'].tolist()}); the two files do not belong together, so "
            "download both again."
        )
    edges = np.stack([row, col], dtype=np.int64)
    return npz.build_graph(graph_path.parent, "reddit", features, edges, data["label"])


def load_arxiv(root: Path) -> Graph:
    """Reads ogbn-arxiv from OGB's csv.gz files; the one that names the classes may be absent."""
    name, needed = "ogbn-arxiv", (ARXIV_EDGES, ARXIV_FEATURES, ARXIV_LABELS)
    members = {path: f"arxiv/{path.partition('/')[2]}" for path in (*needed, ARXIV_CLASSES)}
    obtain(name, root, members)
    edge_path, feature_path, label_path = (raw_file(name, root, path) for path in needed)
    class_path = find_file(root, ARXIV_CLASSES)
    y = read_table(label_path, np.int64, columns=1)
    x = read_table(feature_path, np.float32)
    edges = read_table(edge_path, np.int64, columns=2)
    beside = {} if class_path is None else {"class_names": _read_class_names(class_path)}
    features = npz.dense_features(feature_path, x)
    return npz.build_graph(edge_path.parent, name, features, edges.T, y[:, 0], **beside)


def read_table(path: Path, dtype: type[Any], columns: int | None = None) -> npz.Array:
    """Parses a csv.gz of numbers without a header into ``[rows, columns]``."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file; refused below
            table: npz.Array = np.loadtxt(file, dtype=dtype, delimiter=",", comments=None, ndmin=2)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(
            f"Expected '{path}' to be a gzipped table of {np.dtype(dtype).name} (got "
            f"{npz.brief(error)}); download it again."
        ) from None
    rows, found = table.shape
    if table.size == 0 or columns not in {None, found}:
        raise InputError(
            f"Expected '{path}' with rows of {columns or 'some'} columns (got {rows} of {found}); "
            "download it again."
        )
    return table


def _read_class_names(path: Path) -> npz.Array:
    """Reads rows of ``label idx,arxiv category`` into names in label order."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row][1:]
        names = {int(row[0]): row[1] for row in rows}
        if sorted(names) != list(range(len(names))):
            raise ValueError("gaps between labels")
    except (OSError, EOFError, zlib.error, ValueError, IndexError, csv.Error) as error:
        raise InputError(
            f"Expected '{path}' to be a gzipped table of label and category (got {error}); "
            "download it again or remove it."
        ) from None
    return np.array([names[label] for label in range(len(names))], dtype=np.str_)
