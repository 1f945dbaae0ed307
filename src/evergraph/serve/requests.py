"""Requests: what a body may hold, and how it becomes a question or a change of a state."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import Field, StrictInt, StrictStr
from pydantic_core import from_json

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
from evergraph.validation import Config, parse

#: The most ids, edges and labels of one request, each.
MOST_ROWS = 100_000
#: The most nodes that are predicted at once, and explained.
MOST_ASKED, MOST_EXPLAINED = 10_000, 10
#: The longest idempotency key.
MOST_KEY = 200

Name = StrictInt | StrictStr
Names = Annotated[list[Name], Field(max_length=MOST_ROWS)]
Rows = Annotated[list[Any], Field(max_length=MOST_ROWS)]  # the estimator reads what is in them


class Question(Config):
    """Which nodes to predict: known ones, or new ones with features and edges."""

    ids: list[Name] = Field(min_length=1, max_length=MOST_ASKED)
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
        given: dict[str, Any] = {"ids": self.ids, "x": self.x, "edges": self.edges}
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
