"""Files from anyone: what is read, what is refused, on systems with and without its flags."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from evergraph.files import (
    physical_memory,
    read_json,
    read_regular,
    replacing,
    sync_folder,
    write_atomic,
)


@pytest.fixture(params=["all flags", "no flags"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system as it is, then one that knows no flag beyond reading."""
    if request.param == "no flags":
        for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOFOLLOW"):
            monkeypatch.delattr(os, name)


@pytest.mark.usefixtures("system")
def test_read_regular_follows_no_link_below_its_root(tmp_path: Path):
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "file").write_bytes(b"content")
    assert read_regular(root / "inner" / "file", root) == b"content"
    (root / "link").symlink_to(root / "inner" / "file")
    (root / "folder").symlink_to(root / "inner")
    for path in (root / "link", root / "folder" / "file"):
        with pytest.raises(OSError, match="link"):
            read_regular(path, root)
        assert read_regular(path) == b"content"  # without a root links are followed
    with pytest.raises(OSError, match=r"(?i)regular|directory"):
        read_regular(root / "inner", root)


def test_write_atomic_leaves_nothing_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_atomic(tmp_path / "a.json", b"1")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", None)  # a folder cannot be opened there
    sync_folder(tmp_path)
    write_atomic(tmp_path / "a.json", b"2")
    monkeypatch.undo()
    assert read_json(tmp_path / "a.json") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_physical_memory_is_that_of_a_machine():
    assert 2**28 < physical_memory() < 2**50


def test_replacing_leaves_the_folder_and_nothing_beside_when_it_fails(tmp_path: Path):
    old = tmp_path / "run"
    old.mkdir()

    def fail() -> None:
        with replacing(old) as beside:
            beside.mkdir()
            raise RuntimeError("no space")

    with pytest.raises(RuntimeError, match="no space"):
        fail()
    assert list(tmp_path.iterdir()) == [old]
