"""``evergraph predict``: what a state holds of its nodes is written without loading PyTorch."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from evergraph.estimator.blocks import Damage
from evergraph.estimator.store import Store
from evergraph.estimator.tables import as_csv, check_table_name, write_table
from evergraph.lab.cli.words import Workers

StateArgument = Annotated[Path, typer.Argument(help="Folder of an estimator's state.")]
VersionOption = Annotated[
    int | None,
    typer.Option("--version", "--generation", help="Version of the state. [the current one]"),
]


def predict(
    state: StateArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A .csv or .parquet file, or - to print CSV.")
    ],
    ids: Annotated[Path | None, "File of ids to predict. [all nodes]"] = None,
    nodes: Annotated[Path | None, "Nodes that are not in the state: id, features."] = None,
    edges: Annotated[Path | None, "Their edges: source, target."] = None,
    reject: Annotated[
        float | None, "Refuse novel nodes; this share of known nodes too, such as 0.05."
    ] = None,
    version: VersionOption = None,
    device: Annotated[str, "Device to use: auto, cpu or cuda."] = "auto",
    *,
    workers: Workers,
) -> None:
    """Write the class of every node, with its probability; the state is not changed."""
    asked = {"ids": ids, "nodes": nodes, "edges": edges}
    if (state / "partition.json").is_file():
        from evergraph.lab.cli.parts import (  # noqa: PLC0415 - loads PyTorch
            check_options,
            predict_partition,
        )

        check_options(state, **asked, reject=reject, version=version, device=device)
        predict_partition(state, output, workers)
        return
    if str(output) != "-":
        check_table_name(output)
    plain = not any(asked.values()) and reject is None and device == "auto"
    columns = stored(state, version) if plain else None
    if columns is None and workers.are_wanted:
        workers.launch()
        return
    if columns is None:
        from evergraph.lab.cli.states import computed  # noqa: PLC0415 - loads PyTorch

        columns = computed(state, version, device, reject, **asked)
    if not workers.leads:
        return
    if str(output) == "-":
        print(as_csv(columns), end="")
        return
    write_table(output, columns)
    print(f"{len(columns['id']):,} nodes · {output}", file=sys.stderr)


def stored(state: Path, version: int | None) -> dict[str, list[Any]] | None:
    """Returns the predictions that a state holds, None if it holds none that are whole."""
    try:
        found = Store(state).predictions(version)
        if found is None:
            return None
        labels, probability = found["labels"], found["probability"]
        names = [str(key) for key in found["keys"].tolist()]
        if found["text"] is not None:
            text, ends = found["text"].tobytes(), found["ends"].tolist()
            names = [text[begin:end].decode() for begin, end in pairwise([0, *ends])]
        chosen = [str(found["classes"][label]) for label in labels if label >= 0]
    except (Damage, ValueError, TypeError, KeyError, IndexError):
        return None  # reading the whole state says what is wrong
    if not len(names) == len(chosen) == len(probability):
        return None
    return {"id": names, "label": chosen, "probability": probability.tolist()}
