"""Grids: seeds × methods × datasets as jobs; a finished run is found again and never repeated."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evergraph.config import Presets, RunConfig, Variant, check_shared, resolve
from evergraph.errors import InputError
from evergraph.files import read_json, replacing, write_atomic, write_json
from evergraph.lab.engines import OnDone, OnMessage, Resources, run_locally, run_on_ray
from evergraph.lab.folder import Job, finished_runs, make_jobs, read_config
from evergraph.lab.runs import identify
from evergraph.methods import METHODS

#: What is told of a job that did not have to run.
FINISHED_BEFORE = "finished before"


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
    jobs: Sequence[Job],
    resources: Resources | None = None,
    on_message: OnMessage = lambda message: None,
    on_done: OnDone = lambda job, results, note: None,
) -> dict[str, str]:
    """Runs every job that is not finished; returns why some failed, by their names.

    Args:
        jobs: The runs and their folders.
        resources: What they run on; worker processes on this machine by default.
        on_message: Takes progress, where the engine knows of any.
        on_done: Takes each job with its results and None or :data:`FINISHED_BEFORE`, or with no
            results and the reason why it failed.
    """
    resources = resources or Resources()
    waiting = []
    for job in jobs:
        results = job.finished()
        if results is None:
            waiting.append(job)
        else:
            on_done(job, results, FINISHED_BEFORE)
    if not waiting:
        return {}
    run = run_on_ray if resources.engine == "ray" else run_locally
    return run(waiting, resources, on_message, on_done)


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
    releases and under other labels serve as well; the copy is written as this release would.

    Args:
        output: Folder of the grid.
        sources: Folders with finished runs, at any depth.
        wanted: The runs to take, under the labels they have here; None takes every run as it is.
    """
    labelled = None if wanted is None else {config.hash: config for config in wanted}
    found: dict[tuple[str, str], tuple[Path, RunConfig]] = {}
    for source in sources:  # everything is checked before anything is copied
        folders = finished_runs(source)
        if not folders:
            raise InputError(
                f"Expected '--merge' to name a folder with finished runs (got '{source}'); "
                "check the path."
            )
        for folder in folders:
            there = read_config(folder)
            config = there if labelled is None else labelled.get(there.hash)
            if config is not None:
                found.setdefault((config.hash, config.label), (folder, config))
    jobs = make_jobs([config for _, config in found.values()], output)
    copies = [
        (folder, job)
        for (folder, _), job in zip(found.values(), jobs, strict=True)
        if job.finished() is None
    ]
    for folder, job in copies:
        with replacing(job.path) as beside:
            shutil.copytree(folder, beside)
            results = read_json(beside / "results.json")
            write_json(beside / "results.json", {**results, **identify(job.config)})
            write_atomic(beside / "config.yaml", job.config.to_yaml().encode())
    return len(copies)


class RunCache:
    """The finished runs of a grid's folder by the hash of their configuration.

    Args:
        output: Folder of a grid; runs live below ``runs/``.
    """

    def __init__(self, output: Path) -> None:
        found = finished_runs(output / "runs")
        self.folders = {read_config(folder).hash: folder for folder in found}

    def __contains__(self, run: str) -> bool:
        return run in self.folders

    def results(self, run: str) -> dict[str, Any] | None:
        """Returns the results of a run by its hash, None if it is not finished."""
        folder = self.folders.get(run)
        return None if folder is None else read_json(folder / "results.json")

    def machine(self, run: str) -> str | None:
        """Names the processor and the number of cores of a finished run, None if unknown."""
        folder = self.folders.get(run)
        if folder is None or not (folder / "environment.json").exists():
            return None
        where = read_json(folder / "environment.json")
        return f"{where.get('device_name')} with {where.get('cores')} cores"
