"""Progress: bars on a terminal, plain lines in a pipe; always on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from evergraph.events import Epoch, Event, TaskDone, TaskStarted
from evergraph.lab.jobs import Cell, Message

#: Least seconds between two updates of the loss, whose reading waits for the device.
UPDATE_INTERVAL = 0.1


class RunProgress:
    """Shows one run: a bar per task with loss and time left, and accuracy when it is done."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.plain = not console.is_terminal
        self.bar = _bar(console)
        self.last = 0.0
        self.current: Any = None
        self.told = False  # how the run is trained

    @contextmanager
    def running(self) -> Iterator[RunProgress]:
        """Keeps the bar on the screen while a run lasts."""
        if self.plain:
            yield self
        else:
            with self.bar:
                yield self

    def __call__(self, event: Event) -> None:
        """Takes an event of the training loop."""
        if isinstance(event, TaskStarted):
            self._started(event)
        elif isinstance(event, TaskDone):
            self._done(event)
        else:
            self._epoch(event)

    def title(self, event: TaskStarted) -> str:
        """Names what begins."""
        return f"task {event.task + 1}/{event.num_tasks}"

    def _started(self, event: TaskStarted) -> None:
        if not self.told:
            self.told = True
            self.console.print(f"{event.mode}: {event.reason}", highlight=False)
        title = self.title(event)
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


class ChangeProgress(RunProgress):
    """Shows one change of an estimator's state."""

    def title(self, event: TaskStarted) -> str:
        """Names what begins: the last of the steps learned so far."""
        return f"learning step {event.task + 1}"


class GridProgress:
    """Shows a grid: one bar for all cells and one per worker."""

    def __init__(self, console: Console, num_cells: int) -> None:
        self.console = console
        self.plain = not console.is_terminal
        self.num_cells = num_cells
        self.finished = 0
        self.bar = _bar(console)
        self.all = self.bar.add_task("grid", total=num_cells, note="")
        self.workers: dict[int, Any] = {}

    @contextmanager
    def running(self) -> Iterator[GridProgress]:
        """Keeps the bars on the screen while the grid lasts."""
        if self.plain:
            yield self
        else:
            with self.bar:
                yield self

    def message(self, message: Message) -> None:
        """Takes what a worker tells."""
        if self.plain:
            return
        if message.worker not in self.workers:
            title = f"worker {len(self.workers) + 1}"
            self.workers[message.worker] = self.bar.add_task(title, total=1.0, note="")
        note = f"{message.cell} · {message.text}"
        self.bar.update(self.workers[message.worker], completed=message.part, note=note)

    def cell(self, cell: Cell, results: dict[str, Any] | None, reason: str | None) -> None:
        """Takes a cell that finished, was finished before, or failed."""
        self.finished += 1
        self.bar.update(self.all, completed=self.finished)
        outcome = f"PM {results['pm']:.2f}" if results is not None else f"failed: {reason}"
        if self.plain or reason is not None:
            self.console.print(
                f"[{self.finished}/{self.num_cells}] {cell.name}: {outcome}", markup=False
            )


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


PIPE_WIDTH = 200


def make_console(*, stderr: bool = False) -> Console:
    """Returns a console that fits its terminal, or is wide enough for any table in a pipe."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=PIPE_WIDTH)
