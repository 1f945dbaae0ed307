"""How commands choose and start what runs their grids."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from evergraph.errors import InputError, unknown_name
from evergraph.lab.cli.progress import GridProgress, make_console
from evergraph.lab.engines import Engine, LocalEngine, RayEngine
from evergraph.lab.engines.ray_cluster import import_ray
from evergraph.lab.grid import run_grid
from evergraph.lab.jobs import Cell
from evergraph.lab.trackers import check_tracker
from evergraph.nn.device import pick_device


@dataclass(frozen=True)
class GridOptions:
    """The options of every command that runs a grid; wrong ones are refused when it is made."""

    jobs: int | None
    device: str
    data_root: Path | None
    engine: str = "local"
    address: str | None = None
    gpus: float = 0.0
    track: str | None = None

    def __post_init__(self) -> None:
        check_counts(jobs=self.jobs)
        if self.engine not in {"local", "ray"}:
            raise unknown_name("engine", self.engine, {"local", "ray"})
        if self.engine == "local" and (self.address is not None or self.gpus):
            option = "--address" if self.address is not None else "--gpus"
            raise InputError(
                f"Expected '{option}' only with a Ray cluster (got '--engine local'); add "
                "--engine ray."
            )
        if self.gpus < 0:
            raise InputError(f"Expected '--gpus' of at least 0 (got {self.gpus}); raise it.")
        check_tracker(self.track)
        if self.engine == "ray":
            import_ray()

    def make(self) -> tuple[Engine, int]:
        """Makes the engine; returns it with the number of cells at a time."""
        jobs = self.jobs or default_jobs(pick_device(self.device))
        if self.engine == "ray":
            return RayEngine(jobs, self.address, self.gpus), jobs
        return LocalEngine(jobs), jobs


def run_cells(cells: Sequence[Cell], options: GridOptions) -> list[str]:
    """Runs a grid with progress on standard error; returns the names of what failed."""
    engine, jobs = options.make()
    progress = GridProgress(make_console(stderr=True), len(cells))
    with progress.running():
        return run_grid(
            cells,
            jobs=jobs,
            device=options.device,
            data_root=options.data_root,
            on_message=progress.message,
            on_cell=progress.cell,
            engine=engine,
            track=options.track,
        )


def check_finished(failed: Sequence[str]) -> None:
    """Ends a command whose cells did not all finish."""
    if failed:
        raise InputError(
            f"Expected every cell to finish (got {len(failed)} failures, first '{failed[0]}'); "
            "see the lines above and run the same command again."
        )


def check_output(output: Path) -> None:
    """Refuses an output that is not a folder."""
    if output.exists() and not output.is_dir():
        raise InputError(
            f"Expected '--output' to be a folder (got the file '{output}'); choose another."
        )


def check_counts(**counts: int | None) -> None:
    """Refuses an option below 1 that counts something."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"Expected '--{name}' of at least 1 (got {count}); raise it.")


def default_jobs(place: torch.device) -> int:
    """Returns one worker per core, or one on a GPU.

    Recorded steps of several processes take turns there: fifteen processes got a quarter of
    the work of one done (decision 0010).
    """
    return 1 if place.type == "cuda" else os.cpu_count() or 1
