"""Outcomes as tables: our settings and the printed ones side by side, and the paper's headlines.

An experiment comes as kind → judged outcome, the kinds being :data:`KINDS`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evergraph.lab.paper.experiments import HEADLINES, Headline
from evergraph.lab.paper.outcome import Outcome
from evergraph.lab.paper.verdicts import count_words, headline_verdict
from evergraph.lab.summary import CONFIDENCE
from evergraph.lab.tables import Sheet, interval, number, spread

Kinds = Mapping[str, Outcome]
#: Experiment → kind → judged outcome.
Everything = Mapping[str, Kinds]
#: The folder of the document's pages.
PAGES = "reproduction"
#: What was measured with which settings and seeds; ``again`` has seeds that no verdict had seen.
KINDS = {"ours": "our settings", "as_printed": "as printed", "again": "other seeds"}
#: Verdicts on numbers in a narrow table, and what they stand for.
MARKS = {"higher": "▲", "lower": "▼", "reproduced": "=", "inconclusive": "?"}
LEGEND = ", ".join(f"{mark} {word}" for word, mark in MARKS.items())
CSV_HEAD = (
    *("dataset", "row", "method", "metric", "seeds", "mean", "std"),
    *("table", "claimed", "claimed_std", "difference", "low", "high", "verdict"),
)


def outcome_sheets(kinds: Kinds, *, short: bool = False) -> list[Sheet]:
    """Lists the tables of an experiment that have a row."""
    beyond = statements_sheet(kinds, in_paper=False)
    sheets = [numbers_sheet(kinds, short=short), statements_sheet(kinds), beyond]
    mark = reservations(kinds.values())
    return [replace(sheet, title=sheet.title + mark) for sheet in sheets if sheet.rows]


def reservations(outcomes: Iterable[Outcome]) -> str:
    """Says what must stand above every table and figure, so that none is shown without it."""
    found = list(outcomes)
    changed = dict.fromkeys(outcome["changed"] for outcome in found if "changed" in outcome)
    words = [f"with {settings}, not the paper's settings" for settings in changed]
    words += ["quick: proves nothing"] * any(outcome["quick"] for outcome in found)
    return "".join(f" ({word})" for word in words)


def numbers_sheet(kinds: Kinds, *, short: bool = False) -> Sheet:
    """Shows every value, mean ± std over seeds, and how it compares with what the paper prints.

    Values that nothing stands beside share a line per row. ``short`` leaves out the graphs that
    the paper prints nothing of, if it prints something of others.
    """
    mine = {kind: kinds[kind] for kind in ("ours", "as_printed") if kind in kinds}
    # In the catalogue's order.
    metrics = {metric["key"]: metric for one in mine.values() for metric in one["metrics"]}
    places: dict[tuple[str, str, str], dict[str, Any]] = {}  # entries by kind
    for kind, outcome in mine.items():
        for entry in outcome["entries"]:
            place = (entry["dataset"], entry["metric"], entry["row"])
            places.setdefault(place, {})[kind] = entry
    printed = {d for (d, *_), found in places.items() if any(e["claims"] for e in found.values())}
    if short and printed:
        places = {place: found for place, found in places.items() if place[0] in printed}
    seeds = [len(entry["seeds"]) for found in places.values() for entry in found.values()]
    counts = [count for count in seeds if count] or [0]
    counted = "–".join(str(count) for count in dict.fromkeys((min(counts), max(counts))))
    legend = f"; measured − paper: {LEGEND}" if short and printed else ""
    title = f"{next(iter((mine or kinds).values()))['title']} (seeds: {counted}{legend})"
    if len(mine) == 1 and not printed:
        lines: dict[tuple[str, str], dict[str, Any]] = {}
        for (dataset, key, row), found in places.items():
            lines.setdefault((dataset, row), {})[key] = next(iter(found.values()))
        rows = [
            [f"{d} · {row}", *(_cell(found.get(k), metrics[k], short) for k in metrics)]
            for (d, row), found in lines.items()
        ]
        columns = ["graph · row", *(metric["title"] for metric in metrics.values())]
        return Sheet(title, columns, rows)
    rows, graphs, keys = [], [*dict.fromkeys(place[0] for place in places)], [*metrics]
    for place in sorted(places, key=lambda place: (graphs.index(place[0]), keys.index(place[1]))):
        found, metric = places[place], metrics[place[1]]
        claimed = [
            "out of memory" if claim["mean"] is None else spread(claim, metric["digits"])
            for claim in next(iter(found.values()))["claims"]
        ]
        numbers = [" or ".join(claimed) or "–", *(_cell(found.get(k), metric, short) for k in mine)]
        if short:  # one line each
            numbers = [cell.replace(" ", "\u00a0") for cell in numbers]
        rows.append([f"{place[0]} · {metric['title']}", place[2], *numbers])
    columns = ["graph · metric", "row", "paper", *(KINDS[kind] for kind in mine)]
    return Sheet(title, columns, rows, prose=("row",))


def _cell(entry: Mapping[str, Any] | None, metric: Mapping[str, Any], short: bool) -> str:
    """Formats a value with the difference to each printed number and what is said of it."""
    if entry is None or entry["mean"] is None:
        return "–"
    digits = metric["digits"]
    parts = [spread(entry, digits)]
    for claim in entry["claims"]:
        word = claim["verdict"]
        word = MARKS.get(word.partition(" (")[0], word) if short else word
        difference = number(claim["difference"], digits, sign=True)
        parts.append(word if claim["difference"] is None else f"{word} {difference}")
    return " · ".join(parts)


def statements_sheet(kinds: Kinds, *, in_paper: bool = True) -> Sheet:
    """Shows what the paper says in words, graph by graph, or what it does not say of them."""
    mine = [kind for kind in KINDS if kind in kinds]
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for kind in mine:
        for entry in kinds[kind]["statements"]:
            if entry["in_paper"] == in_paper:
                cell = statement_cell(entry, brief=kind == "again")
                lines.setdefault((entry["text"], entry["dataset"]), {})[kind] = cell
    columns = ["statement", "graph", *(KINDS[kind] for kind in mine)]
    title = "The paper's statements" if in_paper else "The same beyond the paper"
    rows = [[*key, *(line.get(kind) for kind in mine)] for key, line in lines.items()]
    return Sheet(title, columns, rows, prose=("statement", "graph"))


def statement_cell(entry: Mapping[str, Any], *, brief: bool = False) -> str:
    """Formats a statement's margin with its interval, verdict and p-value, a dash for no run."""
    if not entry["seeds"]:
        return "–"
    shown, word = number(entry["difference"], sign=True), str(entry["verdict"])
    if brief or entry["low"] is None:
        return f"{shown} {word}"
    if entry["p_holm"] is not None:
        alone = ""
        if entry["p"] <= 1 - CONFIDENCE < entry["p_holm"]:
            alone = f"{entry['p']:.2g} alone, "
        word += f" (p {alone}{entry['p_holm']:.2g})"
    elif entry["why"]:
        word += f" ({entry['why']})"
    return f"{shown} {interval(entry)} {word}"


