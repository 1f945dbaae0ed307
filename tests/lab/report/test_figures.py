"""Figures of experiments: what their axes say, and that they are the same twice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.errors import InputError
from evergraph.lab.paper.contrasts import Table
from evergraph.lab.paper.experiments import EXPERIMENTS, Facts
from evergraph.lab.paper.outcome import judged
from evergraph.lab.report.figures import draw, on_frontier, write_figure
from made_runs import table_rows

FACTS = Facts("cora", 1770, 3, 6, 2)


def panels(name: str):
    """Draws an experiment whose every value is measured."""
    experiment = EXPERIMENTS[name]
    rows = experiment.rows(FACTS)
    values = {
        (row.name, metric.key): np.array([place + 60.0, place + 61.0])
        for place, row in enumerate(rows)
        for metric in experiment.metrics
    }
    keys = [metric.key for metric in experiment.metrics]
    measured = table_rows(Table("cora", rows, [0, 1], values, {}), keys)
    outcome = {"experiment": name, "rows": measured, "overlaps": {"cora": 0.0}}
    figure = draw(judged(outcome))
    assert figure is not None
    return figure.axes


def test_a_series_with_its_own_panel_names_its_axis_and_its_values():
    axes = {axis.get_title(): axis for axis in panels("sensitivity")}
    assert len(axes) == 8
    panel = axes["cora: PM ↑ over τ"]
    assert panel.get_xlabel() == "τ"
    ticks = [tick.get_text() for tick in panel.get_xticklabels()]
    assert ticks == ["0.75", "0.8", "0.85", "0.9", "0.95"]
    assert panel.get_legend() is None


def test_series_that_share_a_panel_are_told_apart():
    for axis in panels("buffer-size"):
        assert axis.get_xlabel() == "buffer, % of training nodes"
        names = [text.get_text() for text in axis.get_legend().get_texts()]
        assert names == ["continual-gnn", "er-gnn", "dslr"]


def test_points_share_one_key_and_far_values_a_log_scale():
    axes = panels("training-time")
    assert [axis.get_xscale() for axis in axes] == ["log", "log"]  # the paper's reach 110
    assert [text.get_text() for text in axes[0].get_yticklabels()][-1] == "dslr"
    (key,) = axes[0].figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["paper", "measured, ± std"]
    assert [axis.get_xscale() for axis in panels("ablation")] == ["linear", "linear"]


def test_what_the_paper_prints_is_named_beside_lines():
    for axis in panels("beta"):
        assert "paper" in [text.get_text() for text in axis.get_legend().get_texts()]


def row(dataset: str, label: str, metric: str, mean: float, std: float | None) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "row": label,
        "method": label.partition("-")[0],
        "metric": metric,
        "seeds": [0, 1],
        "mean": mean,
        "std": std,
    }


POINTS = [
    ("cora", "analytic", 89.5, 1.2, 18_000_000, 1.3),
    ("cora", "analytic-rank-4", 85.5, 1.2, 90_000, 1.1),
    ("cora", "dslr", 84.5, 1.2, 21_000, 30.0),
    ("cora", "joint", 88.5, 1.7, 0, 25.0),
    ("cora", "finetune", 32.0, 0.4, 0, 24.0),
    ("citeseer", "analytic", 79.5, None, 18_000_000, 1.3),
]
FRONTIER = {
    "figure": {"kind": "frontier"},
    "entries": [
        row(dataset, label, metric, value, std)
        for dataset, label, pm, std, kept, seconds in POINTS
        for metric, value in (("pm", pm), ("bytes", kept), ("seconds", seconds))
    ],
}


def pictures_in(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    paths = write_figure(FRONTIER, folder, "frontier")
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
        assert word in text
    assert pictures_in(tmp_path / "second") == pictures


def test_figures_say_how_to_get_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'evergraph\[report\]'"):
        write_figure(FRONTIER, tmp_path, "frontier")


def test_frontier_by_hand():
    points = {
        "large": {"pm": 90.0, "bytes": 1000, "seconds": 1.0},  # the best
        "small": {"pm": 80.0, "bytes": 10, "seconds": 9.0},  # cheapest in bytes, slowest
        "twin": {"pm": 80.0, "bytes": 10, "seconds": 9.0},
        "beaten": {"pm": 79.0, "bytes": 20, "seconds": 9.0},  # worse than small and heavier
        "quick": {"pm": 70.0, "bytes": 5000, "seconds": 0.5},  # nobody is faster
    }
    found = {
        cost: {name for name, one in points.items() if on_frontier(one, points.values(), cost)}
        for cost in ("bytes", "seconds")
    }
    assert found == {"bytes": {"large", "small", "twin"}, "seconds": {"large", "quick"}}
