"""The frontier's files: a figure in two formats, the same numbers in three."""

from __future__ import annotations

import csv
import io
import sys

import pytest

from evergraph.errors import InputError
from evergraph.experiments.frontier import Point, mark_frontiers, table_rows
from evergraph.report.frontier import frontier_csv, frontier_sheet
from evergraph.report.frontier_figure import frontier_figure

POINTS = mark_frontiers(
    [
        Point("cora", "analytic", "analytic", 10, 89.5, 1.2, 6.0, 18_000_000, 1.3, "cpu"),
        Point("cora", "analytic-rank-4", "analytic", 10, 85.5, 1.2, 6.0, 90_000, 1.1, "cpu"),
        Point("cora", "dslr", "dslr", 10, 84.5, 1.2, 12.0, 21_000, 30.0, "cpu"),
        Point("cora", "joint", "joint", 10, 88.5, 1.7, 4.0, 0, 25.0, "cpu", reference=True),
        Point("cora", "finetune", "finetune", 10, 32.0, 0.4, 96.0, 0, 24.0, "cpu"),
        Point("citeseer", "analytic", "analytic", 1, 79.5, None, None, 18_000_000, 1.3, "cpu"),
    ]
)


def test_frontier_figure_names_everyone_and_is_the_same_twice():
    pictures = frontier_figure(POINTS, ("png", "svg"))
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
    assert frontier_figure(POINTS, ("svg",))["svg"] == pictures["svg"]


def test_frontier_figure_says_how_to_get_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'evergraph\[report\]'"):
        frontier_figure(POINTS, ("png",))


def test_frontier_sheet_and_csv_say_the_same():
    rows = table_rows(POINTS)
    sheet = frontier_sheet(rows)
    assert sheet.rows[0][:5] == ["cora · analytic", "10", "89.50 ± 1.20", "6.00", "18.0 MB"]
    assert sheet.rows[0][-1] == "bytes and seconds"
    assert sheet.rows[-1][2:4] == ["79.50", "–"]
    lines = list(csv.DictReader(io.StringIO(frontier_csv(rows))))
    assert len(lines) == len(POINTS)
    assert (lines[0]["label"], lines[0]["bytes"]) == ("analytic", "18000000")
    assert lines[0]["frontier"] == "bytes seconds"
