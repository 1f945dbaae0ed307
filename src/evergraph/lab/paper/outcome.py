"""Outcomes: what an experiment came to, beside what the paper says, as plain values.

An outcome is the content of ``ID.json``: ``rows`` (one per dataset, row and metric, with the
values of all seeds and a judgement per printed number) and ``statements`` (one per dataset).
What was measured is apart from what is made of it: :func:`measured` takes an outcome down to its
values, :func:`judged` puts everything else back, by the rules in force.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evergraph.lab.paper.contrasts import Table
from evergraph.lab.paper.experiment import Experiment, Metric
from evergraph.lab.paper.experiments import EXPERIMENTS
from evergraph.lab.paper.verdicts import holm, judge_number, judge_statement, p_value
from evergraph.lab.summary import mean_std
from evergraph.lab.tables import paper_numbers

Outcome = Mapping[str, Any]
SCHEMA_VERSION = 2
#: What was measured, of an outcome and of its rows and statements; the rest follows from it.
MEASURED = ("schema_version", "experiment", "quick", "as_printed", "missing", "notes", "planes")
MEASURED_ROW = ("dataset", "row", "method", "series", "x", "y", "metric", "seeds", "values")
MEASURED_STATEMENT = ("text", "where", "dataset", "seeds", "values")
#: Significant digits of a stored value; whole numbers keep all of theirs.
DIGITS = 7


def make_outcome(
    experiment: Experiment,
    tables: Sequence[Table],
    *,
    quick: bool,
    as_printed: bool = False,
    missing: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Judges an experiment's measurements on all its datasets.

    Args:
        experiment: What was to be measured.
        tables: One per dataset.
        quick: Whether the runs were cut short; nothing they say is a result then.
        as_printed: Whether they had the paper's settings instead of ours.
        missing: Rows per dataset of which not every run is finished.
    """
    rows = [
        {
            "dataset": table.facts.dataset,
            "row": row.name,
            "method": row.method,
            "series": row.series,
            "x": row.x,
            "y": row.y,
            "metric": metric.key,
            **_by_seed(table(row.name, metric.key)),
        }
        for table in tables
        for row in table.rows
        for metric in experiment.metrics
    ]
    statements = [
        {
            "text": statement.text,
            "where": statement.where,
            "dataset": table.facts.dataset,
            **_by_seed(statement.contrast(table)),
        }
        for statement in experiment.statements
        for table in tables
    ]
    outcome = {
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment.id,
        "quick": quick,
        "as_printed": as_printed,
        "missing": {name: list(rows) for name, rows in (missing or {}).items() if rows},
        "notes": [*experiment.notes, *(note for table in tables for note in table.notes)],
        "rows": rows,
        "statements": statements,
    }
    return judged(outcome, experiment)


def _by_seed(values: Mapping[int, float]) -> dict[str, Any]:
    return {"seeds": sorted(values), "values": [values[seed] for seed in sorted(values)]}


def measured(outcome: Outcome) -> dict[str, Any]:
    """Takes an outcome down to what was measured, values rounded."""
    return {
        **{key: outcome[key] for key in MEASURED if key in outcome},
        "rows": [_rounded(row, MEASURED_ROW) for row in outcome["rows"]],
        "statements": [_rounded(entry, MEASURED_STATEMENT) for entry in outcome["statements"]],
    }


def _rounded(entry: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {**{key: entry[key] for key in keys}, "values": list(map(_round, entry["values"]))}


def _round(value: float) -> float:
    before_point = math.floor(math.log10(abs(value))) + 1 if value else 0
    return round(value, max(DIGITS - before_point, 0))


def judged(outcome: Outcome, experiment: Experiment | None = None) -> dict[str, Any]:
    """Adds to measurements everything that follows from them: means, judgements, titles."""
    experiment = experiment or EXPERIMENTS[outcome["experiment"]]
    known = {row["metric"] for row in outcome["rows"] if row["values"]}
    metrics = {metric.key: metric for metric in experiment.metrics if metric.key in known}
    rows = []
    for row in (row for row in outcome["rows"] if row["metric"] in metrics):
        claims = [
            _judge(claim, row["values"], metrics[row["metric"]], experiment.describe is not None)
            for claim in printed(experiment, row["dataset"], row["row"], row["metric"])
        ]
        if row["values"] or claims:
            rows.append({**row, **mean_std(row["values"]), "claims": claims})
    return {
        **outcome,
        "title": experiment.title,
        "source": experiment.source,
        "figure": asdict(experiment.figure),
        "metrics": [
            {key: getattr(metric, key) for key in ("key", "title", "digits", "better")}
            for metric in metrics.values()
        ],
        "rows": rows,
        "statements": _judged_statements(outcome["statements"]),
    }


def printed(experiment: Experiment, dataset: str, row: str, metric: str) -> list[dict[str, Any]]:
    """Finds every number that the paper prints for one value: ``{"table", "mean", "std"}``."""
    found: list[dict[str, Any]] = []
    for table in experiment.tables:
        entry = paper_numbers().get(table, {}).get(dataset, {}).get(row)
        if entry == "oom":
            found.append({"table": table, "mean": None, "std": None})
        elif isinstance(entry, dict) and entry.get(metric) is not None:
            value = entry[metric]
            mean, std = value if isinstance(value, list) else (value, None)
            if not any((claim["mean"], claim["std"]) == (mean, std) for claim in found):
                found.append({"table": table, "mean": mean, "std": std})
    return found


def _judge(
    claim: dict[str, Any], values: Sequence[float], metric: Metric, exact: bool
) -> dict[str, Any]:
    """Judges one printed number; described values are exact, not measured."""
    found: dict[str, Any] = {"difference": None, "low": None, "high": None}
    if claim["mean"] is None:  # out of memory in the paper
        return {**claim, **found, "verdict": "ran" if values else "not run"}
    if exact:
        difference = (mean_std(values)["mean"] or 0.0) - claim["mean"]
        word = "same" if abs(difference) < 1e-9 else "differs"
        return {**claim, **found, "difference": difference, "verdict": word}
    point = metric.point if metric.point is not None else abs(claim["mean"]) / 100
    found = judge_number(values, claim["mean"], claim["std"], point=point, better=metric.better)
    return {**claim, **found}


def _judged_statements(statements: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Judges every statement on every dataset; p-values are adjusted over all of them."""
    p_values = [p_value(entry["values"]) for entry in statements]
    return [
        {**entry, **judge_statement(entry["values"]), "p": p, "p_holm": adjusted}
        for entry, p, adjusted in zip(statements, p_values, holm(p_values), strict=True)
    ]
