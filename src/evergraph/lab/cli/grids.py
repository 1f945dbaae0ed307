"""``evergraph compare``: seeds × methods × datasets, and who is better; progress of any grid."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from evergraph.config import RunConfig
from evergraph.errors import InputError
from evergraph.lab.api import check_finished, grid_configs, merge_runs, run_grid, summarise
from evergraph.lab.cli.runs import Bars, JsonOption, SettingOptions
from evergraph.lab.engines import Resources
from evergraph.lab.folder import Job, check_output, make_jobs
from evergraph.lab.tables import make_console, show, warn_unused

MergeOption = Annotated[list[Path] | None, "Reuse the finished runs of this folder; repeatable."]


def compare(
    output: Annotated[Path, "Folder for the grid."],
    dataset: Annotated[list[str] | None, "A dataset; repeatable. [cora]"] = None,
    method: Annotated[
        list[str] | None, "NAME[:key=value,...][@label], or all; repeatable. [dslr]"
    ] = None,
    seeds: Annotated[int, "Number of seeds, counted from 0."] = 10,
    *,
    resources: Resources,
    settings: SettingOptions,
    merge: MergeOption = None,
    as_printed: Annotated[bool, "Use the paper's settings to the letter."] = False,
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


def check_at_least(least: int, **counts: int | None) -> None:
    """Refuses an option below what it must be at least."""
    for name, count in counts.items():
        if count is not None and count < least:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"Expected '{option}' of at least {least} (got {count}); raise it.")


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