def verdict_counts(outcome: Outcome | None) -> tuple[str, str, str]:
    """Counts an outcome's verdicts: numbers, the paper's statements, those beyond it."""
    if outcome is None:
        return "–", "–", "–"
    numbers = [claim["verdict"] for entry in outcome["entries"] for claim in entry["claims"]]
    words = {
        in_paper: [e["verdict"] for e in outcome["statements"] if e["in_paper"] == in_paper]
        for in_paper in (True, False)
    }
    return count_words(numbers), count_words(words[True]), count_words(words[False])


def outcome_csv(outcome: Outcome) -> str:
    """Writes one line per value and printed number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for entry in outcome["entries"]:
        measured = [entry[key] for key in ("dataset", "row", "method", "metric")]
        measured += [len(entry["seeds"]), entry["mean"], entry["std"]]
        for claim in entry["claims"] or [{}]:
            judged = ("table", "mean", "std", "difference", "low", "high", "verdict")
            writer.writerow([*measured, *(claim.get(key) for key in judged)])
    return text.getvalue()


def headline_statements(
    headline: Headline, everything: Everything, kind: str
) -> list[Mapping[str, Any]]:
    """Lists what became of a headline's statements on the graphs that the paper names."""
    return [
        entry
        for name, text in headline.made_of
        for entry in everything.get(name, {}).get(kind, {"statements": ()})["statements"]
        if entry["text"] == text and entry["in_paper"]
    ]


