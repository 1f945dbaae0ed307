"""Tables: the numbers that go in are the numbers shown, and what is missing is a dash."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from evergraph.lab.tables import (
    Sheet,
    accuracy_matrix,
    cell_text,
    comparison_sheet,
    grid_sheet,
    number,
    run_scores,
    size,
    spread,
)
from evergraph.stream import protocol_for


def results(**changes: Any) -> dict[str, Any]:
    return {
        "dataset": "cora",
        "method": "dslr",
        "label": "dslr",
        "overrides": {},
        "seed": 3,
        "settings": {},
        "protocol_hash": protocol_for("cora").hash,
        "evaluated_on": "test",
        "class_names": ["a", "b", "c"],
        "tasks": [[0, 1], [2]],
        "accuracy_matrix": [[98.765], [50.0, 75.125]],
        "pm": 62.5625,
        "fm": 48.765,
        "current": 86.945,
        **changes,
    }


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "dataset": "cora",
        "method": "dslr",
        "label": "dslr",
        "overrides": {},
        "settings": {},
        "protocol_hash": protocol_for("cora").hash,
        "evaluated_on": "test",
        "seeds": [0, 1, 2],
        "pm": {"mean": 81.234, "std": 1.5},
        "fm": {"mean": 14.0, "std": 2.0},
        "current": {"mean": 90.0, "std": 0.5},
        "seconds": {"mean": 12.34, "std": 0.1},
        "memory_bytes": 41_600,
        "memory_bytes_without_graph": 2_100_000,
        **changes,
    }


def test_sheet_markdown():
    sheet = Sheet("Title", ["name", "value", "more"], [["a", "1.00", "–"], ["b", "2.00", "x"]])
    assert sheet.markdown().splitlines() == [
        "**Title**",
        "",
        "| name | value | more |",
        "| --- | ---: | ---: |",
        "| a | 1.00 | – |",
        "| b | 2.00 | x |",
    ]


def test_sheet_markdown_escapes_what_would_break_a_row():
    sheet = Sheet("Title", ["name", "value"], [["a|b", "1"]])
    assert sheet.markdown().splitlines()[-1] == "| a\\|b | 1 |"


def test_sheet_rich_shows_cells_as_they_are():
    sheet = Sheet("Of [x]", ["name", "value"], [["[red]loud", "[1, 2]"]])
    terminal = Console(width=80, force_terminal=False)
    with terminal.capture() as shown:
        terminal.print(sheet.rich())
    text = shown.get()
    for part in ("Of [x]", "[red]loud", "[1, 2]"):
        assert part in text


def test_sheet_rich_takes_names_that_look_like_closing_tags():
    terminal = Console(width=80, force_terminal=False)
    with terminal.capture() as shown:
        terminal.print(accuracy_matrix(results(class_names=["a[/b]", "b", "c"])).rich())
    assert "a[/b]" in shown.get()


def test_accuracy_matrix_is_a_lower_triangle():
    sheet = accuracy_matrix(results())
    assert sheet.columns == ["after task", "on task 1", "on task 2"]
    assert sheet.rows == [["1: a + b", f"{98.765:.2f}", ""], ["2: c", "50.00", f"{75.125:.2f}"]]
    assert "test nodes" in sheet.title
    assert "validation nodes" in accuracy_matrix(results(evaluated_on="validation")).title


def test_run_scores_stand_beside_the_paper():
    sheet = run_scores(results())
    assert sheet.title == "dslr on cora, seed 3"
    assert sheet.rows == [
        ["PM ↑", "62.56", "81.59 ± 1.65"],
        ["FM ↓", f"{48.765:.2f}", "14.59 ± 2.61"],
        ["Current ↑", f"{86.945:.2f}", "–"],
    ]


def test_run_scores_dash_for_none():
    rows = run_scores(results(dataset="mine.npz", fm=None)).rows
    assert rows[1] == ["FM ↓", "–", "–"]


def test_grid_sheet_shows_mean_std_and_claim():
    other = entry(
        label="lone",
        method="finetune",
        seeds=[0],
        pm={"mean": 50.0, "std": None},
        fm={"mean": None, "std": None},
        memory_bytes=0,
        memory_bytes_without_graph=None,
    )
    sheet = grid_sheet([entry(), other])
    assert sheet.rows[0] == [
        "cora · dslr",
        "3",
        "81.23 ± 1.50",
        "14.00 ± 2.00",
        "90.00 ± 0.50",
        "81.59 ± 1.65",
        "14.59 ± 2.61",
        "12.3",
        "41.6 KB",
        "2.1 MB",
    ]
    assert sheet.rows[1][:4] == ["cora · lone", "1", "50.00", "–"]
    assert sheet.rows[1][5:] == ["–", "–", "12.3", "0 B", "–"]  # 0.1.0 counted one
    assert all(len(row) == len(sheet.columns) for row in sheet.rows)


def test_what_a_method_learns_from_stands_in_tables():
    plain = {"method": "dslr+", "settings": {}, "label": "dslr+"}
    strict = {**plain, "settings": {"distill_on": "training"}, "label": "strict"}
    joint = {"method": "joint", "settings": {}, "label": "joint"}
    mine = {"method": "somebody's", "settings": {"a": 1}, "label": "mine"}
    sheet = grid_sheet([entry(**part) for part in (plain, strict, joint, mine)])
    assert sheet.columns[-1] == "also learns from"
    assert [row[-1] for row in sheet.rows] == ["arrival, unlabelled", "–", "old labels", "–"]
    assert "also learns from" not in grid_sheet([entry()]).columns
    assert run_scores(results(**plain)).title.endswith("learns from arrival, unlabelled")


def test_comparison_sheet_shows_interval_and_verdict():
    comparison = {
        "dataset": "cora",
        "reference": "dslr",
        "other": "replay",
        "seeds": [0, 1],
        "difference": 1.5,
        "low": -0.25,
        "high": 3.25,
        "verdict": "not distinguishable",
    }
    lone = {**comparison, "seeds": [0], "low": None, "high": None}
    first, second = comparison_sheet([comparison, lone]).rows
    assert first == [
        "cora · dslr − replay",
        "2",
        "+1.50",
        "[-0.25, +3.25]",
        "not distinguishable",
    ]
    assert second[3] == "[–, –]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(None), "–"),
        (number(1.239), "1.24"),
        (number(0.0, sign=True), "+0.00"),
        (number(-3.14159, 1), "-3.1"),
        (spread({"mean": 1.0, "std": None}), "1.00"),
        (spread({"mean": None, "std": None}), "–"),
        (cell_text(None), "–"),
        (cell_text({"mean": 77.99, "std": None}), "77.99"),
        (cell_text({"mean": 81.59, "std": 1.65}), "81.59 ± 1.65"),
        (cell_text({"mean": 1.0, "std": None}), "1.00"),
        (cell_text(12345), "12,345"),
        (cell_text("–"), "–"),
        (size(999), "999 B"),
        (size(1000), "1.0 KB"),
        (size(2_500_000), "2.5 MB"),
        (size(3_000_000_000), "3.0 GB"),
    ],
)
def test_formats(text: str, expected: str):
    assert text == expected


def test_what_was_set_stands_beside_the_papers_numbers():
    changed = {"overrides": {"epochs": 50, "r": 0.2}, "label": "dslr:r=0.2"}
    assert run_scores(results(**changed)).title == "dslr:r=0.2 on cora, seed 3, with epochs=50"
    assert grid_sheet([entry(**changed)]).rows[0][0] == "cora · dslr:r=0.2, with epochs=50"


def test_changed_settings_are_marked_where_the_paper_stands_beside():
    assert run_scores(results()).columns[-1] == "paper (10 seeds)"
    changed = run_scores(results(overrides={"epochs": 50}))
    assert changed.columns[-1] == "paper (10 seeds, other settings)"
    assert changed.title.endswith("with epochs=50")
    alone = run_scores(results(dataset="mine.npz", overrides={"epochs": 50}))
    assert alone.columns[-1] == "paper (10 seeds)"  # nothing stands there
    named = entry(
        method="replay",
        label="replay-mf",
        overrides={"selector": "mf"},
        settings={"selector": "mf"},
    )
    sheet = grid_sheet([entry(), entry(overrides={"tau": 0.5}), named])
    assert ["*" in row[5] for row in sheet.rows] == [False, True, False]  # mf is the paper's row
    assert "* the paper's settings differ" in sheet.title
    assert "*" not in grid_sheet([entry()]).title
