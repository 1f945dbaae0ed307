"""Outcomes: what an experiment came to, beside what the paper says, as plain values.

``ID.json`` holds what was measured (:data:`MEASURED`), one entry per dataset and row with the
values of all seeds. Everything else follows from that and the catalogue by the rules in force, and
is put back by :func:`judged`: means, verdicts, statements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from operator import itemgetter
from typing import Any

import numpy as np

from evergraph.errors import InputError
from evergraph.lab.paper.contrasts import Table
from evergraph.lab.paper.experiments import EXPERIMENTS, Experiment, Row
from evergraph.lab.paper.verdicts import judge_number, judge_statements
from evergraph.lab.summary import grouped, mean_std
from evergraph.lab.tables import paper_numbers

Outcome = Mapping[str, Any]
SCHEMA_VERSION = 3
MEASURED = (
    *("schema_version", "experiment", "quick", "as_printed", "changed", "missing", "notes"),
    *("planes", "overlaps", "rows"),
)
#: What a row says of its place in a figure, if it has one.
PLACE = ("series", "x", "y")
#: Significant digits of a stored value; whole numbers keep all of theirs.
DIGITS = 7


def measured(outcome: Outcome) -> dict[str, Any]:
    """Takes an outcome down to what was measured."""
    return {key: outcome[key] for key in MEASURED if key in outcome}


def outcome_row(dataset: str, row: Row, found: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """Writes a row of an outcome from its values by metric and seed; where one is missing: None."""
    known = {metric: part for metric, part in found.items() if part}
    seeds = sorted({seed for part in known.values() for seed in part})
    values = {
        metric: [_round(part[seed]) if seed in part else None for seed in seeds]
        for metric, part in known.items()
    }
    place = {key: part for key in PLACE if (part := getattr(row, key)) not in (None, "")}
    entry = {"dataset": dataset, "row": row.name, "method": row.method, **place}
    return {**entry, "seeds": seeds, "values": values}


def _round(value: float) -> float:
    before_point = math.floor(math.log10(abs(value))) + 1 if value else 0
    return round(value, max(DIGITS - before_point, 0))


def read_tables(outcome: Outcome, experiment: Experiment) -> list[Table]:
    """Reads the rows of an outcome back, a table per dataset."""
    better = {metric.key: metric.better for metric in experiment.metrics}
    tables = []
    for dataset in dict.fromkeys(entry["dataset"] for entry in outcome["rows"]):
        mine = [entry for entry in outcome["rows"] if entry["dataset"] == dataset]
        seeds = sorted({seed for entry in mine for seed in entry["seeds"]})
        rows, values = [], {}
        for entry in mine:
            place = {key: entry[key] for key in PLACE if key in entry}
            rows.append(Row(entry["row"], entry["method"], **place))
            for metric, part in entry["values"].items():
                found = dict(zip(entry["seeds"], part, strict=True))
                values[entry["row"], metric] = np.array([found.get(s) for s in seeds], dtype=float)
        tables.append(Table(dataset, rows, seeds, values, better))
    return tables


def merged(old: Outcome | None, new: Outcome) -> Outcome:
    """Puts newly measured rows in the place of old ones of the same name; the others stay."""
    if old is None:
        return new
    if old["quick"] != new["quick"]:
        raise InputError(
            f"Expected outcomes of '{new['experiment']}' that are all quick or all not (got both); "
            "write quick ones to a document of their own."
        )
    fresh = {(row["dataset"], row["row"]): row for row in new["rows"] if row["values"]}
    there = {(row["dataset"], row["row"]): row for row in old["rows"]}
    measured = {place for place, row in there.items() if row["values"]}
    lost = [place for place in _places(new) if place in fresh or place not in measured]
    lost += [place for place in _places(old) if place not in {*fresh, *lost}]
    return {
        **old,
        **{key: new[key] for key in ("notes", "planes") if new.get(key)},
        "missing": {
            d: [row for _, row in part] for d, part in grouped(lost, itemgetter(0)).items()
        },
        "overlaps": {**old["overlaps"], **new["overlaps"]},
        "rows": [*(there | fresh).values()],
    }


def _places(outcome: Outcome) -> list[tuple[str, str]]:
    """Lists what is missing of an outcome as dataset and row."""
    return [(dataset, name) for dataset, names in outcome["missing"].items() for name in names]


def judged(outcome: Outcome, experiment: Experiment | None = None) -> dict[str, Any]:
    """Adds to measurements everything that follows from them.

    Returns:
        The outcome with ``title``, ``source``, ``figure``, ``metrics``, ``entries`` (one per
        dataset, row and metric, with mean, deviation and a judgement per printed number) and
        ``statements`` (one per dataset).
    """
    experiment = experiment or EXPERIMENTS[outcome["experiment"]]
    tables, overlaps = read_tables(outcome, experiment), outcome["overlaps"]
    known = {metric for table in tables for _, metric in table.values}
    metrics = [metric for metric in experiment.metrics if metric.key in known]
    entries = []
    for table in tables:
        for row in table.rows:
            for metric in metrics:
                found = table.known(table(row.name, metric.key))
                seeds, values = [*found], [*found.values()]
                overlap = 0.0 if metric.timed else overlaps[table.dataset]
                claims = [
                    judge_number(values, claim, metric, overlap, experiment.looked_up)
                    for claim in printed(experiment, table.dataset, row.name, metric.key)
                ]
                if values or claims:
                    entry = {**asdict(row), "dataset": table.dataset, "metric": metric.key}
                    entry |= {"row": entry.pop("name"), "seeds": seeds, "values": values}
                    entries.append({**entry, **mean_std(values), "claims": claims})
    timed = frozenset(metric.key for metric in experiment.metrics if metric.timed)
    statements = experiment.statements
    if outcome.get("as_printed"):
        statements = [s._replace(by_construction=None) if s.ours_alone else s for s in statements]
    return {
        **measured(outcome),
        "title": experiment.title,
        "source": experiment.source,
        "figure": experiment.figure,
        "metrics": [
            {key: getattr(metric, key) for key in ("key", "title", "digits", "better")}
            for metric in metrics
        ],
        "entries": entries,
        "statements": judge_statements(statements, tables, overlaps, timed),
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
