"""Outcomes: measured beside printed, value by value, with judgements; then as tables and files."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest

from evergraph.lab.paper.contrasts import Table, Values, contrast
from evergraph.lab.paper.experiment import Facts, Row, Statement
from evergraph.lab.paper.experiments import EXPERIMENTS
from evergraph.lab.paper.outcome import judged, make_outcome, measured, printed
from evergraph.lab.report.outcomes import (
    claims_sheet,
    latex,
    measured_sheet,
    outcome_csv,
    outcome_markdown,
    statements_sheet,
)
from evergraph.lab.report.reproduction import Published, document, overview
from evergraph.lab.tables import Sheet

MAIN = EXPERIMENTS["main"]
FACTS = {
    "cora": Facts("cora", 1770, 3, 6, 2),
    "reddit": Facts("reddit", 100, 8, 40, 5),
}


def outcome(dataset: str = "cora", **cells: dict[int, float]) -> dict[str, Any]:
    """``main`` with two rows: DSLR and RCLG."""
    rows = [Row("rclg", "rclg"), Row("dslr", "dslr")]
    values = {("rclg", "pm"): Values({0: 70.0, 1: 71.0}), ("rclg", "fm"): Values({0: 15.0})}
    values |= {("dslr", key): Values(cell) for key, cell in cells.items()}
    margin = contrast({"pm": "dslr", "above": "rclg"})
    experiment = replace(MAIN, statements=[Statement("DSLR is above RCLG", "here", margin)])
    table = Table(FACTS[dataset], rows, values, {"pm": 1, "fm": -1})
    return make_outcome(experiment, [table], quick=False)


def find(found: dict[str, Any], row: str, metric: str) -> dict[str, Any]:
    (cell,) = [r for r in found["rows"] if (r["row"], r["metric"]) == (row, metric)]
    return dict(cell)


def test_outcome_carries_claimed_measured_seeds_and_verdict():
    cell = find(outcome(pm={0: 84.0, 1: 86.0}), "dslr", "pm")
    assert (cell["mean"], cell["seeds"], cell["values"]) == (85.0, [0, 1], [84.0, 86.0])
    assert cell["std"] == pytest.approx(2**0.5)
    (claim,) = cell["claims"]
    assert (claim["table"], claim["mean"], claim["std"]) == ("main", 81.59, 1.65)
    assert claim["difference"] == pytest.approx(3.41)
    assert claim["verdict"] == "inconclusive"  # two seeds make a wide interval


def test_outcome_judges_statements_seed_by_seed():
    (entry,) = outcome(pm={0: 84.0, 1: 85.01})["statements"]
    assert entry["values"] == pytest.approx([14.0, 14.01])
    assert (entry["verdict"], entry["dataset"]) == ("holds", "cora")
    assert entry["p"] == entry["p_holm"] < 0.01
    (entry,) = outcome(pm={7: 84.0})["statements"]  # no seed in common
    assert (entry["verdict"], entry["seeds"], entry["p"]) == ("not run", [], None)


def test_outcome_keeps_what_was_not_run_and_out_of_memory():
    found = outcome("reddit", pm={0: 40.0, 1: 40.0})
    (claim,) = find(found, "rclg", "pm")["claims"]
    assert (claim["mean"], claim["verdict"]) == (None, "ran")
    (claim,) = find(found, "dslr", "fm")["claims"]
    assert (claim["mean"], claim["verdict"]) == (16.78, "not run")
    assert "out of memory" in claims_sheet(found).markdown()


def test_printed_keeps_contradictions_apart_and_repetitions_once():
    quality = EXPERIMENTS["selector-quality"]
    found = printed(quality, "amazon-computers", "random", "fm")
    assert [(c["table"], c["mean"]) for c in found] == [
        ("selector-quality", 29.33),
        ("selectors", 23.85),
    ]
    assert len(printed(quality, "cora", "random", "pm")) == 1
    assert printed(quality, "cora", "importance", "pm") == []


def test_descriptive_tables_are_the_same_or_differ():
    sizes = EXPERIMENTS["datasets"]
    rows = [Row("cora", "cora")]
    cells = {("cora", "nodes"): Values({0: 2708.0}), ("cora", "edges"): Values({0: 5278.0})}
    found = make_outcome(sizes, [Table(FACTS["cora"], rows, cells, {})], quick=False)
    verdicts = {row["metric"]: row["claims"][0]["verdict"] for row in found["rows"]}
    assert verdicts == {"nodes": "same", "edges": "differs"}


def test_outcome_follows_from_what_was_measured():
    found = outcome(pm={0: 84.123456789, 1: 85.0})
    kept = measured(found)
    assert kept["rows"][-2]["values"] == [84.12346, 85.0]
    assert not {"claims", "mean", "verdict"} & (set(kept["rows"][0]) | set(kept["statements"][0]))
    again = judged(kept)
    assert again["metrics"] == found["metrics"]
    assert [row["claims"] for row in again["rows"][:2]] == [r["claims"] for r in found["rows"][:2]]
    assert again["statements"][0]["verdict"] == found["statements"][0]["verdict"]
    assert measured(again) == kept


def test_sheets_show_spread_interval_and_word():
    found = outcome(pm={0: 84.0, 1: 85.0})
    line = next(row for row in claims_sheet(found).rows if row[:2] == ["cora · dslr", "PM ↑"])
    assert line[2:5] == ["81.59 ± 1.65", "84.50 ± 0.71", "2"]
    assert line[5].startswith("+2.91 [")
    assert measured_sheet(found).rows[1][:3] == ["cora · dslr", "2", "84.50 ± 0.71"]
    assert statements_sheet(found).rows[0][-1] == "holds"


def test_sheets_show_what_the_printed_settings_give():
    ours = outcome(pm={0: 84.0, 1: 85.0})
    printed_settings = outcome(pm={0: 69.0, 1: 72.0})
    line = next(r for r in claims_sheet(ours, printed_settings).rows if r[0] == "cora · dslr")
    assert line[-2:] == ["inconclusive", "70.50 ± 2.12 inconclusive"]
    sheet = statements_sheet(ours, printed_settings)
    assert sheet.columns[-1] == "as printed"
    assert sheet.rows[0][-2] == "holds"
    assert sheet.rows[0][-1].endswith("does not hold (not shown)")
    below = outcome(pm={0: 60.0, 1: 61.01})
    assert statements_sheet(below).rows[0][-1] == "does not hold (opposite)"


def test_csv_has_a_line_per_printed_number():
    lines = list(csv.DictReader(io.StringIO(outcome_csv(outcome(pm={0: 84.0, 1: 85.0})))))
    (line,) = [x for x in lines if (x["row"], x["metric"]) == ("dslr", "pm")]
    assert (line["claimed"], line["claimed_std"], line["mean"]) == ("81.59", "1.65", "84.5")
    assert (line["seeds"], line["table"]) == ("2", "main")


def test_latex_escapes_what_it_must():
    text = latex(Sheet("t", ["a_b", "PM ↑"], [["50 % & {x}", "1.00 ± 0.10"]]))
    assert r"a\_b & PM $\uparrow$ \\" in text
    assert r"50 \% \& \{x\} & 1.00 $\pm$ 0.10 \\" in text
    assert text.count("rule") == 3


def test_document_states_rules_and_counts():
    found = outcome(pm={0: 84.0, 1: 85.0})
    text = document(Published({"main": found}), {"main": "Because of **this**."})
    assert "**Rules.**" in text
    assert "Because of **this**." in text
    assert "nothing here is a result" not in text
    assert "| [main](#main) |" in text
    (row,) = overview([found]).rows
    assert row[0] == "main"
    assert (row[2], row[-1]) == ("0–2", "1 holds")  # DSLR's FM is not there yet
    assert outcome_markdown(found).count("\n| --- |") == 3
