import socket
import zipfile
from pathlib import Path

import pytest

from evergraph.errors import InputError
from evergraph.stream.datasets import download


def test_data_folder_prefers_argument_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("EVERGRAPH_DATA", "/somewhere")
    assert download.data_folder(tmp_path) == tmp_path
    assert download.data_folder(None) == Path("/somewhere")
    monkeypatch.delenv("EVERGRAPH_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.data_folder(None) == tmp_path / ".cache" / "evergraph"


def arrives(monkeypatch, content):
    def fetch(dataset, folder):
        (folder / "a.zip").write_bytes(content)
        return folder / "a.zip"

    monkeypatch.setattr(download, "fetch", fetch)


def test_obtain_moves_the_file_itself(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
        archive.writestr("a", "b")
    content = (tmp_path / "made.zip").read_bytes()
    arrives(monkeypatch, content)
    download.obtain("x", tmp_path / "root", "deep/file.npz")
    assert (tmp_path / "root/deep/file.npz").read_bytes() == content


@pytest.mark.parametrize("content", [b"<html>", b""])
def test_obtain_refuses_what_is_not_an_archive(tmp_path, monkeypatch, content):
    arrives(monkeypatch, content)
    with pytest.raises(InputError, match="incomplete or another file"):
        download.obtain("x", tmp_path, "file.npz")
    assert list(tmp_path.iterdir()) == []


def test_obtain_archive_without_a_member_leaves_nothing(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
        archive.writestr("one", "1")
    arrives(monkeypatch, (tmp_path / "made.zip").read_bytes())
    with pytest.raises(InputError, match="two"):
        download.obtain("x", tmp_path / "root", {"one": "one", "two": "two"})
    assert list((tmp_path / "root").iterdir()) == []


def test_obtain_folder_that_cannot_be_made(tmp_path, offline):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="--data-root"):
        download.obtain("x", tmp_path / "file", "a")
    assert offline == []


def test_obtain_restores_the_socket_timeout(tmp_path, offline):
    before = socket.getdefaulttimeout()
    with pytest.raises(InputError):
        download.obtain("x", tmp_path, "a")
    assert socket.getdefaulttimeout() == before


@pytest.mark.parametrize("dataset", ["amazon-computers", "reddit"])
def test_fetch_asks_pyg_for_its_own_address(dataset, tmp_path, monkeypatch):
    import torch_geometric.data

    asked = []

    def fake(url, folder):
        asked.append(url)
        return f"{folder}/a"

    monkeypatch.setattr(torch_geometric.data, "download_url", fake)
    assert download.fetch(dataset, tmp_path) == tmp_path / "a"
    assert asked[0].endswith({"amazon-computers": "computers.npz", "reddit": "reddit.zip"}[dataset])
