"""Verdicts by stated rules: a measured number against a printed one, statements, headlines.

A *number* is judged by the 95 % interval of measured minus printed (Welch, corrected for splits
that overlap; the printed mean is taken as one of ten seeds, its deviation as the measured one where
none is printed). The sign comes first: an interval without zero is ``higher`` or ``lower``, with
``(better)`` or ``(worse)`` where the metric has a good side. One that holds zero is ``reproduced``
when it is at most four points wide, else ``inconclusive``.

A *statement* is a quantity per seed that is positive where the statement is true. By its p-value
after Holm, over all statements of the experiment that are tested, it ``holds``, its ``opposite``
does, or neither is ``not shown``. ``not comparable``: a row it sets against others has not learnt
its current tasks. ``by construction``: no measurement could say otherwise.

A *headline* counts what became of its statements on the graphs that the paper names.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from evergraph.lab.paper.contrasts import Table, contrast, incomparable
from evergraph.lab.paper.experiments import Metric, Statement
from evergraph.lab.summary import CONFIDENCE, difference_to_claim, estimate, mean_std

#: Widest interval around zero that still reproduces a number, in points.
WIDEST = 4.0
#: What is told of a number that nothing can be told of.
NOTHING: dict[str, Any] = {"difference": None, "low": None, "high": None}
#: Verdicts on a statement that was tested.
HOLDS, OPPOSITE, NOT_SHOWN = TESTED = ("holds", "opposite", "not shown")


def judge_number(
    values: Sequence[float],
    claim: Mapping[str, Any],
    metric: Metric,
    overlap: float = 0.0,
    exact: bool = False,
) -> dict[str, Any]:
    """Judges measured values against a printed mean: difference, 95 % interval and the word.

    ``claim`` is ``{"mean", "std"}``: no mean where the paper ran out of memory, no deviation where
    it prints none. Values may be ``exact``, looked up and not measured.
    """
    printed, std, found = claim["mean"], claim["std"], NOTHING
    if printed is None:
        word = "ran" if values else "not run"
    elif exact:
        found = {**NOTHING, "difference": (mean_std(values)["mean"] or 0.0) - printed}
        word = "same" if abs(found["difference"]) < 1e-9 else "differs"
    else:
        if std is None and len(values) > 1:
            std = statistics.stdev(values)
        found = difference_to_claim(values, {"mean": printed, "std": std}, overlap)
        difference, low, high = found["difference"], found["low"], found["high"]
        point = metric.point if metric.point is not None else abs(printed) / 100
        if low is None:
            word = "not run" if difference is None else "not tested"
        elif low <= 0 <= high:
            word = "reproduced" if high - low <= WIDEST * point else "inconclusive"
        else:
            good = {1: " (better)", 0: "", -1: " (worse)"}
            word, sign = ("higher", 1) if difference > 0 else ("lower", -1)
            word += good[sign * metric.better]
    return {**claim, **found, "verdict": word}


def judge_statements(
    statements: Iterable[Statement],
    tables: Sequence[Table],
    overlaps: Mapping[str, float],
    timed: frozenset[str] = frozenset(),
) -> list[dict[str, Any]]:
    """Judges every statement on every graph, those of the paper and those beyond it apart."""
    entries: list[dict[str, Any]] = []
    for statement, table in product(statements, tables):
        quantity = next(iter(statement.contrast))
        about = {part.rpartition(" of ")[2] for part in quantity.split(" / ")}
        overlap = 0.0 if about & timed else overlaps[table.dataset]
        values = table.known(contrast(statement.contrast, table))
        found = estimate([*values.values()], overlap)
        unlearnt = incomparable(statement.contrast, table)
        verdict = None if found["n"] > 1 else "not tested" if found["n"] else "not run"
        if statement.by_construction is not None:
            verdict = "by construction"
        elif unlearnt and found["n"]:
            verdict = "not comparable"
        entry = {
            "text": statement.text,
            "where": statement.where,
            "dataset": table.dataset,
            "in_paper": table.dataset in statement.graphs,
            "why": statement.by_construction or ", ".join(unlearnt),
            "seeds": [*values],
            "difference": found["mean"],
            **{key: found[key] for key in ("low", "high", "p")},
            "p_holm": None,
            "verdict": verdict,  # None while it waits for Holm
        }
        entries.append(entry)
    for in_paper in (True, False):
        tested = [e for e in entries if e["in_paper"] == in_paper and e["verdict"] is None]
        for entry, p in zip(tested, holm([entry["p"] for entry in tested]), strict=True):
            sign = HOLDS if entry["difference"] > 0 else OPPOSITE
            entry |= {"p_holm": p, "verdict": sign if p <= 1 - CONFIDENCE else NOT_SHOWN}
    return entries


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusts p-values for being many (Holm's step-down)."""
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for rank, (p, place) in enumerate(sorted((p, place) for place, p in enumerate(p_values))):
        running = max(running, min(1.0, (len(p_values) - rank) * p))
        adjusted[place] = running
    return adjusted


def headline_verdict(entries: Sequence[Mapping[str, Any]]) -> str:
    """Puts what became of a headline's statements into a word and counts."""
    counts = Counter(entry["verdict"] for entry in entries if entry["verdict"] != "not run")
    if not counts:
        return "–"
    tested = sum(counts[word] for word in TESTED)
    if counts[HOLDS]:
        word = "yes" if counts[HOLDS] == tested else "in part"
    else:
        word = "no" if counts[OPPOSITE] else NOT_SHOWN if tested else "not tested"
    others = {word: count for word, count in counts.items() if word not in (HOLDS, NOT_SHOWN)}
    told = [f"{counts[HOLDS]} of {tested} hold", *(f"{n} {word}" for word, n in others.items())]
    return f"**{word}** ({', '.join(told)})"


def count_words(words: Iterable[str]) -> str:
    """Counts verdicts, a dash for none: ``2 holds, 1 not shown``."""
    return ", ".join(f"{count} {word}" for word, count in Counter(words).items()) or "–"
