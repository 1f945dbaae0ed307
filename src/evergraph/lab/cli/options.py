"""Options that several commands share; the fields of a dataclass are options of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from evergraph.lab.engines import Resources

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, key=value; repeat for more.", show_default=False),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DataRootOption = Annotated[
    Path | None,
    typer.Option(help="Folder with datasets.", envvar="EVERGRAPH_DATA", show_envvar=True),
]
MergeOption = Annotated[
    list[Path] | None, typer.Option(help="Take finished runs from this folder; repeat.")
]
TrackOption = Annotated[
    str | None, typer.Option(help="Follow runs in tensorboard or mlflow as well.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]


@dataclass(frozen=True)
class ResourceOptions(Resources):
    """What the jobs of a grid run on, as options."""

    jobs: Annotated[
        int | None, typer.Option(help="Worker processes. [one per core; one on a GPU]")
    ] = None
    device: DeviceOption = "auto"
    data_root: DataRootOption = None
    engine: Annotated[str, typer.Option(help="Where jobs run: local or ray.")] = "local"
    address: Annotated[
        str | None, typer.Option(help="A Ray cluster's address. [one made on this machine]")
    ] = None
    gpus: Annotated[
        float, typer.Option(help="Part of a GPU that each job asks for, on a Ray cluster.")
    ] = 0.0
    track: TrackOption = None
