"""``evergraph tune``: the best settings of methods on datasets, by validation nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from evergraph.config import RunConfig, Variant, check_shared, parse_settings
from evergraph.files import read_json
from evergraph.lab.cli import options
from evergraph.lab.cli.grids import check_at_least, check_finished
from evergraph.lab.cli.progress import GridProgress, make_console, show
from evergraph.lab.engines import Resources
from evergraph.lab.folder import Job, check_output, make_jobs
from evergraph.lab.grid import parse_methods, run_grid
from evergraph.lab.tables import METRICS, Sheet, number
from evergraph.lab.trials import (
    TrialRow,
    best_row,
    by_search,
    join_rows,
    read_rows,
    write_log,
)
from evergraph.lab.tuning import Search, run_searches


def tune(
    output: Annotated[Path, typer.Option(help="Folder of the search.")],
    method: Annotated[
        list[str] | None, typer.Option(help="NAME[:key=value,...][@label] or all; repeat. [dslr]")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Repeat for more. [cora]")] = None,
    trials: Annotated[int, typer.Option(help="Settings tried per method and dataset.")] = 12,
    seeds: Annotated[int, typer.Option(help="Seeds of each, 0 to N − 1.")] = 2,
    finalists: Annotated[int, typer.Option(help="Of the best, how many run on N more seeds.")] = 3,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Search lr, dropout, head and smoothing too.")
    ] = False,
    *,
    resources: options.ResourceOptions,
    sets: options.SetOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Search methods' declared grids on validation nodes; a killed search continues."""
    check_output(output)
    check_at_least(1, trials=trials, seeds=seeds)
    check_at_least(0, finalists=finalists)
    shared = parse_settings(sets or [])
    variants = parse_methods(method or ["dslr"])
    check_shared(shared, [variant.name for variant in variants])
    searches = [
        Search(Variant.parse_dataset(graph), variant, shared, recipe=recipe)
        for graph in dataset or ["cora"]
        for variant in variants
    ]
    log = output / "trials.csv"
    old = read_rows(log) if log.exists() else []

    def rows() -> list[TrialRow]:
        return [row for search in searches for row in search.rows()]

    num_runs = sum(search.num_runs(trials, seeds, finalists) for search in searches)
    progress = GridProgress(make_console(stderr=True), num_runs)
    runner = Runner(output, resources, progress)
    with progress.running():
        run_searches(
            searches,
            trials=trials,
            seeds=seeds,
            finalists=finalists,
            measure=runner,
            after_round=lambda: write_log(output, join_rows(old, rows())),
        )
    content, line = [asdict(row) for row in rows()], f"{log} · {output / 'best.yaml'}"
    show(content, [tuning_sheet(rows())], as_json, line)
    check_finished(runner.failed)


class Runner:
    """Runs the configurations of a round, and remembers which failed.

    What took longest in the last round goes first, so that no worker is left alone with it.
    """

    def __init__(self, output: Path, resources: Resources, progress: GridProgress) -> None:
        self.output, self.resources, self.progress = output, resources, progress
        self.failed: dict[str, str] = {}
        self.seconds: dict[tuple[str, str], float] = {}  # by dataset and method

    def __call__(self, configs: Sequence[RunConfig]) -> list[dict[str, Any] | None]:
        """Returns results in the order of the configurations, None for failures."""
        jobs = make_jobs(configs, self.output)
        slowest_first = sorted(jobs, key=lambda job: -self.seconds.get(_kind(job), math.inf))
        self.failed |= run_grid(
            slowest_first, self.resources, self.progress.message, self.progress.done
        )
        found: list[dict[str, Any] | None] = []
        for job in jobs:
            results = None if job.name in self.failed else read_json(job.path / "results.json")
            found.append(results)
            if results is not None:
                self.seconds[_kind(job)] = results["seconds"]["total"]
        return found


def _kind(job: Job) -> tuple[str, str]:
    return job.config.dataset_name, job.config.method


def tuning_sheet(rows: Sequence[TrialRow]) -> Sheet:
    """Shows the best trial of every search beside the one it started from."""
    shown = []
    for (dataset, method), group in by_search(rows).items():
        best, start = best_row(group), number(group[0].pm)
        scores = [number(None if best is None else getattr(best, key)) for key in METRICS]
        settings = "" if best is None else best.settings
        shown.append([f"{dataset} · {method}", str(len(group)), start, *scores, settings])
    columns = ["dataset · method", "trials", "start PM", *METRICS.values(), "settings"]
    return Sheet("Best settings, validation nodes, %", columns, shown, prose=("settings",))
