"""Requests: what a body may hold, and how it becomes a question or a change of a state."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field, StrictInt, StrictStr
from pydantic_core import from_json
from scipy.sparse import csr_array

from evergraph.errors import InputError, one_line
from evergraph.estimator.extended import extend
from evergraph.estimator.inputs import (
    Change,
    make_change,
    read_edges,
    read_ids,
    read_labels,
    unique_ids,
)
from evergraph.estimator.state import State
from evergraph.estimator.table_changes import COLUMNS, read_change
from evergraph.estimator.tables import parse_table
from evergraph.validation import Config, parse

#: The most ids, edges and labels of one request, each.
MOST_ROWS = 100_000
#: The most nodes that are predicted at once as JSON, and explained.
MOST_ASKED, MOST_EXPLAINED = 10_000, 10
#: The most features of one request, zeros included.
MOST_CELLS = 50_000_000
#: Types of bodies: a change may also come as a table of one of these names.
JSON = "application/json"
SUFFIXES = {"text/csv": ".csv", "application/vnd.apache.parquet": ".parquet"}
TABLES = ("nodes", "update", *COLUMNS)
#: The longest idempotency key.
MOST_KEY = 200

Name = StrictInt | StrictStr
Names = Annotated[list[Name], Field(max_length=MOST_ROWS)]
Rows = Annotated[list[Any], Field(max_length=MOST_ROWS)]  # the estimator reads what is in them


class Question(Config):
    """Which nodes to predict: known ones, or new ones with features and edges."""

    ids: list[Name] = Field(min_length=1, max_length=MOST_ROWS)
    x: Rows | None = None
    edges: Rows | None = None
    top: int = Field(default=1, ge=1, le=1000)
    reject: float | None = Field(default=None, gt=0, lt=1)
    explain: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it may be joined with others: known nodes, and nothing that takes long."""
        return self.x is None and self.edges is None and self.reject is None and not self.explain

    def seen(self, state: State) -> tuple[State, Any]:
        """Returns a state that has the nodes, and their rows."""
        if self.x is None and self.edges is None:
            return state, state.graph.find(read_ids(self.ids), "ids")
        if self.explain:
            raise InputError(
                "Expected 'explain' for known nodes alone (got new ones); learn them first."
            )
        given: dict[str, Any] = {"ids": self.ids, "edges": self.edges}
        given |= {"x": read_rows(self.x, state, "x")}
        return extend(state, make_change("predict", columns=state.columns, **given))


class Teaching(Config):
    """What happens at once: removals, new features, nodes, edges and labels, in this order.

    Labels are pairs of a node, new or known, and its class.
    """

    ids: Names = Field(default_factory=list)
    x: Rows | None = None
    edges: Rows = Field(default_factory=list)
    labels: Rows = Field(default_factory=list)
    updated: Names = Field(default_factory=list)
    updated_x: Rows | None = None
    removed: Names = Field(default_factory=list)
    removed_edges: Rows = Field(default_factory=list)

    def change(self, state: State) -> Change:
        """Makes the change for a state."""
        given = dict(self)
        if not any(given.values()):
            raise InputError(
                "Expected a change (got nothing); give ids, edges, labels, updated or removed."
            )
        if len(self.updated) and self.updated_x is None:
            raise InputError(
                "Expected 'updated_x' with a row for each of 'updated' (got none); give them."
            )
        (nodes, named), _ = read_edges(self.labels, "labels")
        labels = read_labels(named, unique_ids(nodes, "labels"), state.classes)
        given |= {"labels": labels, "classes": set(labels.values())}
        given |= {name: read_rows(given[name], state, name) for name in ("x", "updated_x")}
        return make_change("learn", columns=state.columns, **given)


BodyT = TypeVar("BodyT", Question, Teaching)


def read_body(kind: type[BodyT], body: bytes) -> BodyT:
    """Reads a body of JSON; what is wrong with it becomes one sentence."""
    try:
        values = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InputError(f"Expected a body of JSON (got: {one_line(str(error))}).") from None
    if not isinstance(values, dict):
        raise InputError("Expected a JSON object (got something else); see /openapi.json.")
    return parse(kind, values)


def form_of(kind: str, table: str | None) -> str:
    """Names what a body is: ``json``, or a table such as ``edges.csv``."""
    if kind == JSON:
        return "json"
    if table not in TABLES:
        raise InputError(
            f"Expected '?table=' to say what the table holds: {', '.join(TABLES)} (got "
            f"{'none' if table is None else 'another'}); add it."
        )
    return table + SUFFIXES[kind]


def read_taught(form: str, body: bytes, state: State) -> Change:
    """Makes a change of a body, whose form is known."""
    if form == "json":
        return read_body(Teaching, body).change(state)
    path = Path(form)
    table = parse_table(path, body, MOST_CELLS)
    if not 0 < table.num_rows <= MOST_ROWS:
        raise InputError(f"Expected 1 to {MOST_ROWS} rows (got {table.num_rows}); split it.")
    return read_change({path.stem: table}, state)


def read_rows(x: list[Any] | None, state: State, field: str) -> Any:
    """Reads features; a row may be an object that names the columns that are not zero."""
    width = state.graph.width
    if x is None or not any(isinstance(row, dict) for row in x):
        return x
    if not all(isinstance(row, dict) for row in x) or len(x) * width > MOST_CELLS or not width:
        raise InputError(
            f"Expected '{field}' with objects alone, of a state that has nodes, and at most "
            f"{MOST_CELLS} features (got others); give lists, or fewer rows."
        )
    names = map(str, range(width)) if state.columns is None else state.columns
    place = {name: at for at, name in enumerate(names)}
    try:
        columns = [place[name] for name in chain.from_iterable(x)]
    except KeyError as error:
        told = "a number below that of the features" if state.columns is None else "a known name"
        raise InputError(
            f"Expected columns of '{field}' to be {told} (got {str(error.args[0])[:80]!r}); "
            "correct it."
        ) from None
    values = [value for row in x for value in row.values()]
    if not all(type(value) in {int, float} for value in values):
        raise InputError(f"Expected '{field}' to hold numbers (got something else); correct it.")
    starts = np.cumsum([0, *map(len, x)])
    with np.errstate(over="ignore"):  # infinities are refused later
        data = np.array(values, dtype=np.float64).astype(np.float32)
    return csr_array((data, columns, starts), shape=(len(x), width))
