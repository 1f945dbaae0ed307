"""``evergraph compare`` and ``tune``: seeds × methods × datasets, and the progress of any grid."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from evergraph.config import RunConfig, Variant, check_shared, parse_settings
from evergraph.errors import InputError
from evergraph.files import read_json, write_json
from evergraph.lab.api import (
    check_finished,
    grid_configs,
    merge_runs,
    parse_methods,
    run_grid,
    summarise,
)
from evergraph.lab.cli.runs import Bars, JsonOption, PrintedOption, SettingOptions
from evergraph.lab.engines import Resources, check_at_least
from evergraph.lab.folder import Job, check_output, make_jobs
from evergraph.lab.runs import SetOption
from evergraph.lab.tables import METRICS, Sheet, make_console, show, spread, warn_unused
from evergraph.lab.trials import Log, TrialRow, best_row, by_search
from evergraph.lab.tuning import Search, nested_outcome, run_searches

DatasetOption = Annotated[list[str] | None, "A dataset; repeatable. [cora]"]
MethodOption = Annotated[
    list[str] | None, "NAME[:key=value,...][@label], or all; repeatable. [dslr]"
]
MergeOption = Annotated[list[Path] | None, "Reuse the finished runs of this folder; repeatable."]
#: The ways to choose, as columns name them.
CHOICES = {
    "preset": "preset",
    "one": "one choice for all seeds",
    "per_seed": "a choice per seed",
}


def compare(
    output: Annotated[Path, "Folder for the grid."],
    dataset: DatasetOption = None,
    method: MethodOption = None,
    seeds: Annotated[int, "Number of seeds, counted from 0."] = 10,
    *,
    resources: Resources,
    settings: SettingOptions,
    merge: MergeOption = None,
    as_printed: PrintedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare methods over seeds; finished runs are never run again.

    With --merge and no datasets, methods or settings, the merged runs are compared.
    """
    check_at_least(1, seeds=seeds)
    check_output(output)
    shared, configs = settings.shared(), list[RunConfig]()
    if dataset or method or shared or as_printed or not merge:
        wanted = (dataset or ["cora"], method or ["dslr"], seeds, shared)
        configs = grid_configs(*wanted, "printed" if as_printed else "tuned")
    jobs = make_jobs(configs, output)
    for label, config in {config.label: config for config in configs}.items():
        warn_unused(label, config.unused(), config.overrides)
    merge_runs(output, merge or [])
    failed = run_jobs(jobs, resources) if jobs else {}
    summary, sheets = summarise(output, configs[0].label if configs else None)
    show(summary, sheets, as_json, f"{output}/summary.json · {output}/summary.md")
    check_finished(failed)


def run_jobs(jobs: Sequence[Job], resources: Resources) -> dict[str, str]:
    """Runs a grid with progress on standard error; returns why some failed, by their names."""
    progress = GridProgress(make_console(stderr=True), len(jobs))
    with progress.running():
        return run_grid(jobs, resources, progress.message, progress.done)


