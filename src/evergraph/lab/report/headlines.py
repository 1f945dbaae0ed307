"""Headlines: the claims that the paper is read for, as the document's table and picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evergraph.lab.paper.experiment import Headline
from evergraph.lab.paper.experiments import HEADLINES
from evergraph.lab.paper.verdicts import count_words, headline_verdict
from evergraph.lab.report.sheets import Kinds
from evergraph.lab.tables import Sheet, number

#: Experiment → kind → judged outcome.
Everything = Mapping[str, Kinds]
#: The folder of the document's pages.
PAGES = "reproduction"


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
        amounts = [f"{_short(graph)} {_signed(entry, digits)}" for graph, entry in ours.items()]
        amount = f"{', '.join(amounts)} {headline.unit}" if amounts else "–"
        if printed:
            others = [_signed(printed.get(graph), digits) for graph in ours]
            amount += f"; as printed {', '.join(others)}"
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


def _signed(entry: Mapping[str, Any] | None, digits: int) -> str:
    return number(entry["difference"] if entry else None, digits, sign=True)


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
        "figure": {"kind": "points", "metrics": ["margin"], "split": False},
        "metrics": [{"key": "margin", "title": "Points of PM in favour of the claim"}],
        "entries": entries,
        "spread": "our settings, 95 %",
        "claimed": "as printed",
        "zero": True,
        "width": 8.0,
    }


def _short(dataset: str) -> str:
    return dataset.partition("-")[0].title()
