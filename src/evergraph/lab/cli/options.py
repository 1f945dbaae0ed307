"""Options that several commands share, and how they become settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from evergraph.config import RunConfig, load_mapping, parse_settings
from evergraph.errors import InputError
from evergraph.files import read_regular

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


def read_config(path: Path) -> str:
    """Reads the file that ``--config`` names."""
    try:
        return read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(
            f"Expected '--config' to name a readable file (got '{path}': {reason}); check the path."
        ) from None


def complete_config(path: Path | None) -> RunConfig | None:
    """Returns the run that a file describes completely, as a run folder's does, or None."""
    if path is None:
        return None
    text = read_config(path)
    if "schema_version" not in load_mapping(text, str(path)):
        return None
    return RunConfig.from_yaml(text, str(path))


def shared_settings(
    sets: Sequence[str] | None,
    config: Path | None,
    *,
    selector: str | None = None,
    classes_per_task: int | None = None,
    split_seed: int | None = None,
    order: str | None = None,
    evaluate: str | None = None,
    batch_size: str | None = None,
    fanout: int | None = None,
) -> dict[str, Any]:
    """Joins a settings file, named options and ``--set``; the latter wins."""
    settings: dict[str, Any] = {}
    if config is not None:
        settings |= load_mapping(read_config(config), str(config))
    named = {
        "selector": selector,
        "classes_per_task": classes_per_task,
        "split_seed": split_seed,
        "order": order,
        "evaluate": evaluate,
        "batch_size": int(batch_size) if batch_size and batch_size.isdigit() else batch_size,
        "fanout": fanout,
    }
    settings |= {key: value for key, value in named.items() if value is not None}
    if evaluate == "validation":
        settings.setdefault("validation_fraction", 0.1)
    return settings | parse_settings(sets or [])
