"""Datasets by name: embedded, generated or from a path."""

import importlib.util
import os
import pickle
from pathlib import Path

import pytest
import torch

from evergraph.errors import InputError
from evergraph.stream import SparseRows
from evergraph.stream.datasets import DATASETS, load_graph, read_plain, write_plain
from evergraph.stream.protocol import PROTOCOLS


def test_datasets_are_complete():
    assert set(PROTOCOLS) < set(DATASETS)
    for name, info in DATASETS.items():
        assert info.name == name
        assert min(info.nodes, info.edges, info.features, info.classes) > 0
        assert all((info.description, info.origin, info.obtained))


def test_load_graph_synthetic_takes_options():
    assert load_graph("synthetic", options={"nodes": 50, "mean_degree": 2}).num_nodes == 50


def test_load_graph_synthetic_has_the_size_it_shows():
    graph, info = load_graph("synthetic"), DATASETS["synthetic"]
    sizes = (graph.num_nodes, graph.num_edges, graph.num_features, len(graph.class_names))
    assert sizes == (info.nodes, info.edges, info.features, info.classes)


def test_load_graph_other_datasets_reject_options():
    with pytest.raises(InputError, match=r"no options for dataset 'cora' \(got nodes\)"):
        load_graph("cora", options={"nodes": 3})


def test_load_graph_unknown_name_suggests_the_nearest():
    with pytest.raises(InputError, match=r"Unknown dataset 'coraa': did you mean 'cora'\?"):
        load_graph("coraa")


def test_load_graph_reads_paths(tmp_path, small, monkeypatch):
    write_plain(small, tmp_path / "mine.npz")
    (tmp_path / "mine.npz").rename(tmp_path / "mine")
    write_plain(small, tmp_path / "mine.npz")
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "mine.npz", "./mine.npz", str(tmp_path / "mine")):
        assert load_graph(name).fingerprint == small.fingerprint


def test_load_graph_name_of_a_dataset_beats_a_file(tmp_path, monkeypatch):
    (tmp_path / "cora").write_text("")
    monkeypatch.chdir(tmp_path)
    assert load_graph("cora").num_nodes == 2708


@pytest.mark.parametrize("name", ["absent.npz", "folder/absent", "."])
def test_load_graph_absent_path(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"file|Unknown"):
        load_graph(name)


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


@pytest.mark.parametrize("name", ["a" * 300, "~nobody-of-this-name/graph.npz"])
def test_load_graph_name_that_no_file_can_have_is_one_sentence(name):
    with pytest.raises(InputError):
        load_graph(name)


def test_load_graph_data_root_of_an_unknown_user_is_one_sentence(offline):
    with pytest.raises(InputError, match="ubuntu-packages"):
        load_graph("ubuntu-packages", Path("~nobody-of-this-name"))
