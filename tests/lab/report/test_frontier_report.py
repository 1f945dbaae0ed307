"""The frontier's picture: a figure that is the same twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evergraph.errors import InputError
from evergraph.lab.paper.frontier import Point, mark_frontiers
from evergraph.lab.report.experiment_figures import save_figure
from evergraph.lab.report.frontier_figure import draw_frontier

POINTS = mark_frontiers(
    [
        Point("cora", "analytic", "analytic", 89.5, 1.2, 18_000_000, 1.3),
        Point("cora", "analytic-rank-4", "analytic", 85.5, 1.2, 90_000, 1.1),
        Point("cora", "dslr", "dslr", 84.5, 1.2, 21_000, 30.0),
        Point("cora", "joint", "joint", 88.5, 1.7, 0, 25.0, reference=True),
        Point("cora", "finetune", "finetune", 32.0, 0.4, 0, 24.0),
        Point("citeseer", "analytic", "analytic", 79.5, None, 18_000_000, 1.3),
    ]
)


def pictures_in(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    paths = save_figure(draw_frontier(POINTS), folder, "frontier")
    return {path.suffix[1:]: path.read_bytes() for path in paths}


def test_frontier_figure_names_everyone_and_is_the_same_twice(tmp_path: Path):
    pictures = pictures_in(tmp_path / "first")
    assert pictures["png"].startswith(b"\x89PNG")
    text = pictures["svg"].decode()
    for word in (
        "analytic-rank-4",
        "dslr",
        "joint (reads all old labels)",
        "finetune 32",
        "citeseer",
    ):
        assert f"<!-- {word}" in text or word in text
    assert pictures_in(tmp_path / "second") == pictures


def test_frontier_figure_says_how_to_get_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'evergraph\[report\]'"):
        draw_frontier(POINTS)
