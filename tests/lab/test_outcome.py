"""Outcomes: measured beside printed, value by value, with judgements; then as tables and files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.errors import InputError
from evergraph.lab.paper.contrasts import Table
from evergraph.lab.paper.experiments import EXPERIMENTS, HEADLINES, Experiment, Row, Statement
from evergraph.lab.paper.outcome import judged, measured, merged, printed
from evergraph.lab.report.document import document, overview, read_results
from evergraph.lab.report.sheets import (
    headlines_sheet,
    latex,
    numbers_sheet,
    outcome_csv,
    outcome_sheets,
    statements_sheet,
)
from evergraph.lab.tables import Sheet
from made_runs import table_rows

CONTRAST = {"pm": "dslr", "above": "rclg"}
SAYS = [Statement("DSLR is above RCLG", "here", CONTRAST, ["cora"])]
MAIN = replace(EXPERIMENTS["main"], statements=SAYS)


def conclude(experiment: Experiment, table: Table, **changes: Any) -> dict[str, Any]:
    """Judges one table."""
    found = {
        "schema_version": 3,
        "experiment": experiment.id,
        "quick": False,
        "as_printed": False,
        "missing": {},
        "notes": [],
        "overlaps": {table.dataset: 0.0},
        "rows": table_rows(table, [metric.key for metric in experiment.metrics]),
        **changes,
    }
    return judged(found, experiment)


def array(cells: dict[int, float]) -> Any:
    """Values of eight seeds."""
    return np.array([cells.get(seed, np.nan) for seed in range(8)])


def outcome(dataset: str = "cora", **cells: dict[int, float]) -> dict[str, Any]:
    """``main`` with two rows: DSLR and RCLG."""
    rows = [Row("rclg", "rclg"), Row("dslr", "dslr")]
    values = {("rclg", "pm"): array({0: 70.0, 1: 71.0}), ("rclg", "fm"): array({0: 15.0})}
    values |= {("dslr", key): array(cell) for key, cell in cells.items()}
    return conclude(MAIN, Table(dataset, rows, range(8), values, {"pm": 1, "fm": -1}))


def find(found: dict[str, Any], row: str, metric: str) -> dict[str, Any]:
    (cell,) = [r for r in found["entries"] if (r["row"], r["metric"]) == (row, metric)]
    return dict(cell)


def test_outcome_carries_claimed_measured_seeds_and_verdict():
    cell = find(outcome(pm={0: 84.0, 1: 86.0}), "dslr", "pm")
    assert (cell["mean"], cell["seeds"], cell["values"]) == (85.0, [0, 1], [84.0, 86.0])
    assert cell["std"] == pytest.approx(2**0.5)
    (claim,) = cell["claims"]
    assert (claim["table"], claim["mean"], claim["std"]) == ("main", 81.59, 1.65)
    assert claim["difference"] == pytest.approx(3.41)
    assert claim["verdict"] == "inconclusive"  # two seeds make a wide interval, with zero in it


def test_outcome_judges_statements_seed_by_seed():
    (entry,) = outcome(pm={0: 84.0, 1: 85.01})["statements"]
    assert entry["difference"] == pytest.approx(14.005)
    assert (entry["verdict"], entry["dataset"], entry["in_paper"]) == ("holds", "cora", True)
    assert entry["p"] == entry["p_holm"] < 0.01
    (entry,) = outcome(pm={7: 84.0})["statements"]  # no seed in common
    assert (entry["verdict"], entry["seeds"], entry["p"]) == ("not run", [], None)
    (entry,) = outcome("citeseer", pm={0: 84.0, 1: 85.01})["statements"]
    assert not entry["in_paper"]


def test_statement_by_construction_of_our_settings_is_tested_as_printed():
    measurements = measured(outcome(pm={0: 84.0, 1: 85.01}))

    def verdict(as_printed: bool, ours_alone: bool) -> str:
        said = SAYS[0]._replace(by_construction="so it is", ours_alone=ours_alone)
        found = {**measurements, "as_printed": as_printed}
        return judged(found, replace(MAIN, statements=[said]))["statements"][0]["verdict"]

    assert verdict(as_printed=True, ours_alone=True) == "holds"
    for as_printed, ours_alone in ((False, True), (False, False), (True, False)):
        assert verdict(as_printed, ours_alone) == "by construction"


def test_outcome_keeps_what_was_not_run_and_out_of_memory():
    found = outcome("reddit", pm={0: 40.0, 1: 40.0})
    (claim,) = find(found, "rclg", "pm")["claims"]
    assert (claim["mean"], claim["verdict"]) == (None, "ran")
    (claim,) = find(found, "dslr", "fm")["claims"]
    assert (claim["mean"], claim["verdict"]) == (16.78, "not run")
    assert "out of memory" in numbers_sheet({"ours": found}).markdown()


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
    cells = {("cora", "nodes"): array({0: 2708.0}), ("cora", "edges"): array({0: 5278.0})}
    table = Table("cora", [Row("cora", "cora")], range(8), cells, {})
    found = conclude(EXPERIMENTS["datasets"], table)
    verdicts = {entry["metric"]: entry["claims"][0]["verdict"] for entry in found["entries"]}
    assert verdicts == {"nodes": "same", "edges": "differs"}


def test_outcome_follows_from_what_was_measured():
    found = outcome(pm={0: 84.123456789, 1: 85.0})
    kept = measured(found)
    assert kept["rows"][-1]["values"] == {"pm": [84.12346, 85.0]}
    assert not {"entries", "statements", "metrics"} & set(kept)
    assert judged(kept, MAIN) == found
    assert measured(judged(kept, MAIN)) == kept


def test_rows_keep_their_place_and_gaps():
    rows = [Row("λ = 0", "dslr:lam=0", "λ", 0.0), Row("plain", "dslr")]
    values = {("λ = 0", "pm"): array({0: 1.0, 2: 3.0}), ("λ = 0", "fm"): array({2: 9.0})}
    first, second = table_rows(Table("cora", rows, range(8), values, {}), ["pm", "fm"])
    assert (first["series"], first["x"], first["seeds"]) == ("λ", 0.0, [0, 2])
    assert first["values"] == {"pm": [1.0, 3.0], "fm": [None, 9.0]}
    assert (second["values"], "x" in second) == ({}, False)


def test_new_rows_take_the_place_of_old_ones():
    old, new = outcome(pm={0: 84.0, 1: 85.0}), outcome(pm={0: 60.0, 1: 61.0})
    new["rows"] = [row for row in new["rows"] if row["row"] == "dslr"]
    rows = {row["row"]: row["values"]["pm"] for row in merged(old, new)["rows"]}
    assert rows == {"rclg": [70.0, 71.0], "dslr": [60.0, 61.0]}
    assert merged(None, new) is new
    old["missing"] = {"cora": ["dslr", "gem"]}
    assert merged(old, new)["missing"] == {"cora": ["gem"]}
    assert merged(old, {**new, "missing": {"cora": ["dslr", "rclg"]}})["missing"] == {
        "cora": ["dslr", "gem"]  # RCLG stands there from before
    }
    with pytest.raises(InputError, match="all quick or all not"):
        merged(old, {**new, "quick": True})


def test_results_of_an_earlier_form_are_refused(tmp_path: Path):
    old = {**measured(outcome(pm={0: 84.0})), "schema_version": 2}
    (tmp_path / "main.json").write_text(json.dumps({"ours": old}))
    with pytest.raises(InputError, match=r"'schema_version' 3 of ours .* \(got 2\)"):
        read_results(tmp_path)


def test_sheets_show_spread_difference_and_word():
    found = {"ours": outcome(pm={0: 84.0, 1: 85.0})}
    line = numbers_sheet(found).rows[1]
    assert line[:3] == ["cora · PM ↑", "dslr", "81.59 ± 1.65"]
    assert line[3] == "84.50 ± 0.71 · higher (better) +2.91"
    short = numbers_sheet(found, short=True)
    assert short.rows[1][3].replace("\u00a0", " ") == "84.50 ± 0.71 · ▲ +2.91"
    assert "▲ higher" in short.title
    (line,) = statements_sheet(found).rows
    assert line[:2] == ["DSLR is above RCLG", "cora"]
    assert line[2].startswith("+14.00 [+14.00, +14.00] holds (p ")


def test_sheets_set_the_printed_settings_beside_ours():
    kinds = {"ours": outcome(pm={0: 84.0, 1: 85.0}), "as_printed": outcome(pm={0: 69.0, 1: 72.0})}
    assert numbers_sheet(kinds).columns[2:] == ["paper", "our settings", "as printed"]
    assert numbers_sheet(kinds).rows[1][4].startswith("70.50 ± 2.12 · inconclusive -11.09")
    sheet = statements_sheet(kinds)
    assert sheet.columns[-2:] == ["our settings", "as printed"]
    assert "not shown" in sheet.rows[0][-1]


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


def test_document_answers_first_and_counts_after():
    found = {"main": {"ours": outcome(pm={0: 84.0, 1: 85.0})}}
    why = {HEADLINES[0].claim: "It is so."}
    texts = document(found, {"main": "Because of **this**.", "headlines": why})
    assert set(texts) == {"", "main", "contradictions"}
    page = texts[""]
    assert page.index("**Does it hold?**") < page.index("**Every experiment**")
    assert page.index("**How to read it.**") > page.index("| [main](reproduction/main.md) |")
    assert "| It is so. |" in page
    assert "proves nothing" not in page
    assert "Because of **this**." in texts["main"]
    (row,) = overview(found).rows
    numbers = "1 inconclusive, 1 not tested, 1 higher (better), 1 not run"
    assert row == ["main", "Table 2", numbers, "1 holds", "–", "–"]
    assert len(headlines_sheet(found, {}).rows) == len(HEADLINES)
    assert len(outcome_sheets(found["main"])) == 2
