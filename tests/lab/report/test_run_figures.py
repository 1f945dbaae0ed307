"""Figures for papers: every one that there is data for, with its words in it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evergraph.errors import InputError
from evergraph.lab.page.data import page_data
from evergraph.lab.report.run_figures import check_formats, write_figures
from made_runs import make_grid, make_run, planted_samples
from support import Command

METHODS = ("dslr", "dslr:buffer_size=50@dslr-50", "joint")


def test_figures_of_a_grid(tmp_path: Path, command: Command):
    make_grid(tmp_path / "grid", METHODS, 2, diagnostics=planted_samples())
    answer = command("report", tmp_path / "grid", "--figures", tmp_path / "f", "--format", "svg")
    assert answer.code == 0
    files = {path.name: path.read_text() for path in (tmp_path / "f").iterdir()}
    kinds = ("ablation", "edges", "embedding", "matrices", "sizes", "stages", "time")
    assert sorted(files) == [f"cora-{kind}.svg" for kind in kinds]
    for kind in ("ablation", "matrices", "time", "stages"):
        assert all(name in files[f"cora-{kind}.svg"] for name in ("dslr-50", "joint"))
    # The mean of 80 and 82 with the wobble of make_grid: 80 and 82.
    assert "81.0" in files["cora-matrices.svg"]
    assert "paper" in files["cora-ablation.svg"]
    assert "node 7, alpha" in files["cora-edges.svg"]
    assert "gamma" in files["cora-embedding.svg"]


def test_figures_are_the_same_for_the_same_runs(tmp_path: Path):
    make_grid(tmp_path / "grid", METHODS, 2)
    data = page_data(tmp_path / "grid")
    for name in ("a", "b"):
        write_figures(data, tmp_path / name, ["svg"])
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize(("ending", "magic"), [("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_figures_of_one_run_in_other_formats(tmp_path: Path, ending: str, magic: bytes):
    make_run(tmp_path / "run")
    written = write_figures(page_data(tmp_path), tmp_path / "f", [ending])
    assert {path.name for path in written} == {
        f"cora-{kind}.{ending}" for kind in ("ablation", "matrices", "stages", "time")
    }
    assert all(path.read_bytes().startswith(magic) for path in written)


def test_check_formats_wants_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert check_formats(None, None) == ["pdf"]
    assert check_formats(["png"], tmp_path) == ["png"]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"matplotlib .*evergraph\[report\]"):
        check_formats(None, tmp_path)
