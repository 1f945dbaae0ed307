import io
import zipfile

import numpy as np
import pytest

from evergraph.errors import InputError
from evergraph.stream.datasets import npz
from evergraph.stream.datasets.npz import read_arrays, write_arrays


def test_read_arrays_returns_what_was_written(tmp_path):
    path = tmp_path / "a.npz"
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.array(["x", "yy"]), "c": np.zeros((0, 2))}
    write_arrays(path, arrays)
    found = read_arrays(path, ("a", "b"), ("c", "absent"))
    assert list(found) == ["a", "b", "c"]
    for key, array in arrays.items():
        np.testing.assert_array_equal(found[key], array)


def test_read_arrays_reads_numpys_own_files(tmp_path):
    np.savez(tmp_path / "stored.npz", a=np.arange(3))
    np.savez_compressed(tmp_path / "deflated.npz", a=np.asfortranarray(np.eye(3)))
    assert read_arrays(tmp_path / "stored.npz", ("a",))["a"].tolist() == [0, 1, 2]
    assert read_arrays(tmp_path / "deflated.npz", ("a",))["a"].trace() == 3


def test_write_arrays_twice_gives_the_same_bytes_and_leaves_nothing_else(tmp_path):
    for name in ("one.npz", "two.npz"):
        write_arrays(tmp_path / name, {"a": np.arange(100)})
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_write_arrays_that_fails_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.npz"
    write_arrays(path, {"a": np.arange(3)})
    with pytest.raises(ValueError, match="pickle"):
        write_arrays(path, {"a": np.array([object()])})
    assert read_arrays(path, ("a",))["a"].tolist() == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 1


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
    write_arrays(path, {"a": np.random.default_rng(0).random(1000)})
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="truncated"):
        read_arrays(path, ("a",))


def test_read_arrays_flipped_byte_anywhere_is_an_input_error_or_harmless(tmp_path):
    path = tmp_path / "a.npz"
    array = np.random.default_rng(0).integers(0, 9, 40)
    write_arrays(path, {"a": array})
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0xFF]) + good[position + 1 :])
        try:
            found = read_arrays(path, ("a",))["a"]
        except InputError:
            continue
        np.testing.assert_array_equal(found, array)  # a byte without meaning: a time stamp


def test_read_arrays_missing_key_lists_what_is_there(tmp_path):
    write_arrays(tmp_path / "a.npz", {"b": np.arange(3)})
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
    monkeypatch.setattr(npz, "LARGE_BYTES", 7_000_000)
    with pytest.raises(InputError, match=r"at most 500 times .* \(got 8\.0 MB.*'x'.* x_data"):
        read_arrays(path, ("x",))
    np.savez_compressed(path, x=np.random.default_rng(0).integers(0, 9, (1000, 2000)))
    assert read_arrays(path, ("x",))["x"].shape == (1000, 2000)
