"""An experiment's outcome as tables: measured beside claimed, with verdicts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from evergraph.lab.tables import Sheet, number

Outcome = Mapping[str, Any]
AS_PRINTED = "as printed"
CSV_COLUMNS = (
    *("dataset", "row", "method", "metric", "seeds", "mean", "std"),
    *("table", "claimed", "claimed_std", "difference", "low", "high", "verdict"),
)


def measured_sheet(outcome: Outcome) -> Sheet:
    """Shows every row with all its columns, mean ± std over seeds."""
    columns = outcome["columns"]
    cells = {(r["dataset"], r["row"], r["metric"]): r for r in outcome["rows"]}
    names = dict.fromkeys((r["dataset"], r["row"]) for r in outcome["rows"])
    rows = []
    for dataset, name in names:
        found = [cells.get((dataset, name, column["key"])) for column in columns]
        seeds = max((len(cell["seeds"]) for cell in found if cell), default=0)
        shown = [
            _spread(cell, column["digits"]) for cell, column in zip(found, columns, strict=True)
        ]
        rows.append([f"{dataset} · {name}", str(seeds), *shown])
    titles = [column["title"] for column in columns]
    return Sheet(outcome["title"], ["dataset · row", "seeds", *titles], rows)


def claims_sheet(outcome: Outcome, printed: Outcome | None = None) -> Sheet:
    """Sets every printed number beside the measured one, and the one with printed settings."""
    cells = {(r["dataset"], r["row"], r["metric"]): r for r in (printed or {"rows": []})["rows"]}
    digits = {column["key"]: column["digits"] for column in outcome["columns"]}
    titles = {column["key"]: column["title"] for column in outcome["columns"]}
    rows = []
    for row in outcome["rows"]:
        for claim in row["claims"]:
            places = digits[row["metric"]]
            rows.append(
                [
                    f"{row['dataset']} · {row['row']}",
                    titles[row["metric"]],
                    _claimed(claim, places),
                    _spread(row, places),
                    str(len(row["seeds"])),
                    _interval(claim, places),
                    claim["verdict"],
                ]
            )
            if printed is not None:
                other = cells.get((row["dataset"], row["row"], row["metric"]))
                rows[-1].append(_as_printed(other, claim["table"], places))
    columns = ["dataset · row", "", "paper", "measured", "seeds", "difference, 95 %", "verdict"]
    columns += [AS_PRINTED] if printed is not None else []
    return Sheet(f"The paper's numbers ({outcome['source']})", columns, rows)


def statements_sheet(
    outcome: Outcome, printed: Outcome | None = None, again: Outcome | None = None
) -> Sheet:
    """Shows what the paper says in words, and whether it holds.

    Args:
        outcome: What was measured.
        printed: The same with the paper's settings, for a column of its own.
        again: The same with other seeds, for a column of its own.
    """
    rows = [
        [
            entry["text"],
            entry["dataset"],
            str(len(entry["seeds"])),
            _interval(entry, 2),
            "–" if entry["p_holm"] is None else f"{entry['p_holm']:.2g}",
            verdict_of(entry),
        ]
        for entry in outcome["statements"]
    ]
    columns = ["statement", "dataset", "seeds", "margin, 95 %", "p (Holm)", "verdict"]
    for title, other in ((seeds_title(again), again), (AS_PRINTED, printed)):
        if other is not None:
            columns.append(title)
            entries = {(entry["text"], entry["dataset"]): entry for entry in other["statements"]}
            for row in rows:
                row.append(_judged(entries.get((row[0], row[1]))))
    return Sheet("The paper's statements", columns, rows, prose=("statement",))


def seeds_title(outcome: Outcome | None) -> str:
    """Names the seeds behind an outcome's statements."""
    seeds = {seed for entry in (outcome or {}).get("statements", ()) for seed in entry["seeds"]}
    return f"seeds {min(seeds)}–{max(seeds)}" if seeds else "other seeds"


def verdict_of(entry: Mapping[str, Any]) -> str:
    """Tells a statement that was not shown from one whose opposite was."""
    verdict = str(entry["verdict"])
    if verdict != "does not hold":
        return verdict
    return f"{verdict} ({'opposite' if entry['high'] < 0 else 'not shown'})"


