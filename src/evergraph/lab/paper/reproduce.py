"""Reproduction: the runs that experiments need, each run once, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.config import Presets, RunConfig, Variant, resolve, settable_keys
from evergraph.lab.grid import RunCache
from evergraph.lab.paper.contrasts import Table
from evergraph.lab.paper.experiment import Experiment, Facts, Row
from evergraph.lab.paper.outcome import SCHEMA_VERSION, Outcome, judged, table_rows
from evergraph.lab.paper.projection import first_task_plane
from evergraph.lab.summary import overlap
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

#: What ``--quick`` changes: enough to see every experiment work, not to judge one.
QUICK_SETTINGS: dict[str, Any] = {
    "epochs": 25,
    "link_epochs": 10,
    "num_nodes": 32,
    "num_probes": 8,
    "controller_steps": 1,
}
QUICK_DATASETS = ("cora",)
QUICK_SEEDS = 2
FULL_SEEDS = 10


@dataclass(frozen=True)
class Request:
    """How experiments are to be run.

    Attributes:
        quick: Few epochs, few rows, embedded data.
        datasets: Instead of each experiment's own.
        seeds: How many; None takes 10, or 2 when quick.
        shared: Settings for every method that has them.
        data_root: Where graphs are.
        as_printed: The paper's settings to the letter instead of ours.
        first_seed: Where the seeds begin.
        times: Whether times are shown; those of runs that shared a machine say nothing.
    """

    quick: bool = False
    datasets: tuple[str, ...] | None = None
    seeds: int | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    data_root: Path | None = None
    as_printed: bool = False
    first_seed: int = 0
    times: bool = True

    @property
    def all_seeds(self) -> range:
        """Lists the seeds."""
        count = self.seeds or (QUICK_SEEDS if self.quick else FULL_SEEDS)
        return range(self.first_seed, self.first_seed + count)

    def config(self, dataset: str, row: Row, seed: int) -> RunConfig:
        """Resolves a run; of the shared settings, the user's come before the quick ones."""
        method = Variant.parse(row.method)
        wanted = {**(QUICK_SETTINGS if self.quick else {}), **self.shared}
        known = settable_keys(method.name)
        shared = {key: value for key, value in wanted.items() if key in known}
        presets: Presets = "printed" if self.as_printed else "tuned"
        return resolve(Variant.parse_dataset(dataset), method, seed, shared, presets)


@dataclass(frozen=True)
class Part:
    """One experiment on one dataset: its rows and the run behind each row and seed."""

    experiment: Experiment
    facts: Facts
    rows: tuple[Row, ...]
    configs: Mapping[tuple[str, int], RunConfig]


def plan(experiments: Iterable[Experiment], request: Request) -> list[Part]:
    """Lists what has to be known, experiment by experiment and dataset by dataset."""
    parts = []
    for experiment in experiments:
        if request.as_printed and not has_settings(experiment):
            continue
        own = QUICK_DATASETS if request.quick else experiment.datasets
        for name in request.datasets or own:
            facts = find_facts(name, request.data_root)
            rows = tuple(experiment.rows(facts))
            if request.quick and experiment.quick_rows is not None:
                rows = tuple(row for row in rows if row.name in experiment.quick_rows)
            seeds = request.all_seeds if experiment.describe is None else ()
            configs = {(row.name, i): request.config(name, row, i) for row in rows for i in seeds}
            parts.append(Part(experiment, facts, rows, configs))
    return parts


def has_settings(experiment: Experiment) -> bool:
    """Tells whether the paper's settings may tell more: it trains and is about more than time."""
    if not experiment.in_paper or experiment.describe is not None:
        return False
    return not all(metric.timed for metric in experiment.metrics)


def needed_runs(parts: Iterable[Part]) -> list[RunConfig]:
    """Lists every run once: rows that come to the same configuration share it."""
    runs: dict[str, RunConfig] = {}
    for part in parts:
        for config in part.configs.values():
            runs.setdefault(config.hash, config)
    return list(runs.values())


@lru_cache(maxsize=8)
def find_facts(dataset: str, data_root: Path | None) -> Facts:
    """Looks at a dataset's stream under its protocol; sizes do not depend on the seed."""
    variant = Variant.parse_dataset(dataset)
    graph = load_graph(variant.name, data_root, variant.options or None)
    protocol = protocol_for(variant.name)
    stream = TaskStream(graph, protocol)
    return Facts(
        dataset,
        num_train=sum(task.train_nodes.numel() for task in stream.tasks),
        num_tasks=stream.num_tasks,
        num_classes=stream.num_classes,
        classes_per_task=protocol.classes_per_task,
    )


