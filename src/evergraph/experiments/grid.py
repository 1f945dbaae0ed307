"""Grids: seeds × methods × datasets on an engine; finished cells never run again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from evergraph.errors import InputError
from evergraph.experiments.cells import (
    Cell,
    Message,
    OnCell,
    OnMessage,
    ProgressTracker,
    dataset_slug,
    make_cells,
    slug,
)
from evergraph.experiments.engines import Engine, Job, LocalEngine
from evergraph.experiments.files import make_folder
from evergraph.experiments.runs import RunFolder

__all__ = [
    "Cell",
    "Message",
    "OnCell",
    "OnMessage",
    "ProgressTracker",
    "dataset_slug",
    "make_cells",
    "merge_runs",
    "run_grid",
    "slug",
]


def merge_runs(output: Path, sources: Sequence[Path]) -> int:
    """Copies finished runs made elsewhere into a grid's folder; returns how many were new."""
    finished: dict[Path, Cell] = {}
    for source in sources:  # everything is checked before anything is copied
        found = sorted(source.glob("**/results.json"))
        if not found:
            raise InputError(
                f"Expected '--merge' to name a folder with finished runs (got '{source}'); "
                "check the path."
            )
        for results in found:
            cell = make_cells([RunFolder(results.parent).config()], output)[0]
            if RunFolder(cell.path).inspect(cell.config) is None:
                finished[results.parent] = cell
    for folder, cell in finished.items():
        if cell.path.exists():
            shutil.rmtree(cell.path)  # the same run, unfinished here and finished there
        make_folder(cell.path.parent)
        beside = cell.path.with_name(f".{cell.path.name}.{os.getpid()}.new")
        shutil.copytree(folder, beside)
        beside.rename(cell.path)
    return len(finished)


def run_grid(
    cells: Sequence[Cell],
    *,
    jobs: int,
    device: str,
    data_root: Path | None,
    on_message: OnMessage,
    on_cell: OnCell,
    engine: Engine | None = None,
    track: str | None = None,
) -> list[str]:
    """Runs every cell that is not finished, ``jobs`` at a time.

    Calls ``on_message`` with progress and ``on_cell`` after each cell, with its results or
    with the reason why it failed. Returns the names of the cells that failed.

    Args:
        cells: The runs and their folders.
        jobs: Worker processes of the default engine.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where graphs are.
        on_message: Takes progress.
        on_cell: Takes each cell when it is done.
        engine: What runs them; worker processes on this machine by default.
        track: ``tensorboard`` or ``mlflow`` to follow every run there too.
    """
    todo = []
    for cell in cells:
        finished = RunFolder(cell.path).inspect(cell.config)
        if finished is None:
            todo.append(cell)
        else:
            on_cell(cell, finished, None)
    if not todo:
        return []
    job = Job(device, data_root, track)
    return (engine or LocalEngine(jobs)).run(todo, job, on_message, on_cell)
