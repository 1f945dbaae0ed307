"""Reproduction: the runs that experiments need, each run once, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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
from evergraph.lab.diagnostics import project
from evergraph.lab.engines import Resources
from evergraph.lab.folder import Run
from evergraph.lab.leaks import leak_key, leaks_by_key, write_leak
from evergraph.lab.paper.experiments import QUICK, Experiment, Facts, Row
from evergraph.lab.paper.outcome import SCHEMA_VERSION, Outcome, judged, outcome_row
from evergraph.lab.runs import SetOption, graph_of
from evergraph.lab.summary import grouped, overlap
from evergraph.lab.tables import PAPER_SEEDS
from evergraph.methods import METHODS
from evergraph.stream import TaskStream, protocol_for

Runs = Mapping[str, Run]  # finished runs and measured leaks by their keys


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


class Needed(NamedTuple):
    """What a row needs of a seed: a run, or what a leak is worth if it has a shortcut."""

    config: RunConfig
    shortcut: str

    @property
    def key(self) -> str:
        """Names it: a run by its hash."""
        return leak_key(*self) if self.shortcut else self.config.hash


class Part(NamedTuple):
    """One experiment on one dataset: its rows, and what is behind each by its name and seed."""

    experiment: Experiment
    facts: Facts
    rows: Sequence[Row]
    needs: Mapping[tuple[str, int], Needed]


def plan(experiments: Iterable[Experiment], request: Request) -> list[Part]:
    """Lists what has to be known, experiment by experiment and dataset by dataset."""
    parts = []
    for experiment in experiments:
        if request.as_printed and not experiment.has_settings:
            continue
        own = QUICK["datasets"] if request.quick else experiment.datasets
        for name in request.dataset or own:
            facts = find_facts(name, request.data_root)
            kept = experiment.quick if request.quick else None  # None for all
            rows = [r for r in experiment.rows(facts) if kept is None or r.name in kept]
            seeds = () if experiment.looked_up else request.all_seeds
            needs = {
                (row.name, seed): Needed(request.config(name, row, seed), row.shortcut)
                for row in rows
                for seed in seeds
            }
            parts.append(Part(experiment, facts, rows, needs))
    return parts


def needed_runs(parts: Iterable[Part]) -> list[RunConfig]:
    """Lists every run once: rows that come to the same configuration share it."""
    runs: dict[str, RunConfig] = {}
    for need in (need for part in parts for need in part.needs.values()):
        if not need.shortcut:
            runs.setdefault(need.key, need.config)
    return list(runs.values())


def measure_leaks(parts: Iterable[Part], output: Path, request: Request) -> None:
    """Measures what leaks are worth, as far as the folder does not have it."""
    done = leaks_by_key(output)
    for need in (need for part in parts for need in part.needs.values()):
        config = need.config
        if need.shortcut and need.key not in done:
            graph = graph_of(config.dataset, request.data_root, **config.dataset_options)
            write_leak(output, config, need.shortcut, graph, request.device)


@lru_cache(maxsize=8)
def find_facts(dataset: str, data_root: Path | None) -> Facts:
    """Looks at a dataset's stream under its protocol; sizes do not depend on the seed."""
    variant = Variant.parse_dataset(dataset)
    graph = graph_of(variant.name, data_root, **variant.options)
    protocol = protocol_for(variant.name)
    stream = TaskStream(graph, protocol)
    return Facts(
        dataset,
        num_train=sum(task.train_nodes.numel() for task in stream.tasks),
        num_tasks=stream.num_tasks,
        num_classes=stream.num_classes,
        classes_per_task=protocol.classes_per_task,
        stream=protocol.stream,
        num_nodes=graph.num_nodes,
        num_edges=graph.edges.shape[1],
        num_features=graph.x.shape[1],
    )


