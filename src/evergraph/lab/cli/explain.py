"""``evergraph explain``: which neighbours and features decided on a node's class."""

from __future__ import annotations

from typing import Annotated

import typer

from evergraph.errors import InputError
from evergraph.estimator.explanation import explain as explain_rows
from evergraph.estimator.table_changes import like
from evergraph.estimator.transaction import load_state
from evergraph.lab.cli.predict import StateArgument, VersionOption
from evergraph.lab.cli.runs import JsonOption
from evergraph.lab.tables import show


def explain(
    state: StateArgument,
    ids: Annotated[list[str], typer.Argument(help="Names of nodes.")],
    count: Annotated[int, "How many nodes and features to show, for and against."] = 5,
    version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which neighbours and features decided a node's class, against the runner-up."""
    if count < 1:
        raise InputError(f"Expected '--count' of at least 1 (got {count}); raise it.")
    present, _ = load_state(state, version)
    if not present.classes:
        raise InputError(
            f"Expected a state that has learned labels (got none in '{state}'); learn some first."
        )
    rows = present.graph.find(like(present.graph.names.kind, ids), "ids")
    found = explain_rows(present, rows)
    show(
        {"nodes": [one.summary(count) for one in found]},
        [],
        as_json,
        *(one.text(count) for one in found),
    )
