"""Outcomes: what an experiment came to, beside what the paper says, as plain values.

An outcome is the content of ``ID.json``: ``rows`` (one per dataset, row and column, with the
values of all seeds and a judgement per printed number) and ``statements`` (one per dataset).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evergraph.lab.paper.experiment import Experiment, Metric, Table, Values
from evergraph.lab.paper.numbers import paper_numbers
from evergraph.lab.paper.verdicts import holm, judge_number, judge_statement, p_value
from evergraph.lab.summary import mean_std

SCHEMA_VERSION = 1


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
    columns = [m for m in experiment.metrics if any(t(n, m.key) for t in tables for n in t.names())]
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment.id,
        "title": experiment.title,
        "source": experiment.source,
        "quick": quick,
        "as_printed": as_printed,
        "figure": {**asdict(experiment.figure), "drawn": False},
        "columns": [_column(metric) for metric in columns],
        "rows": [
            entry
            for table in tables
            for row in table.rows
            for metric in columns
            if (entry := _row(experiment, table, row.name, metric)) is not None
        ],
        "statements": _statements(experiment, tables),
        "missing": {name: list(rows) for name, rows in (missing or {}).items() if rows},
        "notes": [*experiment.notes, *(note for table in tables for note in table.notes)],
    }


def _column(metric: Metric) -> dict[str, Any]:
    shown = {"key": metric.key, "title": metric.title, "digits": metric.digits}
    return {**shown, "better": metric.better}


def _row(experiment: Experiment, table: Table, name: str, metric: Metric) -> dict[str, Any] | None:
    """Describes one cell with the judgement of every printed value; None without either."""
    row = next(row for row in table.rows if row.name == name)
    values = table(name, metric.key)
    claims = printed(experiment, table.facts.dataset, name, metric.key)
    if not values and not claims:
        return None
    exact = experiment.describe is not None
    return {
        "dataset": table.facts.dataset,
        "row": name,
        "method": row.method,
        "series": row.series,
        "x": row.x,
        "y": row.y,
        "metric": metric.key,
        "seeds": sorted(values),
        "values": [values[seed] for seed in sorted(values)],
        **mean_std(list(values.values())),
        "claims": [_judge(claim, values, metric, exact) for claim in claims],
    }


def printed(experiment: Experiment, dataset: str, row: str, metric: str) -> list[dict[str, Any]]:
    """Finds every number that the paper prints for a cell: ``{"table", "mean", "std"}``."""
    found = []
    for table in experiment.paper_tables:
        entry = paper_numbers().get(table, {}).get(dataset, {}).get(row)
        if entry == "oom":
            found.append({"table": table, "mean": None, "std": None})
        elif isinstance(entry, dict) and entry.get(metric) is not None:
            value = entry[metric]
            mean, std = value if isinstance(value, list) else (value, None)
            claim = {"table": table, "mean": mean, "std": std}
            if not any((c["mean"], c["std"]) == (mean, std) for c in found):
                found.append(claim)
    return found


def _judge(claim: dict[str, Any], values: Values, metric: Metric, exact: bool) -> dict[str, Any]:
    if claim["mean"] is None:  # out of memory in the paper
        ran = "ran" if values else "not run"
        return {**claim, "difference": None, "low": None, "high": None, "verdict": ran}
    if exact:
        difference = (values.mean or 0.0) - claim["mean"]
        word = "same" if abs(difference) < 1e-9 else "differs"
        judged = {"difference": difference, "low": None, "high": None, "verdict": word}
        return {**claim, **judged}
    point = metric.point if metric.point is not None else abs(claim["mean"]) / 100
    return {
        **claim,
        **asdict(
            judge_number(
                list(values.values()),
                claim["mean"],
                claim["std"],
                point=point,
                better=metric.better,
            )
        ),
    }


def _statements(experiment: Experiment, tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Judges every statement on every dataset; p-values are adjusted over all of them."""
    measured = {
        (index, table.facts.dataset): statement.contrast(table)
        for index, statement in enumerate(experiment.statements)
        for table in tables
    }
    p_values = {key: p_value(list(values.values())) for key, values in measured.items()}
    adjusted = holm(p_values)
    return [
        {
            "text": experiment.statements[index].text,
            "where": experiment.statements[index].where,
            "dataset": dataset,
            "seeds": sorted(values),
            "values": [values[seed] for seed in sorted(values)],
            **asdict(judge_statement(list(values.values()))),
            "p": p_values[index, dataset],
            "p_holm": adjusted[index, dataset],
        }
        for (index, dataset), values in measured.items()
    ]
