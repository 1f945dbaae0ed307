"""What the page shows, as plain values: the figures for papers are drawn from the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import torch

from evergraph import __version__
from evergraph.lab.diagnostics import numbers, project
from evergraph.lab.folder import read_config
from evergraph.lab.paper.contrasts import NOT_LEARNT
from evergraph.lab.paper.experiments import METRICS
from evergraph.lab.report.collect import Collection, Group, Run
from evergraph.lab.summary import (
    difference_to_claim,
    estimate,
    most_without_graph,
    overlap,
    quantile,
)
from evergraph.lab.tables import METRICS as SCORES
from evergraph.lab.tables import claimed, learns_from

#: Numbers about the buffer and the nodes around it, averaged over seeds: metric and view.
BUFFER_FACTS: dict[str, tuple[str, Literal["before", "after"]]] = {
    **{key: (key, "after") for key in ("diversity", "centre", "low_degree", "high_degree")},
    **{f"{key}_before": (key, "before") for key in ("homophily", "degree", "isolated")},
    **{f"{key}_after": (key, "after") for key in ("homophily", "degree", "isolated")},
}


def page_data(collection: Collection) -> dict[str, Any]:
    """Describes a collection of runs; the same folder always gives the same values."""
    every = [group for groups in collection.datasets.values() for group in groups]
    names = sorted({group.name for group in every})
    first = [name for name in (collection.reference, "dslr") if name in names][:1]
    return {
        "title": collection.title,
        "version": __version__,
        "num_runs": collection.num_runs,
        "unfinished": collection.unfinished,
        "copies": collection.copies,
        # First the variant that others are compared with, then by name.
        "order": first + [name for name in names if name not in first],
        "not_learnt": NOT_LEARNT,
        "quantiles": [quantile(freedom) for freedom in range(1, max(len(g.runs) for g in every))],
        "datasets": [_dataset(*dataset) for dataset in collection.datasets.items()],
    }


def _dataset(name: str, groups: Sequence[Group]) -> dict[str, Any]:
    results = groups[0].runs[0].results
    shared = overlap(read_config(groups[0].runs[0].folder).protocol)
    return {
        "name": name,
        "overlap": shared,
        "class_names": results["class_names"],
        "tasks": results["tasks"],
        "steps": results.get("stream", {}).get("steps"),  # names of tasks in time
        "evaluated_on": results["evaluated_on"],
        "groups": [_group(group, shared) for group in groups],
        "sizes": buffer_series(groups),
    }


def _group(group: Group, overlap: float) -> dict[str, Any]:
    first = group.runs[0].results
    values = {key: [run.results[key] for run in group.runs] for key in SCORES}
    totals = [run.results["seconds"]["total"] for run in group.runs]
    return {
        "name": group.name,
        "method": first["method"],
        "learns_from": learns_from(first["method"], first["settings"]),
        # A selector names a row of the paper's; any other setting makes it another run.
        "other_settings": bool(set(first["overrides"]) - {"selector"}),
        "seeds": [run.results["seed"] for run in group.runs],
        **values,
        "estimates": {
            **{key: estimate(part, overlap) for key, part in values.items()},
            "seconds": estimate(totals),
        },
        "claims": {
            key: {**claim, **difference_to_claim(values[key], claim, overlap)}
            for key, claim in claimed(first).items()
        },
        "matrices": {  # by task, by class, and by task with the task known
            "task": [_rounded(run.results) for run in group.runs],
            "class": [_rounded(run.results["by_class"]) for run in group.runs],
            "known": [_rounded(run.results["task_incremental"]) for run in group.runs],
        },
        "probability": [_probability(run.results) for run in group.runs],
        "memory_bytes": max(run.results["memory_bytes"] for run in group.runs),
        "memory_bytes_without_graph": most_without_graph([run.results for run in group.runs]),
        **_stages(group.runs),
        "buffer": _buffer(group.runs),
        "config": group.config,
        "environments": _environments(group.runs),
        **_samples(group.runs),
    }


def _rounded(scores: dict[str, Any]) -> list[list[float]]:
    return [[round(value, 2) for value in row] for row in scores["accuracy_matrix"]]


def _probability(results: dict[str, Any]) -> dict[str, Any] | None:
    """Takes what the page shows of probabilities; None for results of before they had it."""
    found = results.get("probability", {})
    shown = ("ece", "calibrated_on", "reliability", "confusion")
    return {key: found.get(key) for key in shown} if "reliability" in found else None


def _stages(runs: Sequence[Run]) -> dict[str, Any]:
    """Averages the seconds of each stage, in all and by task, and finds the memory kept."""
    names = sorted({name for run in runs for name in run.results["seconds"]} - {"total"})
    tasks = [run.events for run in runs]
    tasks = [events for events in tasks if len(events) == len(runs[0].results["tasks"])]
    by_task = []
    for records in zip(*tasks, strict=True):
        by_task.append(
            {
                "seconds": {
                    name: _mean([record.get("seconds", {}).get(name, 0.0) for record in records])
                    for name in names
                },
                "memory_bytes": max(record.get("memory_bytes", 0) for record in records),
                "edits": _edits([record.get("report") or {} for record in records]),
            }
        )
    return {
        "stages": {
            name: _mean([run.results["seconds"].get(name, 0.0) for run in runs]) for name in names
        },
        "by_task": by_task,
    }


def _edits(reports: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """Averages how many edges structure learning added and removed in a task."""
    parts = [report["structure"] for report in reports if report.get("structure")]
    if not parts:
        return None
    return {
        name: _mean([part[key] for part in parts])
        for name, key in (("added", "added_edges"), ("removed", "deleted_edges"))
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def _buffer(runs: Sequence[Run]) -> dict[str, Any]:
    """Averages what the diagnostics say about the buffer and the nodes around it."""
    facts = {}
    for name, (metric, view) in BUFFER_FACTS.items():
        values = [METRICS[metric].read(run.results, view) for run in runs]
        known = [value for value in values if value is not None]
        if known:
            facts[name] = _mean(known)
    return facts


def _environments(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Lists the different places where runs took place, with their seeds."""
    places: dict[str, dict[str, Any]] = {}
    for run in runs:
        found = run.environment
        place = places.setdefault(json.dumps(found), {"environment": found, "seeds": []})
        place["seeds"].append(run.results["seed"])
    return list(places.values())