def tune(
    output: Annotated[Path, "Folder for the search."],
    method: MethodOption = None,
    dataset: DatasetOption = None,
    trials: Annotated[int, "Settings to try per method and dataset."] = 12,
    seeds: Annotated[int | None, "Number of seeds, counted from 0. [2; 10 with --per-seed]"] = None,
    finalists: Annotated[
        int | None, "How many of the best are run again, on as many new seeds. [3]"
    ] = None,
    per_seed: Annotated[
        bool,
        "Draw the settings at random, let every seed choose by its own validation nodes, and "
        "evaluate the choice on test nodes.",
    ] = False,
    recipe: Annotated[
        bool, "Also search learning rate, weight decay, dropout, head and smoothing."
    ] = False,
    *,
    resources: Resources,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search the settings that methods declare, on validation nodes; run again to continue."""
    check_output(output)
    check_at_least(1, trials=trials, seeds=seeds)
    check_at_least(0, finalists=finalists)
    if per_seed and finalists is not None:
        raise InputError(
            f"Expected '--finalists' only without '--per-seed' (got {finalists}), where every "
            "trial runs on every seed; leave one of them out."
        )
    shared = parse_settings(sets or [])
    variants = parse_methods(method or ["dslr"])
    check_shared(shared, [variant.name for variant in variants])
    searches = [
        Search(Variant.parse_dataset(graph), variant, shared, recipe=recipe)
        for graph in dataset or ["cora"]
        for variant in variants
    ]
    log = Log(output)

    def write() -> None:
        log.write(
            [row for search in searches for row in search.rows()],
            [row for search in searches for row in search.seed_rows()],
        )

    effort = {"trials": trials, "seeds": seeds or (10 if per_seed else 2)}
    effort["finalists"] = 0 if per_seed else 3 if finalists is None else finalists
    runner = Runner(output, resources, sum(search.num_runs(**effort) for search in searches))
    with runner.progress.running():
        run_searches(searches, **effort, per_seed=per_seed, measure=runner, after_round=write)
    if per_seed:
        outcomes = [nested_outcome(search, effort["seeds"]) for search in searches]
        write_json(output / "choices.json", outcomes)
        show(outcomes, [nested_sheet(outcomes)], as_json, f"{log.seeds} · {output}/choices.json")
    else:
        rows = [row for search in searches for row in search.rows()]
        line = f"{log.trials} · {output / 'best.yaml'}"
        show([asdict(row) for row in rows], [tuning_sheet(rows)], as_json, line)
    check_finished(runner.failed)


class Runner:
    """Runs the configurations of a round, and remembers which failed.

    What took longest in the last round goes first, so that no worker is left alone with it.
    """

    def __init__(self, output: Path, resources: Resources, num_runs: int) -> None:
        self.output, self.resources = output, resources
        self.progress = GridProgress(make_console(stderr=True), num_runs)
        self.failed: dict[str, str] = {}
        self.seconds: dict[tuple[str, str], float] = {}  # by dataset and method

    def __call__(self, configs: Sequence[RunConfig]) -> list[dict[str, Any] | None]:
        """Returns results in the order of the configurations, None for failures.

        Runs on test nodes are no trials; their folder is a grid of its own.
        """
        if configs[0].protocol.evaluate == "validation":
            jobs = make_jobs(configs, self.output, trial=True)
        else:
            jobs = make_jobs(configs, self.output / "test")
            self.progress.expect(len(jobs))
        slowest_first = sorted(jobs, key=lambda job: -self.seconds.get(_kind(job), math.inf))
        failed = run_grid(slowest_first, self.resources, self.progress.message, self.progress.done)
        self.failed |= failed
        found: list[dict[str, Any] | None] = []
        for job in jobs:
            results = None if job.name in failed else read_json(job.path / "results.json")
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
        best = best_row(group)
        scores = [None if best is None else getattr(best, key) for key in METRICS]
        settings = "" if best is None else best.settings
        shown.append([f"{dataset} · {method}", len(group), group[0].pm, *scores, settings])
    columns = ["dataset · method", "trials", "start PM", *METRICS.values(), "settings"]
    return Sheet("Best settings, validation nodes, %", columns, shown, prose=("settings",))


def nested_sheet(outcomes: Sequence[dict[str, Any]]) -> Sheet:
    """Shows PM on test nodes by each way to choose, and what choosing per seed changes."""
    rows = [
        [
            f"{entry['dataset']} · {entry['method']}",
            entry["trials"],
            len(entry["seeds"]),
            *(entry[way]["pm"] for way in CHOICES),
            spread(entry["change"], sign=True),
        ]
        for entry in outcomes
    ]
    columns = ["dataset · method", "trials", "seeds", *CHOICES.values(), "change by seed"]
    return Sheet("PM on test nodes, mean ± std over seeds, %", columns, rows)


class GridProgress(Bars):
    """Shows a grid: one bar for all jobs and one per worker."""

    def __init__(self, console: Console, num_jobs: int) -> None:
        super().__init__(console)
        self.num_jobs = num_jobs
        self.finished = self.skipped = 0
        self.since = time.monotonic()
        self.all = self.bar.add_task("grid", total=num_jobs, note="")
        self.bars: dict[int, Any] = {}  # of workers
        self.running_jobs: dict[int, tuple[str, float]] = {}  # worker → job and part done

    def expect(self, more: int) -> None:
        """Takes more jobs into account than were known at the beginning."""
        self.num_jobs += more
        self.bar.update(self.all, total=self.num_jobs)

    def message(self, worker: int, job: str, part: float, text: str) -> None:
        """Takes what a worker tells."""
        if self.plain:
            return
        if not self.bars:
            self.bar.update(self.all, loading=self.bar.tasks[0].elapsed)
        if worker not in self.bars:
            title = f"worker {len(self.bars) + 1}"
            self.bars[worker] = self.bar.add_task(title, total=1.0, note="")
        elif self.running_jobs.get(worker, ("", 0.0))[0] != job:
            self.bar.reset(self.bars[worker])
        self.running_jobs[worker] = job, part
        self.bar.update(self.bars[worker], completed=part, note=f"{job} · {text}")
        self._update()

    def done(self, job: Job, results: dict[str, Any] | None, note: str | None) -> None:
        """Takes a job that finished, was finished before, or failed."""
        self.finished += 1
        running = self.running_jobs.items()
        self.running_jobs = {worker: at for worker, at in running if at[0] != job.name}
        if results is None:
            outcome = f"failed: {note}"
        else:
            self.skipped += note is not None
            outcome = f"PM {results['pm']:.2f}" + (f", {note}" if note else "")
        self._update()
        if self.plain or results is None:
            line = f"[{self.finished}/{self.num_jobs}] {job.name}: {outcome}{self._left()}"
            self.console.print(line, markup=False, highlight=False)

    def _left(self) -> str:
        """Estimates the time left in a pipe from the jobs that were run."""
        done, rest = self.finished - self.skipped, self.num_jobs - self.finished
        if done <= 0 or rest <= 0:
            return ""
        seconds = (time.monotonic() - self.since) * rest / done
        return f", about {timedelta(seconds=round(seconds))} left"

    def _update(self) -> None:
        done = self.finished + sum(part for _, part in self.running_jobs.values())
        self.bar.update(self.all, completed=min(done, self.num_jobs), skipped=self.skipped)
