"""Runs and comparisons from Python: what ``evergraph run`` and ``compare`` do, as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evergraph.config import Presets, RunConfig, Variant, check_shared, resolve
from evergraph.errors import InputError
from evergraph.events import Event
from evergraph.files import write_json
from evergraph.lab.engines import Resources
from evergraph.lab.grid import run_grid
from evergraph.lab.jobs import Job, make_jobs
from evergraph.lab.runs import execute
from evergraph.lab.summary import collect_results, summarise_grid
from evergraph.stream import Graph


def run(
    dataset: str | Graph = "cora",
    method: str = "dslr",
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    presets: Presets = "tuned",
    output: str | Path | None = None,
    on_event: Callable[[Event], None] | None = None,
    device: str = "auto",
    data_root: str | Path | None = None,
) -> dict[str, Any]:
    """Runs one method on one dataset with one seed, as ``evergraph run`` does.

    Args:
        dataset: A name, the path of an npz file, ``synthetic:nodes=5000``, or a graph itself.
        method: ``NAME[:key=value,...][@label]``.
        seed: Source of all randomness.
        settings: What ``--set`` takes.
        presets: Our settings, or ``printed``: the paper's to the letter.
        output: The run's folder, in which a killed run continues; without it nothing is left.
        on_event: Called with every :class:`~evergraph.events.Event` of the training loop.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where datasets are; ``EVERGRAPH_DATA`` by default.

    Returns:
        The content of ``results.json``: the accuracy matrix, PM, FM, Current, seconds and more.
    """
    graph = dataset if isinstance(dataset, Graph) else None
    name = graph.name if graph is not None else str(dataset)
    shared, variant = dict(settings or {}), Variant.parse(method)
    check_shared(shared, [variant.name])
    place = Variant.parse_dataset(name) if graph is None else Variant(name=name, label=name)
    config = resolve(place, variant, seed, shared, presets)
    with _folder(output) as folder:
        return execute(
            config,
            folder / "run" if output is None else folder,
            device=device,
            data_root=_root(data_root),
            on_event=on_event,
            graph=graph,
        )


def compare(
    datasets: str | Sequence[str] = "cora",
    methods: str | Sequence[str] = ("dslr", "replay"),
    seeds: int = 10,
    *,
    settings: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    jobs: int = 1,
    device: str = "auto",
    data_root: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Runs every method on every dataset over seeds 0 to ``seeds - 1``, as ``evergraph compare``.

    Args:
        datasets: Names or paths.
        methods: Each as ``NAME[:key=value,...][@label]``.
        seeds: How many.
        settings: For every method that has them.
        output: Folder of the grid, in which finished runs are never run again; without it
            nothing is left.
        jobs: Runs at a time, each in a process of its own.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where datasets are; ``EVERGRAPH_DATA`` by default.

    Returns:
        The content of ``summary.json``: mean and deviation of every metric by dataset and method.
    """
    graphs = [datasets] if isinstance(datasets, str) else list(datasets)
    variants = [
        Variant.parse(text) for text in ([methods] if isinstance(methods, str) else methods)
    ]
    shared = dict(settings or {})
    check_shared(shared, [variant.name for variant in variants])
    configs = [
        resolve(Variant.parse_dataset(graph), variant, seed, shared)
        for graph in graphs
        for variant in variants
        for seed in range(seeds)
    ]
    with _folder(output) as folder:
        failed = _run_all(configs, folder, jobs, device, _root(data_root))
        if failed:
            raise InputError(
                f"Expected every run to finish (got {len(failed)} failures, first {failed[0]}); "
                "correct the cause and call it again."
            )
        summary = summarise_grid(collect_results(folder / "runs"))
        if output is not None:
            write_json(folder / "summary.json", summary)
        return summary


def _run_all(
    configs: Sequence[RunConfig], folder: Path, jobs: int, device: str, data_root: Path | None
) -> list[str]:
    """Runs what is not finished in a grid's folder; returns what failed, and why."""
    reasons: list[str] = []

    def note(job: Job, results: dict[str, Any] | None, reason: str | None) -> None:
        if results is None:
            reasons.append(f"'{job.name}': {reason}")

    resources = Resources(jobs=jobs, device=device, data_root=data_root)
    run_grid(make_jobs(configs, folder), resources, on_done=note)
    return reasons


@contextmanager
def _folder(output: str | Path | None) -> Iterator[Path]:
    """Gives the folder to write to, one that vanishes where none is wanted."""
    if output is not None:
        yield Path(output)
        return
    with TemporaryDirectory(prefix="evergraph-") as name:
        yield Path(name)


def _root(data_root: str | Path | None) -> Path | None:
    named = data_root or os.environ.get("EVERGRAPH_DATA")
    return Path(named) if named else None