def conclude(parts: Sequence[Part], runs: Runs, request: Request) -> list[Outcome]:
    """Judges every experiment by its finished runs."""
    outcomes: list[Outcome] = []
    for name, mine in grouped(parts, lambda part: part.experiment.id).items():
        experiment = mine[0].experiment
        notes = [note for part in mine if (note := why_no_times(part, runs, request)) is not None]
        lost, overlaps = dict[str, list[str]](), dict[str, float]()
        for part in mine:
            missing = dict.fromkeys(row for (row, _), n in part.needs.items() if n.key not in runs)
            if missing:
                lost[part.facts.dataset] = [*missing]
            protocols = (need.config.protocol for need in part.needs.values())
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
    timed = why_no_times(part, runs, request) is None
    metrics = [metric for metric in part.experiment.metrics if timed or not metric.timed]
    results = {place: runs[n.key].results for place, n in part.needs.items() if n.key in runs}
    if part.experiment.looked_up:
        results = {(part.rows[0].name, 0): part.facts.looked_up()}
    found: dict[str, dict[str, dict[int, float]]] = {}  # by row, metric and seed
    for row in part.rows:
        mine = {seed: one for (name, seed), one in results.items() if name == row.name}
        found[row.name] = {
            m.key: {s: v for s, one in mine.items() if (v := m.read(one, row.view)) is not None}
            for m in metrics
        }
    for metric in (metric for metric in metrics if metric.relative_to is not None):
        whole = found[str(metric.relative_to)][metric.key]
        for values in found.values():
            both = values[metric.key].keys() & whole.keys()
            values[metric.key] = {seed: values[metric.key][seed] / whole[seed] for seed in both}
    return [outcome_row(part.facts.dataset, row, found[row.name]) for row in part.rows]


def why_no_times(part: Part, runs: Runs, request: Request) -> str | None:
    """Says why the times of an experiment are left out, None where they are not or has none."""
    if not any(metric.timed for metric in part.experiment.metrics):
        return None
    if not request.times:
        return f"Times on {part.facts.dataset} are left out: --no-times."
    found = {runs[need.key] for need in part.needs.values() if need.key in runs}
    known = [place for run in found if (place := run.environment)]
    machines = {f"{place.get('device_name')} with {place.get('cores')} cores" for place in known}
    if len(machines) < 2:
        return None
    where = f"{part.facts.dataset} were run on {' and '.join(sorted(machines))}"
    return f"Rows on {where}: their times cannot be compared and are left out."


def _planes(parts: Sequence[Part], runs: Runs) -> tuple[list[dict[str, Any]], str]:
    """Projects the training nodes of the first task of some dataset and seed with t-SNE.

    Runs of one seed that differ in their selector alone share the model of the first task, so
    that one plane serves all; each brings the nodes that it kept. Returns ``{"places", "labels",
    "kept"}`` of the first that all have their checkpoints, and what is to be told of it.
    """
    for part in parts:
        for seed in sorted({seed for _, seed in part.needs}):
            keys = {row.name: part.needs[row.name, seed].key for row in part.rows}
            found = [runs[key] for key in keys.values() if key in runs]
            states = [state for run in found if (state := run.read_checkpoint()) is not None]
            if len(states) < len(keys):
                continue
            classes: Mapping[str, Mapping[str, Tensor]] = states[0]["done"][0]["embeddings"]
            h, nodes = (torch.cat([one[key] for one in classes.values()]) for key in ("h", "nodes"))
            labels = [int(label) for label, one in classes.items() for _ in one["nodes"]]
            picks = [torch.cat([*state["method"]["buffer"]["picks"].values()]) for state in states]
            kept = [torch.isin(nodes, mine).tolist() for mine in picks]
            plane = {"places": project(h), "labels": labels}
            plane["kept"] = dict(zip(keys, kept, strict=True))
            return [plane], f"The picture shows {part.facts.dataset}, seed {seed}."
    return [], "No picture: no finished run has its checkpoint; reproduce into an empty folder."
