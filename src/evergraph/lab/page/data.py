"""What the page shows, as plain values: the figures for papers are drawn from the same.

The runs below a folder are grouped: those that differ in their seed alone are one variant, and all
variants that were run on one graph under one protocol, and so may be compared, are a dataset.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from evergraph import __version__
from evergraph.config import SECTIONS
from evergraph.errors import InputError
from evergraph.files import read_json
from evergraph.lab.diagnostics import numbers, project
from evergraph.lab.folder import Run, find_runs
from evergraph.lab.paper.contrasts import NOT_LEARNT
from evergraph.lab.paper.experiments import METRICS
from evergraph.lab.summary import (
    difference_to_claim,
    estimate,
    grouped,
    most_memory,
    overlap,
    quantile,
)
from evergraph.lab.tables import METRICS as SCORES
from evergraph.lab.tables import claimed, learns_from
from evergraph.stream.datasets import DATASETS

#: Numbers about the buffer and the nodes around it, averaged over seeds: metric and view.
BUFFER_FACTS: dict[str, tuple[str, Literal["before", "after"]]] = {
    **{key: (key, "after") for key in ("diversity", "centre", "low_degree", "high_degree")},
    **{f"{key}_before": (key, "before") for key in ("homophily", "degree", "isolated")},
    **{f"{key}_after": (key, "after") for key in ("homophily", "degree", "isolated")},
}


#: What is shown of probabilities.
PROBABILITY = ("ece", "calibrated_on", "reliability", "confusion")


class Group(NamedTuple):
    """Runs of one variant on one dataset, by seed, and their settings as ``section.key``."""

    name: str
    runs: list[Run]
    config: dict[str, Any]


def page_data(folder: Path) -> dict[str, Any]:
    """Describes a run folder, a grid, or any folder with run folders below, always the same."""
    if not folder.is_dir():
        raise InputError(f"Expected a folder with runs (got '{folder}'); check the path.")
    found, runs = find_runs(folder), dict[tuple[str, str], Run]()
    finished = [run for run in found if run.is_finished]
    for run in finished:  # others are copies
        runs.setdefault((run.results["config_hash"], run.results["graph"]), run)
    if not runs:
        got = f"{len(found)} unfinished" if found else "none"
        raise InputError(
            f"Expected '{folder}' to hold a finished run (got {got}); check the path or finish a "
            "run first."
        )

    def paths(of: Sequence[Run], but: Sequence[Run]) -> list[str]:
        return sorted(str(run.path.relative_to(folder)) for run in of if run not in but)

    datasets = _datasets([*runs.values()])
    every = [group for groups in datasets.values() for group in groups]
    names, reference = sorted({group.name for group in every}), None
    with suppress(InputError, TypeError, LookupError):  # there is none
        reference = read_json(folder / "comparisons.json")[0]["reference"]
    first = [name for name in (reference, "dslr") if name in names][:1]
    return {
        "title": folder.resolve().name,
        "version": __version__,
        "num_runs": len(runs),
        "unfinished": paths(found, but=finished),
        "copies": paths(finished, but=[*runs.values()]),
        # First the variant that others are compared with, then by name.
        "order": first + [name for name in names if name not in first],
        "not_learnt": NOT_LEARNT,
        "quantiles": [quantile(freedom) for freedom in range(1, max(len(g.runs) for g in every))],
        "datasets": [_dataset(*dataset) for dataset in datasets.items()],
    }


def _datasets(runs: Sequence[Run]) -> dict[str, list[Group]]:
    """Groups runs by dataset, with names that tell these apart with as few words as that takes."""

    def words(run: Run) -> tuple[str, ...]:
        found = run.results
        return found["dataset"], found["evaluated_on"], found["protocol_hash"], found["graph"]

    parts = grouped(runs, words)
    order = list(DATASETS)  # others come after them
    named = {}
    for key, part in parts.items():
        others = [other for other in parts if other != key]
        length = next((n for n in (1, 2, 3) if key[:n] not in {o[:n] for o in others}), 4)
        name = " · ".join([*key[:2], key[2][:6], key[3][:6]][:length])
        place = order.index(key[0]) if key[0] in order else len(order)
        named[place, name] = _groups(part)
    return {name: groups for (_, name), groups in sorted(named.items(), key=lambda item: item[0])}


def _groups(runs: Sequence[Run]) -> list[Group]:
    """Groups runs of one dataset by variant; labels that several share get what differs."""
    parts = grouped(runs, lambda run: (run.results["label"], run.results["variant_hash"]))
    configs = {}
    for key, part in parts.items():
        content = part[0].config.model_dump(mode="json", include={"settings", *SECTIONS})
        configs[key] = {f"{s}.{name}": v for s, part in content.items() for name, v in part.items()}
    groups = []
    for (label, variant), part in parts.items():
        config = configs[label, variant]
        alike = [configs[key] for key in parts if key[0] == label]
        differing = {
            key.split(".")[-1]: value
            for key, value in config.items()
            if any(other.get(key) != value for other in alike)
        }
        words = ", ".join(f"{key}={value}" for key, value in sorted(differing.items()))
        name = label if len(alike) == 1 else f"{label} ({words or variant[:6]})"
        groups.append(Group(name, sorted(part, key=lambda run: int(run.results["seed"])), config))
    return groups


def _dataset(name: str, groups: Sequence[Group]) -> dict[str, Any]:
    first = groups[0].runs[0]
    shared = overlap(first.config.protocol)
    return {
        "name": name,
        "overlap": shared,
        "class_names": first.results["class_names"],
        "tasks": first.results["tasks"],
        "steps": first.results.get("stream", {}).get("steps"),  # names of tasks in time
        "evaluated_on": first.results["evaluated_on"],
        "groups": [_group(group, shared) for group in groups],
        "sizes": buffer_series(groups),
    }


def _group(group: Group, overlap: float) -> dict[str, Any]:
    results = [run.results for run in group.runs]
    first = results[0]
    values = {key: [found[key] for found in results] for key in SCORES}
    totals = [found["seconds"]["total"] for found in results]
    matrices = {"task": results}  # by task, by class, and by task with the task known
    for name, key in (("class", "by_class"), ("known", "task_incremental")):
        matrices[name] = [found[key] for found in results]
    buffer = {
        name: _mean([METRICS[metric].read(found, view) for found in results])
        for name, (metric, view) in BUFFER_FACTS.items()
    }
    places: dict[str, dict[str, Any]] = {}  # where runs took place, with their seeds
    for run in group.runs:
        where = run.environment
        place = places.setdefault(json.dumps(where), {"environment": where, "seeds": []})
        place["seeds"].append(run.results["seed"])
    return {
        "name": group.name,
        "method": first["method"],
        "learns_from": learns_from(first["method"], first["settings"]),
        # A selector names a row of the paper's; any other setting makes it another run.
        "other_settings": bool(set(first["overrides"]) - {"selector"}),
        "seeds": [found["seed"] for found in results],
        **values,
        "estimates": {
            **{key: estimate(part, overlap) for key, part in values.items()},
            "seconds": estimate(totals),
        },
        "claims": {
            key: {**claim, **difference_to_claim(values[key], claim, overlap)}
            for key, claim in claimed(first).items()
        },
        "matrices": {
            name: [[[round(v, 2) for v in row] for row in one["accuracy_matrix"]] for one in part]
            for name, part in matrices.items()
        },
        # None for results of before they had it.
        "probability": [
            {key: found.get(key) for key in PROBABILITY} if "reliability" in found else None
            for found in (run.get("probability", {}) for run in results)
        ],
        **most_memory(results),
        **_stages(group.runs),
        "buffer": {name: value for name, value in buffer.items() if value is not None},
        "config": group.config,
        "environments": list(places.values()),
        **_samples(results),
    }


def _stages(runs: Sequence[Run]) -> dict[str, Any]:
    """Averages the seconds of each stage, in all and by task, and finds the memory kept."""
    names = sorted({name for run in runs for name in run.results["seconds"]} - {"total"})

    def seconds(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
        parts = [record.get("seconds", {}) for record in records]
        return {name: _mean([part.get(name, 0.0) for part in parts]) for name in names}

    tasks = [run.events for run in runs]
    tasks = [events for events in tasks if len(events) == len(runs[0].results["tasks"])]
    by_task = []
    for records in zip(*tasks, strict=True):
        reports = [(record.get("report") or {}).get("structure") for record in records]
        edits = {
            name: _mean([report and report[key] for report in reports])
            for name, key in (("added", "added_edges"), ("removed", "deleted_edges"))
        }
        memory = max(record.get("memory_bytes", 0) for record in records)
        shown = edits if any(reports) else None
        by_task.append({"seconds": seconds(records), "memory_bytes": memory, "edits": shown})
    return {"stages": seconds([run.results for run in runs]), "by_task": by_task}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def _samples(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Takes embedding and edits of the first run that recorded them."""
    found: dict[str, Any] = {}
    for run in reversed(results):
        if sample := run["diagnostics"].get("embedding_sample"):
            found["embedding"] = {
                "seed": run["seed"],
                **{key: numbers(sample[key]) for key in ("nodes", "labels", "predicted")},
                "roles": sample["roles"],
                "components": [numbers(part) for part in sample["components"]],
                "explained": sample["explained"],
            }
        if edits := run["diagnostics"].get("edit_sample"):
            keys = ("neighbours", "labels")
            nodes = [{**part, **{key: numbers(part[key]) for key in keys}} for part in edits]
            found["edited"] = {"seed": run["seed"], "nodes": nodes}
    if shown := found.get("embedding"):
        shown["places"] = project(torch.tensor(shown["components"], dtype=torch.float32).T)
        shown["components"] = shown["components"][:2]
    return found


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
