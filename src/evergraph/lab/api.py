"""Runs and grids from Python: what ``evergraph run`` and ``compare`` do, as functions.

A grid is seeds × methods × datasets as jobs; a finished run is found again and never repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evergraph.config import Presets, RunConfig, Variant, check_shared, resolve
from evergraph.errors import InputError
from evergraph.events import OnEvent
from evergraph.files import make_folder, read_json, replacing, write_atomic, write_json
from evergraph.lab.engines import OnDone, OnMessage, Resources, run_locally, run_on_ray
from evergraph.lab.folder import Run, finished_runs, make_runs
from evergraph.lab.runs import Place, execute, identify
from evergraph.lab.summary import collect_results, compare_pairs, summarise_grid
from evergraph.lab.tables import Sheet, as_markdown, comparison_sheet, grid_sheet, stream_sheet
from evergraph.launch import check_workers, launch
from evergraph.methods import METHODS
from evergraph.stream import Graph

#: What is told of a job that did not have to run.
FINISHED_BEFORE = "finished before"


def run(
    dataset: str | Graph = "cora",
    method: str = "dslr",
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    presets: Presets = "tuned",
    output: str | Path | None = None,
    on_event: OnEvent | None = None,
    device: str = "auto",
    data_root: str | Path | None = None,
    workers: int | Mapping[str, Any] = 1,
) -> dict[str, Any]:
    """Runs one method on one dataset with one seed, as ``evergraph run`` does.

    Args:
        dataset: A name, the path of an npz file, ``synthetic:nodes=5000``, or a graph itself.
        method: ``NAME[:key=value,...][@label]``.
        seed: Seed of all randomness.
        settings: What ``--set`` takes.
        presets: ``tuned`` for our settings, ``printed`` for the paper's to the letter.
        output: Folder of the run, in which a killed run continues; None leaves no files.
        on_event: Called with every :class:`~evergraph.events.Event` of the training loop.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where datasets are; ``EVERGRAPH_DATA`` by default.
        workers: How many processes share the run; or a mapping that also has ``engine``,
            ``address`` and ``gpus_per_worker``.

    Returns:
        The content of ``results.json``: the accuracy matrix, PM, FM, Current, seconds and more.
    """
    graph, how = dataset if isinstance(dataset, Graph) else None, check_workers(workers)
    name = graph.name if graph is not None else str(dataset)
    shared, variant = dict(settings or {}), Variant.parse(method)
    check_shared(shared, [variant.name])
    place = Variant.parse_dataset(name) if graph is None else Variant(name=name, label=name)
    config = resolve(place, variant, seed, shared, presets)
    with TemporaryDirectory(prefix="evergraph-") as passing:
        folder = Path(passing, "run") if output is None else Path(output)
        where = Place(device, Path(data_root) if data_root else None)
        described = Run(folder, config)
        if workers == 1:
            return execute(described, where, on_event, graph)
        if graph is not None or on_event is not None:
            what = "on_event" if graph is None else "dataset"
            raise InputError(
                f"Expected a dataset by its name, and no 'on_event', with several workers (got "
                f"another '{what}'); leave 'workers' out."
            )
        described.claim()
        there = ["--data-root", str(data_root)] if data_root else []
        launch(("resume", str(folder), "--device", device, *there), **how, quiet=True)
        return described.results


def compare(
    datasets: str | Sequence[str] = "cora",
    methods: str | Sequence[str] = ("dslr", "replay"),
    seeds: int = 10,
    *,
    settings: Mapping[str, Any] | None = None,
    presets: Presets = "tuned",
    output: str | Path | None = None,
    jobs: int = 1,
    device: str = "auto",
    data_root: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Runs every method on every dataset over seeds 0 to ``seeds - 1``, as ``evergraph compare``.

    Args:
        datasets: Names or paths.
        methods: Each as ``NAME[:key=value,...][@label]``; ``all`` stands for all others.
        seeds: Number of seeds.
        settings: Settings for every method that has them.
        presets: ``tuned`` for our settings, ``printed`` for the paper's to the letter.
        output: Folder of the grid, in which finished runs are never run again; None leaves no
            files.
        jobs: Runs at a time, each in its own process.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where datasets are; ``EVERGRAPH_DATA`` by default.

    Returns:
        The content of ``summary.json``: mean and standard deviation of every metric, by dataset
        and method.
    """
    graphs = [datasets] if isinstance(datasets, str) else list(datasets)
    words = [methods] if isinstance(methods, str) else list(methods)
    configs = grid_configs(graphs, words, seeds, settings or {}, presets)
    root = Path(data_root) if data_root else None
    resources = Resources(device, root, jobs=jobs)
    with TemporaryDirectory(prefix="evergraph-") as passing:
        folder = Path(passing if output is None else output)
        check_finished(run_grid(make_runs(configs, folder), resources))
        return summarise(folder, configs[0].label)[0]


