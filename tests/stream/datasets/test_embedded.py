import importlib.util
import os
import pickle
from pathlib import Path

import pytest
import torch

from evergraph.stream import SparseRows
from evergraph.stream.datasets import load_graph, read_plain

SIZES = {
    "cora": [298, 418, 818, 426, 217, 180, 351],
    "citeseer": [249, 596, 701, 508, 668, 590],
}
EDGES = {"cora": 5278, "citeseer": 4536}
COLUMNS = {"cora": 1433, "citeseer": 3703}
NONZEROS = {"cora": 49216, "citeseer": 105165}


@pytest.mark.parametrize("name", SIZES)
def test_embedded_graph_has_the_known_sizes(name, monkeypatch, offline):
    monkeypatch.delenv("EVERGRAPH_DATA", raising=False)
    graph = load_graph(name)
    assert graph.name == name
    assert torch.bincount(graph.y).tolist() == SIZES[name]
    assert graph.num_edges == EDGES[name]
    assert graph.num_features == COLUMNS[name]
    assert isinstance(graph.x, SparseRows)
    assert graph.x.values.unique().tolist() == [1.0]
    assert graph.x.values.numel() == NONZEROS[name]
    assert list(graph.class_names) == sorted(graph.class_names, key=str.encode)
    assert offline == []


def test_embedded_graphs_are_small():
    folder = Path(importlib.util.find_spec("evergraph.stream.datasets").origin).parent / "data"
    assert sum(path.stat().st_size for path in folder.glob("*.npz")) < 500_000


@pytest.mark.dataset
@pytest.mark.parametrize("name", SIZES)
def test_embedded_graph_equals_the_reference_file(name, data_root):
    graph, reference = load_graph(name), read_plain(data_root / f"{name}.npz", name)
    assert torch.equal(torch.bincount(graph.y), torch.bincount(reference.y))
    assert graph.class_names == reference.class_names
    assert graph.num_edges == reference.num_edges
    assert graph.x.values.numel() == reference.x.values.numel()
    # Citeseer's nodes come in another order: compare what does not depend on it.
    assert node_signatures(graph) == node_signatures(reference)


@pytest.mark.dataset
def test_embedded_cora_is_the_reference_file_to_the_bit(data_root):
    assert load_graph("cora").fingerprint == read_plain(data_root / "cora.npz").fingerprint


def node_signatures(graph):
    """Lists (label, degree, words) of all nodes, sorted."""
    degree = torch.bincount(graph.edges.flatten(), minlength=graph.num_nodes).tolist()
    words = [sorted(part.tolist()) for part in graph.x.indices.tensor_split(graph.x.indptr[1:-1])]
    return sorted(zip(graph.y.tolist(), degree, words, strict=True))


def test_make_embedded_unpickler_refuses_anything_but_arrays():
    script = Path(__file__).parents[3] / "scripts" / "make_embedded.py"
    spec = importlib.util.spec_from_file_location("make_embedded", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import io

    with pytest.raises(pickle.UnpicklingError, match="refused"):
        module.ArrayUnpickler(io.BytesIO(pickle.dumps(os.system))).load()
