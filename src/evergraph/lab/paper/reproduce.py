"""Reproduction: the runs that experiments need, each run once, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor
from typer import Option

from evergraph.config import (
    Presets,
    RunConfig,
    Variant,
    check_shared,
    parse_settings,
    resolve,
    settable_keys,
)
from evergraph.files import read_json
from evergraph.lab.diagnostics import project
from evergraph.lab.engines import Resources
from evergraph.lab.folder import read_checkpoint
from evergraph.lab.leaks import LEAK, leak_key, leaks_by_key, write_leak
from evergraph.lab.paper.experiments import QUICK, Experiment, Facts, Row
from evergraph.lab.paper.outcome import SCHEMA_VERSION, Outcome, judged, outcome_row
from evergraph.lab.runs import SetOption
from evergraph.lab.summary import overlap
from evergraph.lab.tables import PAPER_SEEDS
from evergraph.methods import METHODS
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

Runs = Mapping[str, Path]  # folders of finished runs and measured leaks by their keys


@dataclass(frozen=True)
class Request(Resources):
    """How experiments are to be run, and on what; its fields are options of the command.

    Times of runs that shared a machine say nothing: they may be left out.
    """

    quick: Annotated[bool, "Cora, two seeds, few epochs: shows that it works, proves nothing."] = (
        False
    )
    dataset: Annotated[list[str] | None, "A dataset; repeatable. [those of the paper]"] = None
    seeds: Annotated[int | None, "Number of seeds. [10; 2 with --quick]"] = None
    first_seed: Annotated[int, "First seed."] = 0
    sets: SetOption = None
    as_printed: Annotated[bool, "The paper's settings to the letter instead of ours."] = False
    times: Annotated[
        bool, Option(help="Show times, or leave out those of runs that ran together.")
    ] = True

    @cached_property
    def shared(self) -> dict[str, Any]:
        """Reads the settings for every method that has them."""
        shared = parse_settings(self.sets or [])
        check_shared(shared, list(METHODS))
        return shared

    @property
    def all_seeds(self) -> range:
        """Lists the seeds."""
        count = self.seeds or (QUICK["seeds"] if self.quick else PAPER_SEEDS)
        return range(self.first_seed, self.first_seed + count)

    def config(self, dataset: str, row: Row, seed: int) -> RunConfig:
        """Resolves a run; of the shared settings, the user's come before the quick ones."""
        method = Variant.parse(row.method)
        wanted = {**(QUICK["settings"] if self.quick else {}), **self.shared}
        known = settable_keys(method.name)
        shared = {key: value for key, value in wanted.items() if key in known}
        presets: Presets = "printed" if self.as_printed else "tuned"
        return resolve(Variant.parse_dataset(dataset), method, seed, shared, presets)


@dataclass(frozen=True)
class Part:
    """One experiment on one dataset: its rows and the run behind each row and seed."""

    experiment: Experiment
    facts: Facts
    rows: Sequence[Row]
    configs: Mapping[tuple[str, int], RunConfig]

    @property
    def keys(self) -> dict[tuple[str, int], str]:
        """Names what is behind each row and seed: a run by its hash, or what a leak is worth."""
        leaks = {row.name: row.shortcut for row in self.rows if row.shortcut}
        return {
            (name, seed): leak_key(config, leaks[name]) if name in leaks else config.hash
            for (name, seed), config in self.configs.items()
        }


def plan(experiments: Iterable[Experiment], request: Request) -> list[Part]:
    """Lists what has to be known, experiment by experiment and dataset by dataset."""
    parts = []
    for experiment in experiments:
        if request.as_printed and not has_settings(experiment):
            continue
        own = QUICK["datasets"] if request.quick else experiment.datasets
        for name in request.dataset or own:
            facts = find_facts(name, request.data_root)
            kept = experiment.quick if request.quick else None  # None for all
            rows = [r for r in experiment.rows(facts) if kept is None or r.name in kept]
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
        for key, config in zip(part.keys.values(), part.configs.values(), strict=True):
            if key == config.hash:
                runs.setdefault(key, config)
    return list(runs.values())


def measure_leaks(parts: Iterable[Part], output: Path, request: Request) -> None:
    """Measures what leaks are worth, as far as the folder does not have it."""
    done = set(leaks_by_key(output))
    for part in parts:
        graph, shortcuts = None, {row.name: row.shortcut for row in part.rows}
        for (name, seed), key in part.keys.items():
            if not shortcuts[name] or key in done:
                continue
            config = part.configs[name, seed]
            options = config.dataset_options or None
            graph = graph or load_graph(config.dataset, request.data_root, options)
            write_leak(output, config, shortcuts[name], graph, request.device)


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
        stream=protocol.stream,
    )


