"""``evergraph reproduce``: an experiment as a whole, from runs to table and figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evergraph.cli import options
from evergraph.cli.console import make_console
from evergraph.cli.grids import compare
from evergraph.errors import unknown_name
from evergraph.experiments import frontier
from evergraph.report.frontier import write_frontier

EXPERIMENTS = ("frontier",)


def reproduce(
    experiment: Annotated[str, typer.Argument(help="Which experiment: frontier.")],
    output: Annotated[Path, typer.Option(help="Folder of the experiment.")],
    dataset: Annotated[list[str] | None, typer.Option(help="Repeat for more.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="NAME[:key=value,...][@label].")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N − 1.")] = 10,
    jobs: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="Take finished runs from this folder; repeat.")
    ] = None,
    device: options.DeviceOption = "auto",
    data_root: options.DataRootOption = None,
) -> None:
    """Run an experiment and write its table and figure; finished runs are never run again."""
    if experiment not in EXPERIMENTS:
        raise unknown_name("experiment", experiment, EXPERIMENTS)
    compare(
        output,
        dataset=dataset or list(frontier.DATASET_NAMES),
        method=method or list(frontier.METHODS),
        seeds=seeds,
        jobs=jobs,
        merge=merge,
        device=device,
        data_root=data_root,
    )
    console = make_console()
    console.print(write_frontier(output).rich())
    console.print(f"{output}/frontier.png · svg · csv · md · json", markup=False)
