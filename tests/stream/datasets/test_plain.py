import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.stream import Graph, SparseRows
from evergraph.stream.datasets.npz import read_plain, write_plain

GOOD = {
    "x_data": np.array([1, 2, 3, 0.5], dtype=np.float32),
    "x_indices": np.array([0, 2, 1, 0], dtype=np.int32),
    "x_indptr": np.array([0, 2, 2, 3, 4], dtype=np.int32),
    "x_shape": np.array([4, 3]),
    "edge_index": np.array([[1, 1, 2, 3, 2], [0, 2, 1, 3, 3]], dtype=np.int32),
    "y": np.array([0, 0, 1, 1]),
    "class_names": np.array(["cats", "dogs"]),
}


def save(path, **changes):
    arrays = {key: value for key, value in (GOOD | changes).items() if value is not None}
    np.savez(path, **arrays)
    return path


def test_read_plain_cleans_edges_and_keeps_features(tmp_path, small):
    graph = read_plain(save(tmp_path / "mine.npz"))
    assert graph.name == "mine"
    assert graph.class_names == ("cats", "dogs")
    assert graph.edges.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert isinstance(graph.x, SparseRows)
    assert graph.fingerprint == small.fingerprint


def test_read_plain_accepts_dense_features_and_no_names(tmp_path):
    sparse = dict.fromkeys(("x_data", "x_indices", "x_indptr", "x_shape", "class_names"))
    graph = read_plain(save(tmp_path / "a.npz", **sparse, x=np.eye(4, dtype=np.uint8)))
    assert torch.equal(graph.x, torch.eye(4))
    assert graph.class_names == ("0", "1")


def test_read_plain_order_of_columns_in_a_row_does_not_matter(tmp_path, small):
    data, indices = GOOD["x_data"][[1, 0, 2, 3]], GOOD["x_indices"][[1, 0, 2, 3]]
    graph = read_plain(save(tmp_path / "a.npz", x_data=data, x_indices=indices))
    assert graph.fingerprint == small.fingerprint


def test_read_plain_accepts_names_as_bytes(tmp_path):
    graph = read_plain(save(tmp_path / "a.npz", class_names=np.array([b"caf\xc3\xa9", b"b"])))
    assert graph.class_names == ("café", "b")


def test_write_plain_round_trip_is_exact_and_small(tmp_path, small):
    write_plain(small, tmp_path / "a.npz")
    assert read_plain(tmp_path / "a.npz", "small").fingerprint == small.fingerprint
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        assert stored["edge_index"].dtype == np.uint8
        assert stored["x_data"].dtype == np.float32  # 0.5 does not fit an integer


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=6, max_size=6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6),
)
def test_write_plain_round_trip_property(tmp_path_factory, values, pairs):
    path = tmp_path_factory.mktemp("plain") / "a.npz"
    edges = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T
    graph = Graph.build("a", torch.tensor(values).view(3, 2), edges, torch.tensor([0, 1, 0]))
    write_plain(graph, path)
    assert read_plain(path).fingerprint == graph.fingerprint


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": None}, ["'y'", "add the missing array"]),
        ({"edge_index": None}, ["'edge_index'"]),
        ({"x_indptr": None}, ["'x_indptr'", "dense x"]),
        ({"x_data": None, "x_indices": None, "x_indptr": None, "x_shape": None}, ["'x_data'"]),
        ({"x_data": np.ones(3)}, ["'x_data'", "'x_indices'", "[3]"]),
        ({"x_data": np.ones((2, 2))}, ["'x_data'", "[2, 2]"]),
        ({"x_data": np.array(["a"] * 4)}, ["'x_data'", "numbers"]),
        ({"x_data": np.ones(4, dtype=complex)}, ["'x_data'", "complex"]),
        ({"x_data": np.array([1, np.nan, 1, 1])}, ["'x'", "1 NaN"]),
        ({"x_data": np.array([1, 1e300, 1, 1])}, ["'x'", "infinite"]),
        ({"x_data": np.array([{}] * 4)}, ["'x_data'", "Python objects"]),
        ({"x_indices": np.array([0, 3, 1, 0])}, ["'x_indices'", "[0, 2]"]),
        ({"x_indices": np.array([0, -1, 1, 0])}, ["'x_indices'", "-1"]),
        ({"x_indices": np.ones(4)}, ["'x_indices'", "integers"]),
        ({"x_indptr": np.array([0, 2, 1, 3, 4])}, ["'x_indptr'", "fall"]),
        ({"x_indptr": np.array([0, 2, 2, 3, 5])}, ["'x_indptr'", "to 5"]),
        ({"x_indptr": np.array([1, 2, 2, 3, 4])}, ["'x_indptr'", "got 1"]),
        ({"x_indptr": np.array([0, 2, 4])}, ["'x_indptr'", "5 entries"]),
        ({"x_indptr": np.array(0)}, ["'x_indptr'"]),
        ({"x_shape": np.array([10**15, 3])}, ["'x_indptr'", "[5]"]),
        ({"x_shape": np.array([4, 10**12])}, ["'x_shape'", "10000000"]),
        ({"x_shape": np.array([4, 0])}, ["'x_shape'"]),
        ({"x_shape": np.array([4])}, ["'x_shape'", "two numbers"]),
        ({"x_shape": np.array([-1, 3])}, ["'x_shape'"]),
        ({"x": np.ones(4)}, ["'x'", "[n, d]"]),
        ({"x": np.ones((3, 2))}, ["'y'", "3 (got 4)"]),
        ({"y": np.array([0, 0, 1])}, ["'y'", "4 (got 3)"]),
        ({"y": np.array([0, -1, 1, -1])}, ["'y'", "2 of 4 missing"]),
        ({"y": np.array([0, np.nan, 1, 1])}, ["'y'", "1 of 4 missing"]),
        ({"y": np.array([0.0, 0, 1, 1])}, ["'y'", "integers"]),
        ({"y": np.array([[0, 0], [1, 1]])}, ["'y'", "[n]"]),
        ({"y": np.array([0, 0, 1, 2])}, ["'class_names'", "up to 2"]),
        ({"y": np.array([0, 0, 1, 10**12]), "class_names": None}, ["'y'", "1000000000000"]),
        ({"class_names": np.array([0.5, 1.5])}, ["'class_names'", "text"]),
        ({"class_names": np.array(["a", {}], dtype=object)}, ["'class_names'", "Python objects"]),
        ({"edge_index": np.array([[0], [4]])}, ["'edge_index'", "[0, 3]"]),
        ({"edge_index": np.array([[0], [-1]])}, ["'edge_index'", "-1"]),
        ({"edge_index": np.array([[0], [2**64 - 1]], dtype=np.uint64)}, ["'edge_index'"]),
        ({"edge_index": np.array([[0, 1]])}, ["'edge_index'", "[2, E]"]),
        ({"edge_index": np.array([[0.0], [1.0]])}, ["'edge_index'", "integers"]),
        ({"x": np.ones((0, 2)), "y": np.array([], dtype=int)}, ["at least one node"]),
    ],
)
def test_read_plain_refuses_in_one_sentence(tmp_path, changes, words):
    path = save(tmp_path / "bad.npz", **changes)
    with pytest.raises(InputError) as caught:
        read_plain(path)
    message = str(caught.value)
    assert "\n" not in message
    for word in (*words, "bad.npz"):
        assert word in message


@pytest.mark.dataset
def test_read_plain_file_without_features_names_the_key(data_root):
    with pytest.raises(InputError, match="'x_data'"):
        read_plain(data_root / "ogbn-arxiv-graph.npz")
