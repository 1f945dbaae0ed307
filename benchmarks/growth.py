"""Graphs that grow: accuracy on what is new, seconds and memory, release by release.

    python benchmarks/growth.py --only packages
    python benchmarks/growth.py --only wide --method analytic --set memory=32MB

``packages`` is the graph of a Linux distribution (``ubuntu-packages.npz`` below the data folder),
fed release by release with names as ids; 70 % of the labels are learned, 30 % judge. ``wide`` is
generated: 18,000 nodes, 6,800 sparse features, 15 classes in five tasks. Prints a line of JSON per
release and one for all.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse

from evergraph import ContinualNodeClassifier
from evergraph.config import parse_settings

Array = np.ndarray[Any, np.dtype[Any]]


class Growing(NamedTuple):
    """A graph whose nodes are in order of arrival."""

    x: sparse.csr_matrix
    edges: Array  # [2, E]
    y: Array  # class names, [n]
    names: Array  # ids, [n]
    time: Array  # [n], ascending
    edge_time: Array  # [E]


def packages() -> Growing:
    """The real one; its features are projected by nobody but the method."""
    file = Path(os.environ.get("EVERGRAPH_DATA", "data")) / "ubuntu-packages.npz"
    with np.load(file, allow_pickle=False) as z:
        parts = (z["x_data"], z["x_indices"], z["x_indptr"])
        x = sparse.csr_matrix(parts, shape=tuple(z["x_shape"]))
        classes = z["class_names"][z["y"]]
        return Growing(x, z["edge_index"], classes, z["names"], z["time"], z["edge_time"])


def wide(nodes: int = 18_000, features: int = 6_800, classes: int = 15) -> Growing:
    """Thirty words a node, drawn by class; neighbours mostly alike; three classes a task."""
    rng = np.random.default_rng(0)
    y = np.arange(nodes) * classes // nodes
    common = rng.dirichlet(np.full(features, 0.3))
    own = rng.dirichlet(np.full(features, 0.05), classes)
    words = [rng.choice(features, (nodes // classes, 30), p=(12 * common + p) / 13) for p in own]
    columns = np.concatenate(words).ravel()
    rows = np.repeat(np.arange(nodes), 30)
    x = sparse.csr_matrix((np.ones(columns.size), (rows, columns)), shape=(nodes, features))
    ends = rng.integers(nodes, size=(2, 5 * nodes))
    same = rng.random(ends.shape[1]) < 0.7
    each = nodes // classes
    ends[1, same] = ends[0, same] // each * each + ends[1, same] % each
    when = y // (classes // 5)
    names = np.array([f"n{node}" for node in range(nodes)])
    return Growing(x, ends, np.char.add("c", y.astype(str)), names, when, when[ends].max(axis=0))


GRAPHS: dict[str, Callable[[], Growing]] = {"packages": packages, "wide": wide}


def measure(
    graph: Growing, method: str, settings: dict[str, Any], seed: int, device: str = "cpu"
) -> Iterator[dict[str, Any]]:
    """Feeds a graph release by release, saves it, and judges each release's new nodes and all."""
    judges = np.random.default_rng(seed).random(len(graph.y)) < 0.3
    clf = ContinualNodeClassifier(method, settings=settings, validation_fraction=0, device=device)
    right, begin = np.zeros(0, dtype=bool), time.perf_counter()
    for release in range(int(graph.time.max()) + 1):
        new = graph.time == release
        edges = graph.edges[:, graph.edge_time == release]
        labels = [
            None if j else str(name) for name, j in zip(graph.y[new], judges[new], strict=True)
        ]
        started, spent = time.perf_counter(), time.process_time()
        pairs = list(zip(*graph.names[edges].tolist(), strict=True))
        clf.learn(graph.names[new].tolist(), graph.x[new], pairs, labels)
        right = clf.predict() == graph.y[: len(clf.ids_)]
        seen = slice(0, right.size)
        entry = clf.history_[-1]
        yield {
            "release": release + 1,
            "nodes": right.size,
            "new": percent(right[judges[seen] & new[seen]]),
            "all": percent(right[judges[seen]]),
            "seconds": round(time.perf_counter() - started, 1),
            "cpu_s": round(time.process_time() - spent, 1),
            "kept_mb": round(entry["memory_bytes"] / 1e6, 1),
            "chosen": {k: v for k, v in entry["report"].items() if not k.endswith("_losses")},
        }
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        clf.save(folder)
        saved_s = time.perf_counter() - started
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    total = {
        "total_s": time.perf_counter() - begin,
        "save_s": saved_s,
        "stored_mb": stored / 1e6,
        "cpu_s": time.process_time(),
        "peak_gb": peak_gb(),
    }
    yield {name: round(value, 2) for name, value in total.items()}


def percent(right: Array) -> float:
    return round(100 * float(right.mean()), 2)


def peak_gb() -> float:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(GRAPHS), required=True)
    parser.add_argument("--method", default="analytic")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="key=value of the method")
    parser.add_argument("--seed", type=int, default=0, help="of the nodes that judge")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    settings = parse_settings(options.set)
    for row in measure(
        GRAPHS[options.only](), options.method, settings, options.seed, options.device
    ):
        print(json.dumps(row), flush=True)
        rows.append(row)
    later = [row["new"] for row in rows[1:-1]]
    print(json.dumps({"benchmark": f"growth:{options.only}", "mean_new": np.mean(later).round(2)}))


if __name__ == "__main__":
    main()