def summarise(output: Path, reference: str | None) -> tuple[list[dict[str, Any]], list[Sheet]]:
    """Writes the summary of everything in a grid's folder; returns it, also as tables.

    Without a ``reference``, dslr is compared with the others, or what comes first.
    """
    make_folder(output)
    results = collect_results(output / "runs")
    summary = summarise_grid(results)
    if reference is None:
        reference = min((entry["label"] for entry in summary), key=lambda label: label != "dslr")
    comparisons = compare_pairs(results, reference)
    write_json(output / "summary.json", summary)
    write_json(output / "comparisons.json", comparisons)
    sheets = [grid_sheet(summary), stream_sheet(summary), comparison_sheet(comparisons)]
    sheets = [sheet for sheet in sheets if sheet.rows]
    write_atomic(output / "summary.md", as_markdown(sheets).encode())
    return summary, sheets


def parse_methods(words: Sequence[str]) -> list[Variant]:
    """Reads methods as written; ``all`` stands for every one that is not written, DSLR first."""
    every = sorted(METHODS, key=lambda name: name != "dslr")
    rest = [name for name in every if name not in words]
    texts = [text for word in words for text in (rest if word == "all" else [word])]
    return [Variant.parse(text) for text in texts]


def grid_configs(
    datasets: Iterable[str],
    methods: Sequence[str],
    seeds: int,
    shared: Mapping[str, Any],
    presets: Presets = "tuned",
) -> list[RunConfig]:
    """Describes the runs of every method, as written, on every dataset, seeds from 0 on."""
    variants = parse_methods(methods)
    check_shared(shared, [variant.name for variant in variants])
    return [
        resolve(Variant.parse_dataset(dataset), variant, seed, shared, presets)
        for dataset in datasets
        for variant in variants
        for seed in range(seeds)
    ]


def run_grid(
    runs: Sequence[Run],
    resources: Resources | None = None,
    on_message: OnMessage = lambda *told: None,
    on_done: OnDone = lambda run, results, note: None,
) -> dict[str, str]:
    """Runs what is not finished; returns why some failed, by their names.

    ``on_message`` takes progress where the engine knows of any, ``on_done`` each run with its
    results and None or :data:`FINISHED_BEFORE`, or with no results and why it failed.
    """
    resources = resources or Resources()
    waiting = []
    for run in runs:
        results = run.finished()
        if results is None:
            waiting.append(run)
        else:
            on_done(run, results, FINISHED_BEFORE)
    engine = run_on_ray if resources.engine == "ray" else run_locally
    return engine(waiting, resources, on_message, on_done) if waiting else {}


def check_finished(failed: Mapping[str, str]) -> None:
    """Refuses to go on where jobs failed; what others brought is kept."""
    if failed:
        name, reason = next(iter(failed.items()))
        raise InputError(
            f"Expected every job to finish (got {len(failed)} failures, first '{name}': "
            f"{reason}); correct the cause and run the same again."
        )


def merge_runs(
    output: Path, sources: Sequence[Path], wanted: Iterable[RunConfig] | None = None
) -> int:
    """Copies finished runs made elsewhere into a grid's folder; returns how many were new.

    A run is recognised by its configuration as this release reads it, so that runs of earlier
    releases and under other labels serve as well; the copy is written as this release would. Of
    runs that are ``wanted`` the labels are taken as well; None takes every run as it is.
    """
    labelled = None if wanted is None else {config.hash: config for config in wanted}
    found: dict[tuple[str, str], tuple[Path, RunConfig]] = {}
    for source in sources:  # everything is checked before anything is copied
        there = finished_runs(source)
        if not there:
            raise InputError(
                f"Expected '--merge' to name a folder with finished runs (got '{source}'); "
                "check the path."
            )
        for run in there:
            config = run.config if labelled is None else labelled.get(run.config.hash)
            if config is not None:
                found.setdefault((config.hash, config.label), (run.path, config))
    copies = make_runs([config for _, config in found.values()], output)
    new = [
        (path, copy)
        for (path, _), copy in zip(found.values(), copies, strict=True)
        if copy.finished() is None
    ]
    for path, copy in new:
        with replacing(copy.path) as beside:
            shutil.copytree(path, beside)
            results = read_json(beside / "results.json")
            write_json(beside / "results.json", {**results, **identify(copy.config)})
            write_atomic(beside / "config.yaml", copy.config.to_yaml().encode())
    return len(new)


def runs_by_hash(output: Path) -> dict[str, Run]:
    """Finds the finished runs of a grid's folder by the hash of their configuration."""
    return {run.config.hash: run for run in finished_runs(output / "runs")}
