"""Progress: bars on a terminal, plain lines in a pipe; always on standard error."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from evergraph.events import Epoch, Event, TaskDone, TaskStarted
from evergraph.lab.engines import Message
from evergraph.lab.folder import Job
from evergraph.lab.tables import Sheet

#: Least seconds between two updates of the loss, whose reading waits for the device.
UPDATE_INTERVAL = 0.1
PIPE_WIDTH = 200


def make_console(*, stderr: bool = False) -> Console:
    """Returns a console that fits its terminal, or is wide enough for any table in a pipe."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=PIPE_WIDTH)


def show(content: Any, sheets: Iterable[Sheet], as_json: bool, *lines: str) -> None:
    """Prints the answer of a command: as JSON, or as tables with lines below."""
    if as_json:
        print(json.dumps(content, indent=2))
        return
    console = make_console()
    for sheet in sheets:
        console.print(sheet.rich())
    for line in filter(None, lines):
        console.print(line, markup=False)


def warn_unused(method: str, unused: frozenset[str], given: Iterable[str]) -> None:
    """Says on standard error which of the user's settings have no effect."""
    words = " and ".join(f"'{key}'" for key in sorted(unused.intersection(given)))
    if words:
        text = f"warning: setting {words} has no effect on {method} as it is set otherwise"
        make_console(stderr=True).print(text, markup=False)


class TimeLeft(ProgressColumn):
    """Estimates the time left from all that was done, and how long it took.

    Rich's own column looks back half a minute, in which a grid may not finish one job. What was
    there before (``skipped``) cost nothing and tells nothing, nor does the time in which workers
    were loading (``loading``).
    """

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """Shows hours, minutes and seconds as soon as something is done."""
        done = task.completed - task.fields.get("skipped", 0)
        if done <= 0 or task.total is None or task.elapsed is None:
            return Text("starting", style="progress.remaining")
        elapsed = task.elapsed - task.fields.get("loading", 0.0)
        left = max(task.total - task.completed, 0) * elapsed / done
        return Text(str(timedelta(seconds=round(left))), style="progress.remaining")


class Bars:
    """What every command that shows progress has: bars, or none in a pipe."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.plain = not console.is_terminal
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeLeft(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )

    def running(self) -> AbstractContextManager[object]:
        """Keeps the bars on the screen while the work lasts."""
        return nullcontext() if self.plain else self.bar


class RunProgress(Bars):
    """Shows one run: a bar per task with loss and time left, and accuracy when it is done.

    Args:
        console: Where to.
        change: Whether it is a change of an estimator's state, the last of its tasks.
    """

    def __init__(self, console: Console, *, change: bool = False) -> None:
        super().__init__(console)
        self.change = change
        self.last = 0.0
        self.current: Any = None
        self.told = False  # how the run is trained

    def __call__(self, event: Event) -> None:
        """Takes an event of the training loop."""
        if isinstance(event, TaskStarted):
            self._started(event)
        elif isinstance(event, TaskDone):
            self._done(event)
        else:
            self._epoch(event)

    def _started(self, event: TaskStarted) -> None:
        if not self.told:
            self.told = True
            self.console.print(f"{event.mode}: {event.reason}", highlight=False)
        step = event.task + 1
        title = f"learning step {step}" if self.change else f"task {step}/{event.num_tasks}"
        if self.plain:
            seen = f"{event.num_nodes:,} nodes, {event.num_edges:,} edges seen"
            self.console.print(f"{title}: {len(event.classes)} new classes, {seen}")
        else:
            self.current = self.bar.add_task(title, total=None, note="")

    def _epoch(self, event: Epoch) -> None:
        now = time.monotonic()
        if self.plain or (now - self.last < UPDATE_INTERVAL and event.epoch):
            return
        self.last = now
        note = f"{event.stage} · loss {float(event.loss):.3f}"
        if event.stage == "classify":
            done = event.epoch + 1
            self.bar.update(self.current, total=event.num_epochs, completed=done, note=note)
        else:
            self.bar.update(self.current, note=f"{note} · {event.epoch + 1}/{event.num_epochs}")

    def _done(self, event: TaskDone) -> None:
        mean = sum(event.row) / len(event.row)
        seconds = sum(event.seconds.values())
        if self.plain:
            row = " ".join(f"{value:.2f}" for value in event.row)
            self.console.print(
                f"  accuracy on tasks so far: {row} (mean {mean:.2f}), {seconds:.1f} s"
            )
        else:
            self.bar.update(self.current, total=1, completed=1, note=f"accuracy {mean:.2f} %")


class GridProgress(Bars):
    """Shows a grid: one bar for all jobs and one per worker."""

    def __init__(self, console: Console, num_jobs: int) -> None:
        super().__init__(console)
        self.num_jobs = num_jobs
        self.finished = self.skipped = 0
        self.all = self.bar.add_task("grid", total=num_jobs, note="")
        self.bars: dict[int, Any] = {}  # of workers
        self.running_jobs: dict[int, tuple[str, float]] = {}  # worker → job and part done

    def expect(self, more: int) -> None:
        """Takes more jobs into account than were known at the beginning."""
        self.num_jobs += more
        self.bar.update(self.all, total=self.num_jobs)

    def message(self, message: Message) -> None:
        """Takes what a worker tells."""
        if self.plain:
            return
        worker = message.worker
        if not self.bars:
            self.bar.update(self.all, loading=self.bar.tasks[0].elapsed)
        if worker not in self.bars:
            title = f"worker {len(self.bars) + 1}"
            self.bars[worker] = self.bar.add_task(title, total=1.0, note="")
        elif self.running_jobs.get(worker, ("", 0.0))[0] != message.job:
            self.bar.reset(self.bars[worker])
        self.running_jobs[worker] = message.job, message.part
        note = f"{message.job} · {message.text}"
        self.bar.update(self.bars[worker], completed=message.part, note=note)
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
            self.console.print(
                f"[{self.finished}/{self.num_jobs}] {job.name}: {outcome}", markup=False
            )

    def _update(self) -> None:
        done = self.finished + sum(part for _, part in self.running_jobs.values())
        self.bar.update(self.all, completed=min(done, self.num_jobs), skipped=self.skipped)