def outcome_sheets(
    outcome: Outcome, printed: Outcome | None = None, again: Outcome | None = None
) -> list[Sheet]:
    """Lists the tables of an outcome that have a row."""
    sheets = [measured_sheet(outcome)]
    sheets += [claims_sheet(outcome, printed), statements_sheet(outcome, printed, again)]
    return [sheet for sheet in sheets if sheet.rows]


def outcome_markdown(
    outcome: Outcome, printed: Outcome | None = None, again: Outcome | None = None
) -> str:
    """Writes all tables and notes of an outcome, beside it what the others give."""
    parts = [sheet.markdown() for sheet in outcome_sheets(outcome, printed, again)]
    notes = [f"- {note}" for note in (*outcome["notes"], *_warnings(outcome))]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])]) + "\n"


def outcome_csv(outcome: Outcome) -> str:
    """Writes one line per cell and printed number."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in outcome["rows"]:
        measured = {key: row[key] for key in ("dataset", "row", "method", "metric", "mean", "std")}
        measured["seeds"] = len(row["seeds"])
        for claim in row["claims"] or [{}]:
            judged = {key: claim.get(key) for key in ("table", "difference", "low", "high")}
            claimed = {"claimed": claim.get("mean"), "claimed_std": claim.get("std")}
            verdict = {"verdict": claim.get("verdict")}
            writer.writerow({**measured, **judged, **claimed, **verdict})
    return text.getvalue()


def latex(sheet: Sheet) -> str:
    """Renders a table for LaTeX with the package booktabs, text in UTF-8."""
    lines = [
        f"% {sheet.title}",
        f"\\begin{{tabular}}{{l{'r' * (len(sheet.columns) - 1)}}}",
        "\\toprule",
        _latex_row(sheet.columns),
        "\\midrule",
        *(_latex_row(row) for row in sheet.rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"±": "$\\pm$", "−": "$-$", "–": "--", "·": "$\\cdot$", "↑": "$\\uparrow$"},
    **{"↓": "$\\downarrow$", "β": "$\\beta$", "τ": "$\\tau$", "λ": "$\\lambda$"},
}


def _latex_row(cells: Sequence[str]) -> str:
    escaped = ("".join(_LATEX.get(character, character) for character in cell) for cell in cells)
    return " & ".join(escaped) + r" \\"


def _spread(cell: Mapping[str, Any] | None, digits: int) -> str:
    if cell is None or cell["mean"] is None:
        return "–"
    std = f" ± {number(cell['std'], digits)}" if cell["std"] is not None else ""
    return number(cell["mean"], digits) + std


def _as_printed(cell: Mapping[str, Any] | None, table: str, digits: int) -> str:
    """Formats a cell of the printed settings, with its verdict against the same table."""
    if cell is None or cell["mean"] is None:
        return "–"
    words = [claim["verdict"] for claim in cell["claims"] if claim["table"] == table]
    return f"{_spread(cell, digits)} {' '.join(words)}".strip()


def _judged(entry: Mapping[str, Any] | None) -> str:
    """Formats a statement's margin with its verdict, a dash where nothing was run."""
    if entry is None or not entry["seeds"]:
        return "–"
    return f"{_interval(entry, 2)} {verdict_of(entry)}"


def _claimed(claim: Mapping[str, Any], digits: int) -> str:
    return "out of memory" if claim["mean"] is None else _spread(claim, digits)


def _interval(entry: Mapping[str, Any], digits: int) -> str:
    """Formats a difference with its interval, as far as there are any."""
    if entry["difference"] is None:
        return "–"
    text = number(entry["difference"], digits, sign=True)
    if entry["low"] is None:
        return text
    low, high = (number(entry[key], digits, sign=True) for key in ("low", "high"))
    return f"{text} [{low}, {high}]"


def _warnings(outcome: Outcome) -> list[str]:
    found = []
    if outcome.get("as_printed", False):
        found.append("With the settings that the paper prints, to the letter.")
    if outcome["quick"]:
        found.append("Quick mode: few epochs and seeds; nothing here is a result.")
    for dataset, rows in outcome["missing"].items():
        found.append(f"Not every run is finished on {dataset}: {', '.join(rows)}.")
    return found
