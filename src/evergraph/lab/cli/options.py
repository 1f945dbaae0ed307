"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, key=value; repeat for more.", show_default=False),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A YAML file of settings, or a run's config.yaml.")
]
SelectorOption = Annotated[str | None, typer.Option(help="Which nodes are replayed.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DataRootOption = Annotated[
    Path | None,
    typer.Option(help="Folder with datasets.", envvar="EVERGRAPH_DATA", show_envvar=True),
]
ClassesOption = Annotated[int | None, typer.Option(help="Classes per task.")]
SplitSeedOption = Annotated[int | None, typer.Option(help="Fix the split whatever the seed.")]
OrderOption = Annotated[
    str | None, typer.Option(help="Class order: label, alphabetical or random:SEED.")
]
EvaluateOption = Annotated[
    str | None,
    typer.Option(help="test, or validation: hold out 10 % of the training nodes to tune on."),
]
BatchSizeOption = Annotated[
    str | None,
    typer.Option(help="Nodes per step: auto, full, or a number to train on sampled parts."),
]
FanoutOption = Annotated[int | None, typer.Option(help="Neighbours drawn per node when sampling.")]
JobsOption = Annotated[
    int | None, typer.Option(help="Worker processes. [one per core; one on a GPU]")
]
MergeOption = Annotated[
    list[Path] | None, typer.Option(help="Take finished runs from this folder; repeat.")
]
EngineOption = Annotated[str, typer.Option(help="Where jobs run: local or ray.")]
AddressOption = Annotated[
    str | None, typer.Option(help="A Ray cluster's address. [one made on this machine]")
]
GpusOption = Annotated[
    float, typer.Option(help="Part of a GPU that each job asks for, on a Ray cluster.")
]
TrackOption = Annotated[
    str | None, typer.Option(help="Follow runs in tensorboard or mlflow as well.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
