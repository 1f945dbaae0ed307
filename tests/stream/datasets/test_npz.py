"""Archives of arrays, and graphs in the plain npz format."""

import io
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph import files
from evergraph.errors import InputError
from evergraph.stream import Graph, SparseRows
from evergraph.stream.datasets import npz
from evergraph.stream.datasets.npz import read_arrays, read_plain, write_plain


def test_read_arrays_returns_what_was_written(tmp_path):
    path = tmp_path / "a.npz"
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.array(["x", "yy"]), "c": np.zeros((0, 2))}
    np.savez_compressed(path, **arrays)
    found = read_arrays(path, ("a", "b"), ("c", "absent"))
    assert list(found) == ["a", "b", "c"]
    for key, array in arrays.items():
        np.testing.assert_array_equal(found[key], array)


def test_read_arrays_reads_numpys_own_files(tmp_path):
    np.savez(tmp_path / "stored.npz", a=np.arange(3))
    np.savez_compressed(tmp_path / "deflated.npz", a=np.asfortranarray(np.eye(3)))
    assert read_arrays(tmp_path / "stored.npz", ("a",))["a"].tolist() == [0, 1, 2]
    assert read_arrays(tmp_path / "deflated.npz", ("a",))["a"].trace() == 3


def test_read_arrays_absent_file(tmp_path):
    with pytest.raises(InputError, match=r"Expected a file at '.*nothing\.npz'"):
        read_arrays(tmp_path / "nothing.npz", ("a",))


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY\x01\x00", b"\x80\x04K\x01."])
def test_read_arrays_other_kinds_of_files(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.npz' to be an npz archive"):
        read_arrays(path, ("a",))


def test_read_arrays_truncated_file(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **{"a": np.random.default_rng(0).random(1000)})
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="truncated"):
        read_arrays(path, ("a",))


def test_read_arrays_flipped_byte_anywhere_is_an_input_error_or_harmless(tmp_path):
    path = tmp_path / "a.npz"
    array = np.random.default_rng(0).integers(0, 9, 40)
    np.savez_compressed(path, **{"a": array})
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0xFF]) + good[position + 1 :])
        try:
            found = read_arrays(path, ("a",))["a"]
        except InputError:
            continue
        np.testing.assert_array_equal(found, array)  # a byte without meaning: a time stamp


def test_read_arrays_missing_key_lists_what_is_there(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", **{"b": np.arange(3)})
    with pytest.raises(InputError, match=r"Expected 'a' in .*only b"):
        read_arrays(tmp_path / "a.npz", ("a",))


def test_read_arrays_refuses_objects_but_only_under_wanted_keys(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.arange(2), b=np.array([{}], dtype=object))
    assert read_arrays(path, ("a",))["a"].tolist() == [0, 1]
    with pytest.raises(InputError, match=r"'b' of .* Python objects"):
        read_arrays(path, ("a", "b"))


def test_read_arrays_refuses_a_declared_size_before_allocating(tmp_path):
    path = tmp_path / "bomb.npz"
    header = io.BytesIO()
    declared = {"descr": "<f8", "fortran_order": False, "shape": (1 << 60,)}
    np.lib.format.write_array_header_1_0(header, declared)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", header.getvalue() + bytes(64))
    with pytest.raises(InputError, match=r"'a' of .* declares shape"):
        read_arrays(path, ("a",))


def test_read_arrays_refuses_more_than_a_share_of_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros((1000, 2000), dtype=np.uint8), y=np.arange(1000))
    monkeypatch.setattr(npz, "physical_memory", lambda: 30_000_000)
    monkeypatch.setattr(np.lib.format, "read_array", None)  # nothing may be unpacked
    with pytest.raises(InputError) as caught:
        read_arrays(path, ("x", "y"))
    assert str(caught.value) == (
        f"Expected the arrays of '{path}' to take at most 7.5 MB, a quarter of this machine's "
        "memory (got 8.0 MB, 8.0 MB of it declared by 'x'); store features that are mostly zeros "
        "as x_data, x_indices, x_indptr, x_shape, or take a machine with more memory."
    )
    monkeypatch.undo()
    monkeypatch.setattr(npz, "physical_memory", lambda: 33_000_000)
    assert read_arrays(path, ("x", "y"))["x"].shape == (1000, 2000)
    monkeypatch.setattr(npz, "physical_memory", lambda: 100_000)
    assert read_arrays(path, ("y",))["y"].size == 1000  # the others are not asked for


