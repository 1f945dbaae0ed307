import numpy as np
import pytest
import torch

from evergraph.errors import InputError
from evergraph.stream.datasets import load_graph, write_plain
from evergraph.stream.datasets.raw import AMAZON, read_shchur

#: The path 0-1-2-3 with a loop at 3, stored one way.
SHCHUR = {
    "adj_data": np.ones(4, dtype=np.float32),
    "adj_indices": np.array([1, 2, 3, 3], dtype=np.int32),
    "adj_indptr": np.array([0, 1, 2, 3, 4], dtype=np.int32),
    "adj_shape": np.array([4, 4]),
    "attr_data": np.array([1, 2, 3, 0.5], dtype=np.float32),
    "attr_indices": np.array([0, 2, 1, 0], dtype=np.int32),
    "attr_indptr": np.array([0, 2, 2, 3, 4], dtype=np.int32),
    "attr_shape": np.array([4, 3]),
    "labels": np.array([0, 0, 1, 1], dtype=np.int32),
    "class_names": np.array(["a", {}], dtype=object),  # some releases carry such a key
}


def write_raw(path, **changes):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **(SHCHUR | changes))
    return path


@pytest.mark.parametrize("folder", ["", "raw"])
def test_amazon_reads_pygs_raw_file(tmp_path, small, offline, folder):
    write_raw(tmp_path / folder / AMAZON)
    graph = load_graph("amazon-computers", tmp_path)
    assert graph.name == "amazon-computers"
    assert torch.equal(graph.edges, small.edges)
    assert torch.equal(graph.y, small.y)
    assert torch.equal(graph.x.dense(), small.x.dense())
    assert graph.class_names == ("0", "1")
    assert offline == []


def test_amazon_prefers_the_plain_file_and_reads_the_environment(tmp_path, small, monkeypatch):
    write_plain(small, tmp_path / "amazon-computers.npz")
    monkeypatch.setenv("EVERGRAPH_DATA", str(tmp_path))
    assert load_graph("amazon-computers").fingerprint == small.fingerprint


def test_amazon_offline_lists_the_ways_out(tmp_path, offline):
    with pytest.raises(InputError) as caught:
        load_graph("amazon-computers", tmp_path)
    assert offline == ["amazon-computers"]
    for word in (AMAZON, str(tmp_path), "--data-root", "EVERGRAPH_DATA", "online", "resolution"):
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"adj_indptr": np.array([0, 3, 2, 3, 4])}, "'adj_indptr'"),
        ({"adj_indptr": np.array([0, 4])}, "'adj_indptr'"),
        ({"adj_indices": np.array([1, 2, 9, 3])}, "'edge_index'"),
        ({"adj_indices": np.ones((2, 2), dtype=int)}, "'adj_indices'"),
        ({"attr_indices": np.array([0, 2, 3, 0])}, "'x_indices'"),
        ({"attr_shape": np.array([5, 3])}, "'attr_indptr'"),
        ({"labels": np.array([0, 0, 1])}, "'y'"),
    ],
)
def test_read_shchur_refuses_in_one_sentence(tmp_path, changes, key):
    with pytest.raises(InputError, match=key) as caught:
        read_shchur(write_raw(tmp_path / "a.npz", **changes), "a")
    assert "a.npz" in str(caught.value)


@pytest.mark.dataset
def test_amazon_plain_and_raw_files_hold_the_same_graph(data_root):
    graph = load_graph("amazon-computers", data_root)
    assert graph.num_edges == 491722 // 2
    sizes = [436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291]
    assert torch.bincount(graph.y).tolist() == sizes
    raw = read_shchur(data_root / "raw" / AMAZON, "amazon-computers")
    assert raw.fingerprint == graph.fingerprint


@pytest.mark.dataset
def test_amazon_raw_file_parses_as_pyg_does(data_root):
    from torch_geometric.io import read_npz

    theirs = read_npz(str(data_root / "raw" / AMAZON), to_undirected=True)
    ours = read_shchur(data_root / "raw" / AMAZON, "amazon-computers")
    forward = theirs.edge_index[:, theirs.edge_index[0] < theirs.edge_index[1]]
    assert torch.equal(ours.edges, forward)
    assert torch.equal(ours.y, theirs.y)
    assert torch.equal(ours.x.dense(), theirs.x)
