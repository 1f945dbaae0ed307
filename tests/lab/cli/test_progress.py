"""Progress of a grid: what is done, and a time left that counts only work of this command."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

import evergraph
from evergraph.config import Variant, resolve
from evergraph.events import Epoch, Event, Stage, TaskStarted
from evergraph.lab.cli.grids import GridProgress
from evergraph.lab.cli.runs import RunProgress
from evergraph.lab.engines import ProgressText
from evergraph.lab.folder import Run, make_runs

RESULTS = {"pm": 81.234}


def jobs(count: int) -> list[Run]:
    dataset, method = Variant.parse("cora"), Variant.parse("finetune")
    return make_runs([resolve(dataset, method, seed) for seed in range(count)], Path("out"))


class Clock:
    """A terminal with a clock that is set by hand."""

    def __init__(self, num_jobs: int) -> None:
        self.now = 0.0
        console = Console(file=io.StringIO(), force_terminal=True, width=200)
        self.progress = GridProgress(console, num_jobs)
        self.progress.bar.get_time = lambda: self.now
        for task in self.progress.bar.tasks:
            task._get_time = lambda: self.now
            task.start_time = 0.0

    def left(self) -> str:
        """Reads the time left off the bar of the grid."""
        task = self.progress.bar.tasks[0]
        column = self.progress.bar.columns[4]
        return str(column.render(task))


def test_time_left_counts_finished_jobs_and_parts_but_nothing_from_before():
    first, second, third, fourth = jobs(4)
    clock = Clock(4)
    clock.progress.done(first, RESULTS, "finished before")
    assert clock.left() == "starting"
    clock.now = 30.0  # until workers are loaded
    clock.progress.message(7, second.name, 0.0, "task 1/2")
    assert clock.left() == "starting"
    clock.now = 90.0
    clock.progress.message(7, second.name, 0.5, "task 1/2")
    assert clock.left() == "0:05:00"  # half a job a minute, two and a half are left
    clock.progress.done(second, RESULTS, None)
    assert clock.left() == "0:02:00"
    clock.progress.done(third, None, "ValueError: no")
    clock.progress.done(fourth, RESULTS, None)
    clock.progress.message(7, fourth.name, 1.0, "late")
    assert clock.left() == "0:00:00"


def test_pipe_gets_a_line_per_job(capsys: pytest.CaptureFixture[str]):
    first, second, third = jobs(3)
    progress = GridProgress(Console(width=200), 3)
    with progress.running():
        progress.done(first, RESULTS, "finished before")
        progress.done(second, RESULTS, None)
        progress.done(third, None, "ValueError: [red]")
    assert capsys.readouterr().out.splitlines() == [
        "[1/3] cora · finetune · seed 0: PM 81.23, finished before",
        "[2/3] cora · finetune · seed 1: PM 81.23, about 0:00:00 left",
        "[3/3] cora · finetune · seed 2: failed: ValueError: [red]",
    ]


def test_pipe_gets_lines_with_stage_and_time_left(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("evergraph.lab.cli.runs.time.monotonic", lambda: now[0])
    out = io.StringIO()
    progress = RunProgress(Console(file=out, width=200), change=True)
    for second in range(0, 30, 3):
        now[0] = float(second)
        progress.stage("taking in")
    loss = torch.tensor(0.5)
    progress(TaskStarted(3, 4, 10, 10, (), "full batch", "it fits"))
    for epoch in range(100):
        now[0] += 0.5
        progress(Epoch(3, "classify", epoch, 100, loss))
    progress(Stage(3, "saving", 1, 1))
    assert out.getvalue().splitlines() == [
        *["  taking in"] * 2,  # after 12 and 24 of 27 seconds
        "full batch: it fits",
        "learning step 4: 0 new classes, 10 nodes, 10 edges so far",
        "  classify 14/100, 0:00:43 left",
        "  classify 34/100, 0:00:33 left",
        "  classify 54/100, 0:00:23 left",
        "  classify 74/100, 0:00:13 left",
        "  classify 94/100, 0:00:03 left",
    ]


def test_closed_form_tells_its_stages(make_graph):
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    progress, text, shown = RunProgress(console), ProgressText(), []

    def follow(event: Event) -> None:
        progress(event)
        part, line = text(event)
        if isinstance(event, Stage):
            task = progress.bar.tasks[-1]
            assert (task.completed, task.total) == (event.done, event.total)
            assert task.fields["note"] == event.stage
            shown.append((event.stage, round(part, 3), line.partition(" · ")[0]))

    graph = make_graph(num_nodes=40, num_classes=4)
    evergraph.run(graph, "analytic", on_event=follow)
    assert shown[:4] == [
        ("features", 0.0, "task 1/2 features"),
        ("statistics", 0.125, "task 1/2 statistics"),
        ("solve", 0.25, "task 1/2 solve"),
        ("inference", 0.375, "task 1/2 inference"),
    ]
    assert shown[4][1] == 0.5
