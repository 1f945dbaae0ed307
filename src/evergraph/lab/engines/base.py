"""What an engine is: something that runs cells, wherever that may be."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from evergraph.events import Event
from evergraph.lab.jobs import Cell, OnCell, OnMessage
from evergraph.lab.runs import execute
from evergraph.lab.trackers import tracked
from evergraph.stream import Graph
from evergraph.stream.datasets import load_graph


@dataclass(frozen=True)
class Job:
    """How all cells of a grid are run.

    Attributes:
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where graphs are.
        track: A tracker's name, or None.
    """

    device: str = "auto"
    data_root: Path | None = None
    track: str | None = None


class Engine(Protocol):
    """Runs cells that are not finished yet; each leaves its results in its own folder."""

    def run(
        self, cells: Sequence[Cell], job: Job, on_message: OnMessage, on_cell: OnCell
    ) -> list[str]:
        """Runs every cell and returns the names of those that failed.

        Calls ``on_cell`` after each cell, with its results or the reason why it failed, and
        ``on_message`` with progress where the engine knows of any.
        """
        ...


def run_cell(cell: Cell, job: Job, on_event: Callable[[Event], None] | None) -> dict[str, Any]:
    """Runs one cell in this process, or continues it after its last finished task."""
    options = json.dumps(cell.config.dataset_options)
    return execute(
        cell.config,
        cell.path,
        device=job.device,
        data_root=job.data_root,
        on_event=tracked(job.track, cell.config, cell.path, on_event),
        graph=_graph(cell.config.dataset, options, job.data_root),
    )


@lru_cache(maxsize=1)
def _graph(dataset: str, options: str, data_root: Path | None) -> Graph:
    """Keeps the last graph: a worker's cells mostly share it."""
    return load_graph(dataset, data_root, json.loads(options) or None)