def test_read_arrays_refuses_large_arrays_that_are_all_but_empty(tmp_path, monkeypatch):
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros((1000, 2000), dtype=np.uint8))
    monkeypatch.setattr(npz, "EMPTY_BYTES", 7_000_000)
    with pytest.raises(InputError, match=r"at most 7\.0 MB when .* \(got 8\.0 MB.*'x'.* x_data"):
        read_arrays(path, ("x",))
    x = np.random.default_rng(0).random((1000, 2000)) < 0.002  # sparse, not empty
    np.savez_compressed(path, x=x)
    assert read_arrays(path, ("x",))["x"].shape == (1000, 2000)


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


def test_read_plain_accepts_whole_labels_of_any_type(tmp_path):
    expected = read_plain(save(tmp_path / "a.npz")).y
    path = save(tmp_path / "b.npz", y=expected.double().numpy()[:, None])
    assert torch.equal(read_plain(path).y, expected)


def test_read_plain_accepts_names_as_bytes(tmp_path):
    graph = read_plain(save(tmp_path / "a.npz", class_names=np.array([b"caf\xc3\xa9", b"b"])))
    assert graph.class_names == ("café", "b")


def test_write_plain_round_trip_is_exact_and_small(tmp_path, small):
    write_plain(small, tmp_path / "a.npz")
    assert read_plain(tmp_path / "a.npz", "small").fingerprint == small.fingerprint
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        assert stored["edge_index"].dtype == np.uint8
        assert stored["x_data"].dtype == np.float32  # 0.5 does not fit an integer


def test_write_plain_twice_gives_the_same_bytes_and_leaves_nothing_else(tmp_path, small):
    for name in ("one.npz", "two.npz"):
        write_plain(small, tmp_path / "new" / name)
    one, two = ((tmp_path / "new" / name).read_bytes() for name in ("one.npz", "two.npz"))
    assert one == two
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_write_plain_that_fails_keeps_the_old_file(tmp_path, small, monkeypatch):
    path = tmp_path / "a.npz"
    write_plain(small, path)

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_synced", full)
    with pytest.raises(InputError, match="No space left"):
        write_plain(small, path)
    assert read_plain(path).fingerprint == small.fingerprint
    assert len(list(tmp_path.iterdir())) == 1


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
        ({"x_indptr": np.array([0, 2, 2, 3, 5])}, ["'x_indptr'", "to [5]"]),
        ({"x_indptr": np.array([1, 2, 2, 3, 4])}, ["'x_indptr'", "from [1]"]),
        ({"x_indptr": np.array([0, 2, 4])}, ["'x_indptr'", "5 entries"]),
        ({"x_indptr": np.array(0)}, ["'x_indptr'"]),
        ({"x_shape": np.array([10**15, 3])}, ["'x_indptr'", "got 5"]),
        ({"x_shape": np.array([4, 10**12])}, ["'x_shape'", "10000000"]),
        ({"x_shape": np.array([4, 0])}, ["'x_shape'"]),
        ({"x_shape": np.array([4])}, ["'x_shape'", "two numbers"]),
        ({"x_shape": np.array([-1, 3])}, ["'x_shape'"]),
        ({"x": np.ones(4)}, ["'x'", "[n, d]"]),
        ({"x": np.ones((3, 2))}, ["'y'", "3 (got 4)"]),
        ({"y": np.array([0, 0, 1])}, ["'y'", "4 (got 3)"]),
        ({"y": np.array([0, -1, 1, -1])}, ["'y'", "2 of 4 missing"]),
        ({"y": np.array([0, np.nan, 1, 1])}, ["'y'", "1 of 4 missing"]),
        ({"y": np.array([0.5, 0, 1, 1])}, ["'y'", "whole numbers"]),
        ({"y": np.array([[0, 0], [1, 1]])}, ["'y'", "4 (got 2 × 2)"]),
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