def _margins(headline: Headline, everything: Everything, kind: str) -> dict[str, Any]:
    """Finds the margins of a headline's first statement, graph by graph."""
    return {
        entry["dataset"]: entry
        for entry in headline_statements(headline, everything, kind)
        if entry["text"] == headline.made_of[0][1] and entry["low"] is not None
    }


def headlines_sheet(everything: Everything, why: Mapping[str, str]) -> Sheet:
    """Shows of every claim that the paper is read for whether it holds, by how much and why."""
    rows = []
    for headline in HEADLINES:
        verdicts = [
            headline_verdict(headline_statements(headline, everything, kind))
            for kind in ("as_printed", "ours")
        ]
        digits = 1 if headline.unit.startswith("points") else 2
        ours, printed = (_margins(headline, everything, kind) for kind in ("ours", "as_printed"))
        signed, others = (
            [number(m[g]["difference"] if g in m else None, digits, sign=True) for g in ours]
            for m in (ours, printed)
        )
        amounts = [f"{_short(graph)} {margin}" for graph, margin in zip(ours, signed, strict=True)]
        amount = f"{', '.join(amounts)} {headline.unit}" if amounts else "–"
        amount += f"; as printed {', '.join(others)}" if printed else ""
        page = f"{PAGES}/{headline.made_of[0][0]}.md"
        claim = f"[{headline.claim}]({page}) ({headline.source})"
        rows.append([claim, *verdicts, amount, why.get(headline.claim, "–").strip()])
    columns = ["claim", "holds as printed?", "holds with our settings?", "by how much", "why"]
    return Sheet("Does it hold?", columns, rows, prose=tuple(columns))


def headline_counts(sheet: Sheet) -> str:
    """Counts the verdicts of the table in one sentence."""
    printed, ours = (
        count_words(
            row[column].split("**")[1] if "**" in row[column] else "not run" for row in sheet.rows
        )
        for column in (1, 2)
    )
    return f"Of {len(sheet.rows)} claims, with our settings: {ours}. As printed: {printed}."


def headline_figure(everything: Everything) -> dict[str, Any]:
    """Describes the picture of the margins in PM behind the headlines, as a figure takes it."""
    entries = []
    for headline in (one for one in HEADLINES if one.unit.startswith("points of PM")):
        ours, printed = (_margins(headline, everything, kind) for kind in ("ours", "as_printed"))
        for dataset, entry in ours.items():
            claims = [{"mean": printed[dataset]["difference"]}] if dataset in printed else []
            entries.append(
                {
                    "dataset": "",
                    "row": f"{headline.claim} · {_short(dataset)}",
                    "metric": "margin",
                    "series": "",
                    "seeds": entry["seeds"],
                    "mean": entry["difference"],
                    "std": (entry["high"] - entry["low"]) / 2,
                    "claims": claims,
                }
            )
    return {
        "figure": {"kind": "points", "metrics": ["margin"]},
        "metrics": [{"key": "margin", "title": "Points of PM in favour of the claim"}],
        "entries": entries,
        "spread": "our settings, 95 %",
        "claimed": "as printed",
        "zero": True,
        "width": 8.0,
    }


def _short(dataset: str) -> str:
    return dataset.partition("-")[0].title()


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