def _samples(runs: Sequence[Run]) -> dict[str, Any]:
    """Takes embedding and edits of the first run that recorded them."""
    found: dict[str, Any] = {}
    seed, sample = _recorded(runs, "embedding_sample")
    if sample:
        components = [numbers(part) for part in sample["components"]]
        found["embedding"] = {
            "seed": seed,
            **{key: numbers(sample[key]) for key in ("nodes", "labels", "predicted")},
            "roles": sample["roles"],
            "components": components[:2],
            "explained": sample["explained"],
            "places": project(torch.tensor(components, dtype=torch.float32).T),
        }
    seed, edits = _recorded(runs, "edit_sample")
    if edits:
        keys = ("neighbours", "labels")
        nodes = [{**part, **{key: numbers(part[key]) for key in keys}} for part in edits]
        found["edited"] = {"seed": seed, "nodes": nodes}
    return found


def _recorded(runs: Sequence[Run], key: str) -> tuple[int | None, Any]:
    found = ((run.results["seed"], run.results["diagnostics"].get(key)) for run in runs)
    return next((pair for pair in found if pair[1]), (None, None))


def buffer_series(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Finds variants that differ in the buffer's size alone, two sizes or more.

    A series bears the shortest name among its variants.
    """
    families: dict[str, dict[int, str]] = {}
    for group in groups:
        config = dict(group.config)
        size = config.pop("settings.buffer_size", None)
        if size is not None:
            family = repr((group.runs[0].results["method"], sorted(config.items(), key=str)))
            families.setdefault(family, {})[size] = group.name
    return [
        {
            "name": min(sizes.values(), key=lambda name: (len(name), name)),
            "sizes": sorted(sizes.items()),
        }
        for sizes in families.values()
        if len(sizes) > 1
    ]
