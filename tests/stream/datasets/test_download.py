import runpy
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from evergraph.errors import InputError
from evergraph.stream.datasets import download, load_graph


def test_data_folder_prefers_argument_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("EVERGRAPH_DATA", "/somewhere")
    assert download.data_folder(tmp_path) == tmp_path
    assert download.data_folder(None) == Path("/somewhere")
    monkeypatch.delenv("EVERGRAPH_DATA")
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path))
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
    download.obtain("x", tmp_path / "root", {"deep/file.npz": None})
    assert (tmp_path / "root/deep/file.npz").read_bytes() == content


@pytest.mark.parametrize("content", [b"<html>", b""])
def test_obtain_refuses_what_is_not_an_archive(tmp_path, monkeypatch, content):
    arrives(monkeypatch, content)
    with pytest.raises(InputError, match="incomplete or another file"):
        download.obtain("x", tmp_path, {"file.npz": None})
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
        download.obtain("x", tmp_path / "file", {"a": None})
    assert offline == []


def test_obtain_restores_the_socket_timeout(tmp_path, offline):
    before = socket.getdefaulttimeout()
    with pytest.raises(InputError):
        download.obtain("x", tmp_path, {"a": None})
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


def hide(package, monkeypatch):
    """Makes every import from a package fail, as it does where it is not installed."""
    for name in [package, *sys.modules]:
        if name.partition(".")[0] == package:
            monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("dataset", "package", "extra"),
    [
        ("amazon-computers", "torch_geometric", "pyg"),
        ("reddit", "torch_geometric", "pyg"),
        ("ogbn-arxiv", "ogb", "ogb"),
    ],
)
def test_download_without_the_package_names_the_extra(
    dataset, package, extra, tmp_path, monkeypatch
):
    hide(package, monkeypatch)
    expected = rf"Expected the package '{package}' to download .*'evergraph\[{extra}\]'"
    with pytest.raises(InputError, match=expected):
        load_graph(dataset, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_import_asks_for_no_torch_geometric():
    code = "import sys; import evergraph.stream.datasets, evergraph.estimator, evergraph.lab.cli; "
    code += "sys.exit('torch_geometric' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_example_without_torch_geometric_names_the_extra(monkeypatch):
    hide("torch_geometric", monkeypatch)
    example = Path(__file__).parents[3] / "examples" / "from_pyg.py"
    with pytest.raises(SystemExit, match=r"install evergraph\[pyg\]"):
        runpy.run_path(str(example))
