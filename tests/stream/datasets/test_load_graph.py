import pytest

from evergraph.errors import InputError
from evergraph.stream.datasets import DATASETS, load_graph, write_plain
from evergraph.stream.protocol import DSLR_PROTOCOLS


def test_datasets_are_complete():
    assert set(DSLR_PROTOCOLS) < set(DATASETS)
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
