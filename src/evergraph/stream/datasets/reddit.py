"""Reddit: the raw npz files that PyG and DGL share."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evergraph.errors import InputError
from evergraph.stream.datasets import download
from evergraph.stream.datasets.npz import build_graph, check_kind, dense_features, read_arrays
from evergraph.stream.graph import Graph

NAME = "reddit"
DATA = "Reddit/raw/reddit_data.npz"
GRAPH = "Reddit/raw/reddit_graph.npz"


def load_reddit(root: Path) -> Graph:
    """Reads posts and the graph among them, after PyG's download if they are absent."""
    data_path, graph_path = (download.find_file(root, path) for path in (DATA, GRAPH))
    if data_path is None or graph_path is None:
        download.obtain(NAME, root, {"reddit_data.npz": DATA, "reddit_graph.npz": GRAPH})
        data_path, graph_path = root / DATA, root / GRAPH
    data = read_arrays(data_path, ("feature", "label"))
    features = dense_features(data_path, data["feature"], "feature")
    # A SciPy sparse archive; its values are all one and stay unread.
    graph = read_arrays(graph_path, ("row", "col", "shape", "format"))
    kind = graph["format"].tobytes().replace(b"\0", b"").decode("ascii", "replace")
    if kind != "coo":
        raise InputError(
            f"Expected 'format' of '{graph_path}' to be coo (got {kind!r}); convert the matrix "
            "with tocoo() or download the file again."
        )
    row, col = graph["row"], graph["col"]
    for key in ("row", "col", "shape"):
        check_kind(graph_path, key, graph[key], "iu")
    if row.ndim != 1 or row.shape != col.shape:
        raise InputError(
            f"Expected 'row' and 'col' of '{graph_path}' of one equal length (got shapes "
            f"{list(row.shape)} and {list(col.shape)}); download the file again."
        )
    if graph["shape"].tolist() != [features.shape[0]] * 2:
        raise InputError(
            f"Expected 'shape' of '{graph_path}' to be {features.shape[0]} nodes both ways "
            f"(got {graph['shape'].tolist()}); the two files do not belong together, so "
            "download both again."
        )
    edge_index = np.empty((2, row.size), dtype=np.int64)
    edge_index[0], edge_index[1] = row, col
    return build_graph(graph_path.parent, NAME, features, edge_index, data["label"])
