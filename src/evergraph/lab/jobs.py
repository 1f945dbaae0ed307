"""Cells: the runs of a grid, where they live and how far they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.config import RunConfig
from evergraph.errors import InputError
from evergraph.events import Epoch, Event, TaskDone


@dataclass(frozen=True)
class Cell:
    """One run of a grid and where it lives."""

    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """What progress shows."""
        return f"{self.config.dataset_name} · {self.config.label} · seed {self.config.seed}"


@dataclass(frozen=True)
class Message:
    """What a worker tells about the run it is at: part done in [0, 1]."""

    worker: int
    cell: str
    part: float
    text: str


OnMessage = Callable[[Message], None]
OnCell = Callable[[Cell, dict[str, Any] | None, str | None], None]


def make_cells(configs: Sequence[RunConfig], output: Path) -> list[Cell]:
    """Gives every run its folder ``runs/DATASET/LABEL/seed-N``; refuses labels that clash."""
    cells: dict[Path, Cell] = {}
    for config in configs:
        path = output / "runs" / dataset_slug(config) / slug(config.label) / f"seed-{config.seed}"
        if path in cells and cells[path].config.dataset_name != config.dataset_name:
            raise InputError(
                "Expected every dataset of a grid to have its own file name (got "
                f"'{cells[path].config.dataset_name}' and '{config.dataset_name}'); rename one."
            )
        if path in cells:
            raise InputError(
                f"Expected every method of a grid to have its own label (got '{config.label}' "
                "twice); add @label to one of them."
            )
        cells[path] = Cell(config, path)
    return list(cells.values())


def slug(text: str) -> str:
    """Turns a label into a folder name."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", text).strip("-.") or "unnamed"


def dataset_slug(config: RunConfig) -> str:
    """Names a dataset's folder: generated graphs by their options, files without their path."""
    return slug(config.dataset_name if config.dataset_options else Path(config.dataset).stem)


class ProgressTracker:
    """Turns events into a part done and a line of text."""

    def __init__(self, config: RunConfig) -> None:
        self.epochs = config.training.epochs
        self.num_tasks = 1
        self.accuracy = ""

    def update(self, event: Event) -> tuple[float, str]:
        """Returns how far the run is and what it is at."""
        if isinstance(event, TaskDone):
            self.accuracy = f" · accuracy {sum(event.row) / len(event.row):.1f} %"
            return (event.task + 1) / self.num_tasks, f"task {event.task + 1} done{self.accuracy}"
        if isinstance(event, Epoch):
            done = event.epoch / event.num_epochs if event.stage == "classify" else 0.0
            text = f"task {event.task + 1}/{self.num_tasks} {event.stage}"
            return (event.task + done) / self.num_tasks, text + self.accuracy
        self.num_tasks = event.num_tasks
        return event.task / self.num_tasks, f"task {event.task + 1}/{self.num_tasks}{self.accuracy}"
