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
from evergraph.files import write_json
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
from evergraph.lab.folder import Run, check_output, make_runs
from evergraph.lab.runs import SetOption
from evergraph.lab.summary import grouped
from evergraph.lab.tables import METRICS, Sheet, make_console, show, spread, warn_unused
from evergraph.lab.trials import SEARCH, Log, TrialRow, best_row
from evergraph.lab.tuning import Search, nested_outcome, search_rounds

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
    jobs = make_runs(configs, output)
    for label, config in {config.label: config for config in configs}.items():
        warn_unused(label, config.unused(), config.overrides)
    merge_runs(output, merge or [])
    failed = run_jobs(jobs, resources) if jobs else {}
    summary, sheets = summarise(output, configs[0].label if configs else None)
    show(summary, sheets, as_json, f"{output}/summary.json · {output}/summary.md")
    check_finished(failed)


def run_jobs(jobs: Sequence[Run], resources: Resources) -> dict[str, str]:
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
    effort = {"trials": trials, "seeds": seeds or (10 if per_seed else 2)}
    effort["finalists"] = 0 if per_seed else 3 if finalists is None else finalists
    num_runs = sum(search.num_runs(**effort) for search in searches)
    progress, failed = GridProgress(make_console(stderr=True), num_runs), dict[str, str]()
    seconds: dict[str, float] = {}  # by method, of the last round
    with progress.running():
        for runs in filter(None, search_rounds(searches, output, **effort, per_seed=per_seed)):
            if not runs[0].trial:
                progress.expect(len(runs))
            # What takes longest goes first, so that no worker is left alone with it.
            runs.sort(key=lambda run: -seconds.get(run.config.method, math.inf))
            failed |= run_grid(runs, resources, progress.message, progress.done)
            done = [run for run in runs if run.is_finished]
            seconds |= {run.config.method: run.results["seconds"]["total"] for run in done}
            log.write(searches)
    if per_seed:
        outcomes = [nested_outcome(search, effort["seeds"]) for search in searches]
        write_json(output / "choices.json", outcomes)
        show(outcomes, [nested_sheet(outcomes)], as_json, f"{log.seeds} · {output}/choices.json")
    else:
        rows = [row for search in searches for row in search.rows()]
        line = f"{log.trials} · {output / 'best.yaml'}"
        show([asdict(row) for row in rows], [tuning_sheet(rows)], as_json, line)
    check_finished(failed)


def tuning_sheet(rows: Sequence[TrialRow]) -> Sheet:
    """Shows the best trial of every search beside the one it started from."""
    shown = []
    for (dataset, method), group in grouped(rows, SEARCH).items():
        best = best_row(group)
        scores = [None if best is None else getattr(best, key) for key in METRICS]
        settings = "" if best is None else best.settings
        shown.append([f"{dataset} · {method}", len(group), group[0].pm, *scores, settings])
    columns = ["dataset · method", "trials", "start PM", *METRICS.values(), "settings"]
    return Sheet("Best settings, validation nodes, %", columns, shown, prose=("settings",))


def nested_sheet(outcomes: Sequence[dict[str, Any]]) -> Sheet:
    """Shows PM on test nodes by each way to choose, and what choosing per seed changes."""
    rows = []
    for entry in outcomes:
        about = [f"{entry['dataset']} · {entry['method']}", entry["trials"], len(entry["seeds"])]
        scores = [entry[way]["pm"] for way in CHOICES]
        rows.append([*about, *scores, spread(entry["change"], sign=True)])
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

    def done(self, job: Run, results: dict[str, Any] | None, note: str | None) -> None:
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
            done, rest = self.finished - self.skipped, self.num_jobs - self.finished
            if done > 0 and rest > 0:  # as long as the jobs that were run
                seconds = (time.monotonic() - self.since) * rest / done
                outcome += f", about {timedelta(seconds=round(seconds))} left"
            line = f"[{self.finished}/{self.num_jobs}] {job.name}: {outcome}"
            self.console.print(line, markup=False, highlight=False)

    def _update(self) -> None:
        done = self.finished + sum(part for _, part in self.running_jobs.values())
        self.bar.update(self.all, completed=min(done, self.num_jobs), skipped=self.skipped)