def conclude(parts: Sequence[Part], runs: Runs, request: Request) -> list[Outcome]:
    """Judges every experiment by its finished runs."""
    outcomes: list[Outcome] = []
    for name in dict.fromkeys(part.experiment.id for part in parts):
        mine = [part for part in parts if part.experiment.id == name]
        experiment = mine[0].experiment
        notes, lost, overlaps = list[str](), dict[str, list[str]](), dict[str, float]()
        for part in mine:
            if (note := why_no_times(part, runs, request)) is not None:
                notes.append(note)
            missing = {row for (row, _), key in part.keys.items() if key not in runs}
            if missing:
                lost[part.facts.dataset] = [r.name for r in part.rows if r.name in missing]
            protocols = (config.protocol for config in part.configs.values())
            overlaps[part.facts.dataset] = next(map(overlap, protocols), 0.0)
        outcome: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "experiment": name,
            "quick": request.quick,
            "as_printed": request.as_printed,
            "missing": lost,
            "notes": notes,
            "overlaps": overlaps,
            "rows": [row for part in mine for row in measure(part, runs, request)],
        }
        if request.sets:
            outcome["changed"] = ", ".join(request.sets)
        if experiment.figure["kind"] == "embedding":
            outcome["planes"], note = _planes(mine, runs)
            notes.append(note)
        outcomes.append(judged(outcome, experiment))
    return outcomes


def measure(part: Part, runs: Runs, request: Request) -> list[dict[str, Any]]:
    """Reads the rows of an outcome from finished runs; what is not there stays empty."""
    dataset, metrics = part.facts.dataset, part.experiment.metrics
    if why_no_times(part, runs, request) is not None:
        metrics = tuple(metric for metric in metrics if not metric.timed)
    found: dict[tuple[str, str], dict[int, float]]  # by row, metric and seed
    found = {(row.name, metric.key): {} for row in part.rows for metric in metrics}
    if part.experiment.describe is not None:
        described = part.experiment.describe(part.facts, request.data_root)
        found |= {(part.rows[0].name, key): {0: float(v)} for key, v in described.items()}
    rows = {row.name: row for row in part.rows}
    for (name, seed), key in part.keys.items():
        if key in runs:
            results = read_json(runs[key] / (LEAK if rows[name].shortcut else "results.json"))
            for metric in metrics:
                if (value := metric.read(results, rows[name].view)) is not None:
                    found[name, metric.key][seed] = value
    for metric in (metric for metric in metrics if metric.relative_to is not None):
        whole = dict(found[str(metric.relative_to), metric.key])
        for name in rows:
            mine = found[name, metric.key]
            found[name, metric.key] = {s: mine[s] / whole[s] for s in mine.keys() & whole.keys()}
    return [
        outcome_row(dataset, row, {metric.key: found[row.name, metric.key] for metric in metrics})
        for row in part.rows
    ]


def why_no_times(part: Part, runs: Runs, request: Request) -> str | None:
    """Says why the times of an experiment are left out, None where they are not or has none."""
    if not any(metric.timed for metric in part.experiment.metrics):
        return None
    if not request.times:
        return f"Times on {part.facts.dataset} are left out: --no-times."
    folders = {runs[config.hash] for config in part.configs.values() if config.hash in runs}
    known = [read_json(path) for run in folders if (path := run / "environment.json").exists()]
    machines = {f"{where.get('device_name')} with {where.get('cores')} cores" for where in known}
    if len(machines) < 2:
        return None
    where = f"{part.facts.dataset} were run on {' and '.join(sorted(machines))}"
    return f"Rows on {where}: their times cannot be compared and are left out."


def _planes(parts: Sequence[Part], runs: Runs) -> tuple[list[dict[str, Any]], str]:
    """Lays out the first task of the first runs that still have their checkpoints."""
    for part in parts:
        for seed in sorted({seed for _, seed in part.configs}):
            hashes = {row.name: part.configs[row.name, seed].hash for row in part.rows}
            folders = {name: runs[run] for name, run in hashes.items() if run in runs}
            plane = first_task_plane(folders) if len(folders) == len(hashes) else None
            if plane is not None:
                return [plane], f"The picture shows {part.facts.dataset}, seed {seed}."
    return [], "No picture: no finished run has its checkpoint; reproduce into an empty folder."


def first_task_plane(folders: Mapping[str, Path]) -> dict[str, Any] | None:
    """Projects the training nodes of the first task with t-SNE, from run folders by title.

    Runs of one seed that differ in their selector alone share the model of the first task, so
    that one plane serves all; each brings the nodes that it kept. Returns ``{"places", "labels",
    "kept"}`` as lists, None where a checkpoint is gone.
    """
    states = {}
    for title, folder in folders.items():
        state = read_checkpoint(folder / "checkpoint")
        if state is None:
            return None
        states[title] = state
    classes: Mapping[str, Mapping[str, Tensor]]
    classes = next(iter(states.values()))["done"][0]["embeddings"]
    h, nodes = (torch.cat([part[key] for part in classes.values()]) for key in ("h", "nodes"))
    labels = [int(label) for label, part in classes.items() for _ in part["nodes"]]
    kept = {}
    for title, state in states.items():
        picks: Mapping[str, Tensor] = state["method"]["buffer"]["picks"]
        kept[title] = torch.isin(nodes, torch.cat(list(picks.values()))).tolist()
    return {"places": project(h), "labels": labels, "kept": kept}
