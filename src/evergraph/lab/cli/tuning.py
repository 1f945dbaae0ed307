"""``evergraph tune``: the best settings of methods on datasets, by validation nodes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from evergraph.config import RunConfig, Variant, check_shared, parse_settings
from evergraph.errors import InputError
from evergraph.files import make_folder, write_atomic
from evergraph.lab.cli import options
from evergraph.lab.cli.engines import GridOptions, check_counts, check_finished, check_output
from evergraph.lab.cli.grids import parse_methods
from evergraph.lab.cli.progress import GridProgress, make_console
from evergraph.lab.grid import run_grid
from evergraph.lab.jobs import Cell, make_cells
from evergraph.lab.tables import tuning_sheet
from evergraph.lab.trials import (
    TrialRow,
    best_settings,
    join_rows,
    read_rows,
    write_rows,
)
from evergraph.lab.tuning import Search, run_searches
from evergraph.nn.device import pick_device


def tune(
    output: Annotated[Path, typer.Option(help="Folder of the search.")],
    method: Annotated[
        list[str] | None, typer.Option(help="NAME[:key=value,...][@label] or all; repeat. [dslr]")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Repeat for more. [cora]")] = None,
    trials: Annotated[int, typer.Option(help="Settings tried per method and dataset.")] = 12,
    seeds: Annotated[int, typer.Option(help="Seeds of each, 0 to N − 1.")] = 2,
    finalists: Annotated[int, typer.Option(help="Of the best, how many run on N more seeds.")] = 3,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Search lr, dropout, head and smoothing too.")
    ] = False,
    jobs: options.JobsOption = None,
    sets: options.SetOption = None,
    device: options.DeviceOption = "auto",
    data_root: options.DataRootOption = None,
    engine: options.EngineOption = "local",
    address: options.AddressOption = None,
    gpus: options.GpusOption = 0.0,
    as_json: options.JsonOption = False,
) -> None:
    """Search methods' declared grids on validation nodes; a killed search continues."""
    check_output(output)
    check_counts(trials=trials, seeds=seeds)
    grid = GridOptions(jobs, device, data_root, engine, address, gpus)
    if finalists < 0:
        raise InputError(f"Expected '--finalists' of at least 0 (got {finalists}); raise it.")
    shared = parse_settings(sets or [])
    variants = parse_methods(method or ["dslr"])
    check_shared(shared, [variant.name for variant in variants])
    pick_device(device)
    searches = [
        Search(Variant.parse_dataset(graph), variant, shared, recipe=recipe)
        for graph in dataset or ["cora"]
        for variant in variants
    ]
    log = TrialLog(output, searches)
    num_runs = sum(search.num_runs(trials, seeds, finalists) for search in searches)
    progress = GridProgress(make_console(stderr=True), num_runs)
    runner = Runner(output, grid, progress)
    with progress.running():
        run_searches(
            searches,
            trials=trials,
            seeds=seeds,
            finalists=finalists,
            measure=runner,
            after_round=log.write,
        )
    rows = log.rows()
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        console = make_console()
        console.print(tuning_sheet(rows).rich())
        console.print(f"{log.path} · {log.best}", markup=False)
    check_finished(runner.failed)


@dataclass
class Runner:
    """Runs the configurations of a round in workers, and remembers which failed.

    What took longest in the last round goes first, so that no worker is left alone with it.
    """

    output: Path
    grid: GridOptions
    progress: GridProgress
    failed: list[str] = field(default_factory=list)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)  # by dataset and method

    def __call__(self, configs: Sequence[RunConfig]) -> list[dict[str, Any] | None]:
        """Returns results in the order of the configurations, None for failures."""
        cells = make_cells(configs, self.output)
        results: dict[Path, dict[str, Any] | None] = {}

        def note(cell: Cell, found: dict[str, Any] | None, reason: str | None) -> None:
            results[cell.path] = found
            if found is not None:
                self.seconds[_kind(cell)] = found["seconds"]["total"]
            self.progress.cell(cell, found, reason)

        engine, jobs = self.grid.make()
        self.failed += run_grid(
            sorted(cells, key=lambda cell: -self.seconds.get(_kind(cell), math.inf)),
            jobs=jobs,
            device=self.grid.device,
            data_root=self.grid.data_root,
            on_message=self.progress.message,
            on_cell=note,
            engine=engine,
        )
        return [results[cell.path] for cell in cells]


def _kind(cell: Cell) -> tuple[str, str]:
    return cell.config.dataset_name, cell.config.method


class TrialLog:
    """The files of a search: ``trials.csv`` and ``best.yaml``, whole after every round.

    Rows of other methods and datasets that are there already stay.
    """

    def __init__(self, output: Path, searches: Sequence[Search]) -> None:
        self.output = output
        self.searches = searches
        self.path = output / "trials.csv"
        self.best = output / "best.yaml"
        self.old = read_rows(self.path) if self.path.exists() else []

    def rows(self) -> list[TrialRow]:
        """Returns what the searches have tried so far."""
        return [row for search in self.searches for row in search.rows()]

    def write(self) -> None:
        """Writes both files."""
        joined = join_rows(self.old, self.rows())
        make_folder(self.output)
        write_atomic(self.path, write_rows(joined))
        best = yaml.safe_dump(best_settings(joined), sort_keys=False, allow_unicode=True)
        write_atomic(self.best, best.encode())
