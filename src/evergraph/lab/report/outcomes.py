"""An experiment's outcome as tables: measured beside claimed, with verdicts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from evergraph.lab.paper.outcome import Outcome
from evergraph.lab.tables import Sheet, interval, number, spread

AS_PRINTED = "as printed"
CSV_HEAD = (
    *("dataset", "row", "method", "metric", "seeds", "mean", "std"),
    *("table", "claimed", "claimed_std", "difference", "low", "high", "verdict"),
)


def _by_place(outcome: Outcome | None) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """Finds rows by dataset, name and metric."""
    rows = outcome["rows"] if outcome is not None else ()
    return {(row["dataset"], row["row"], row["metric"]): row for row in rows}


def measured_sheet(outcome: Outcome) -> Sheet:
    """Shows every row with all its metrics, mean ± std over seeds."""
    metrics, found = outcome["metrics"], _by_place(outcome)
    rows = []
    for dataset, name in dict.fromkeys(place[:2] for place in found):
        mine = [found.get((dataset, name, metric["key"])) for metric in metrics]
        seeds = max((len(row["seeds"]) for row in mine if row), default=0)
        shown = [spread(row, m["digits"]) for row, m in zip(mine, metrics, strict=True)]
        rows.append([f"{dataset} · {name}", str(seeds), *shown])
    titles = [metric["title"] for metric in metrics]
    return Sheet(outcome["title"], ["dataset · row", "seeds", *titles], rows)


def claims_sheet(outcome: Outcome, printed: Outcome | None = None) -> Sheet:
    """Sets every printed number beside the measured one, and the one with printed settings."""
    others = _by_place(printed)
    metrics = {metric["key"]: metric for metric in outcome["metrics"]}
    rows = []
    for place, row in _by_place(outcome).items():
        digits = metrics[row["metric"]]["digits"]
        for claim in row["claims"]:
            shown = [
                f"{row['dataset']} · {row['row']}",
                metrics[row["metric"]]["title"],
                spread(claim, digits) if claim["mean"] is not None else "out of memory",
                spread(row, digits),
                str(len(row["seeds"])),
                _margin(claim, digits),
                claim["verdict"],
            ]
            if printed is not None:
                shown.append(_as_printed(others.get(place), claim["table"], digits))
            rows.append(shown)
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
            _margin(entry),
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
    """Writes one line per value and printed number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for row in outcome["rows"]:
        measured = [row[key] for key in ("dataset", "row", "method", "metric")]
        measured += [len(row["seeds"]), row["mean"], row["std"]]
        for claim in row["claims"] or [{}]:
            judged = ("table", "mean", "std", "difference", "low", "high", "verdict")
            writer.writerow([*measured, *(claim.get(key) for key in judged)])
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


def _latex_row(texts: Sequence[str]) -> str:
    escaped = ("".join(_LATEX.get(character, character) for character in text) for text in texts)
    return " & ".join(escaped) + r" \\"


def _as_printed(row: Mapping[str, Any] | None, table: str, digits: int) -> str:
    """Formats a value of the printed settings, with its verdict against the same table."""
    if row is None or row["mean"] is None:
        return "–"
    words = [claim["verdict"] for claim in row["claims"] if claim["table"] == table]
    return f"{spread(row, digits)} {' '.join(words)}".strip()


def _judged(entry: Mapping[str, Any] | None) -> str:
    """Formats a statement's margin with its verdict, a dash where nothing was run."""
    if entry is None or not entry["seeds"]:
        return "–"
    return f"{_margin(entry)} {verdict_of(entry)}"


def _margin(entry: Mapping[str, Any], digits: int = 2) -> str:
    """Formats a difference with its interval, as far as there are any."""
    text = number(entry["difference"], digits, sign=True)
    return text if entry["low"] is None else f"{text} {interval(entry, digits)}"


def _warnings(outcome: Outcome) -> list[str]:
    found = []
    if outcome.get("as_printed", False):
        found.append("With the settings that the paper prints, to the letter.")
    if outcome["quick"]:
        found.append("Quick mode: few epochs and seeds; nothing here is a result.")
    for dataset, rows in outcome["missing"].items():
        found.append(f"Not every run is finished on {dataset}: {', '.join(rows)}.")
    return found
