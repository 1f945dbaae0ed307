"""Grids: seeds × methods × datasets on an engine; finished cells never run again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from evergraph.files import replacing
from evergraph.lab.engines import Engine, Job, LocalEngine
from evergraph.lab.jobs import Cell, OnCell, OnMessage, make_cells
from evergraph.lab.runs import RunFolder, runs_to_merge


def merge_runs(output: Path, sources: Sequence[Path]) -> int:
    """Copies finished runs made elsewhere into a grid's folder; returns how many were new."""
    finished: dict[Path, Cell] = {}
    for source in sources:  # everything is checked before anything is copied
        for folder in runs_to_merge(source):
            cell = make_cells([RunFolder(folder).config()], output)[0]
            if RunFolder(cell.path).inspect(cell.config) is None:
                finished[folder] = cell
    for folder, cell in finished.items():
        with replacing(cell.path) as beside:
            shutil.copytree(folder, beside)
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