def conclude(parts: Sequence[Part], cache: RunCache, request: Request) -> list[Outcome]:
    """Judges every experiment by its finished runs."""
    outcomes: list[Outcome] = []
    for name in dict.fromkeys(part.experiment.id for part in parts):
        mine = [part for part in parts if part.experiment.id == name]
        experiment = mine[0].experiment
        metrics = [metric.key for metric in experiment.metrics]
        lost = {part.facts.dataset: _missing(part, cache) for part in mine}
        notes = [note for part in mine if (note := why_no_times(part, cache, request))]
        outcome: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "experiment": name,
            "quick": request.quick,
            "as_printed": request.as_printed,
            "missing": {dataset: rows for dataset, rows in lost.items() if rows},
            "notes": notes,
            "overlaps": {part.facts.dataset: _overlap(part) for part in mine},
            "rows": [
                row for part in mine for row in table_rows(measure(part, cache, request), metrics)
            ],
        }
        if experiment.figure.kind == "embedding":
            outcome["planes"], note = _planes(mine, cache)
            notes.append(note)
        outcomes.append(judged(outcome, experiment))
    return outcomes


def _overlap(part: Part) -> float:
    return next((overlap(config.protocol) for config in part.configs.values()), 0.0)


def _missing(part: Part, cache: RunCache) -> list[str]:
    """Lists the rows of which not every run is finished."""
    lost = {name for (name, _), config in part.configs.items() if config.hash not in cache}
    return [row.name for row in part.rows if row.name in lost]


def measure(part: Part, cache: RunCache, request: Request) -> Table:
    """Reads the part's metrics from its finished runs; what is not there stays empty."""
    rows = {row.name: row for row in part.rows}
    metrics = part.experiment.metrics
    if why_no_times(part, cache, request) is not None:
        metrics = tuple(metric for metric in metrics if not metric.timed)
    seeds = [*dict.fromkeys(seed for _, seed in part.configs)] or [0]
    keys = [(name, metric.key) for name in rows for metric in metrics]
    values = {key: np.full(len(seeds), np.nan) for key in keys}
    if part.experiment.describe is not None:
        described = part.experiment.describe(part.facts, request.data_root)
        values = {(name, key): np.array([v]) for name in rows for key, v in described.items()}
    for (name, seed), config in part.configs.items():
        results = cache.results(config.hash)
        for metric in metrics:
            value = None if results is None else metric.read(results, rows[name])
            values[name, metric.key][seeds.index(seed)] = np.nan if value is None else value
    for metric in metrics:
        if metric.relative_to is not None:
            whole = values[metric.relative_to, metric.key].copy()
            for name in rows:
                values[name, metric.key] /= whole
    better = {metric.key: metric.better for metric in metrics}
    return Table(part.facts.dataset, part.rows, seeds, values, better)


def why_no_times(part: Part, cache: RunCache, request: Request) -> str | None:
    """Says why the times of an experiment are left out, None where they are not or has none."""
    if not any(metric.timed for metric in part.experiment.metrics):
        return None
    if not request.times:
        return f"Times on {part.facts.dataset} are left out: --no-times."
    machines = sorted({m for c in part.configs.values() if (m := cache.machine(c.hash))})
    if len(machines) < 2:
        return None
    where = f"{part.facts.dataset} were run on {' and '.join(machines)}"
    return f"Rows on {where}: their times cannot be compared and are left out."


def _planes(parts: Sequence[Part], cache: RunCache) -> tuple[list[dict[str, Any]], str]:
    """Lays out the first task of the first runs that still have their checkpoints."""
    for part in parts:
        for seed in sorted({seed for _, seed in part.configs}):
            hashes = {row.name: part.configs[row.name, seed].hash for row in part.rows}
            folders = {name: cache.folders[run] for name, run in hashes.items() if run in cache}
            plane = first_task_plane(folders) if len(folders) == len(hashes) else None
            if plane is not None:
                return [plane], f"The picture shows {part.facts.dataset}, seed {seed}."
    return [], "No picture: no finished run has its checkpoint; reproduce into an empty folder."
