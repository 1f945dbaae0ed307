"""Change: one transaction on an estimator, from whatever interface it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.growing import GrowingGraph, Id, features_state
from evergraph.estimator.inputs import (
    read_edges,
    read_features,
    read_ids,
    read_labels,
    unique_ids,
)
from evergraph.stream import Features, SparseRows

Pairs = tuple[list[Id], list[Id]]


@dataclass(frozen=True)
class Change:
    """What happens at once, in this order: removals, new features, nodes, edges, labels."""

    kind: str  # learn, update or remove
    removed: list[Id] = field(default_factory=list)
    removed_edges: Pairs = field(default_factory=lambda: ([], []))
    updated: list[Id] = field(default_factory=list)
    updated_x: Features | None = None  # [len(updated), d]
    ids: list[Id] = field(default_factory=list)
    x: Features | None = None  # [len(ids), d]
    edges: Pairs = field(default_factory=lambda: ([], []))
    labels: dict[Id, Id] = field(default_factory=dict)  # of any nodes, new or old
    columns: tuple[str, ...] | None = None  # names of the features, if they have any

    def to_state(self) -> dict[str, Any]:
        """Returns tensors and plain values that :meth:`from_state` takes back."""
        return {
            "kind": self.kind,
            "removed": self.removed,
            "removed_edges": list(self.removed_edges),
            "updated": self.updated,
            "updated_x": None if self.updated_x is None else features_state(self.updated_x),
            "ids": self.ids,
            "x": None if self.x is None else features_state(self.x),
            "edges": list(self.edges),
            "labels": [list(self.labels), list(self.labels.values())],
            "columns": None if self.columns is None else list(self.columns),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Change:
        """Checks and takes back what :meth:`to_state` returned."""
        if state["kind"] not in {"learn", "update", "remove"}:
            raise InputError(f"Expected 'kind' of a change (got {state['kind']!r}); it is damaged.")
        columns = None if state["columns"] is None else [str(name) for name in state["columns"]]
        change = make_change(
            state["kind"],
            columns=None,
            removed=state["removed"],
            removed_edges=_zip(*state["removed_edges"]),
            updated=state["updated"],
            updated_x=_restore(state["updated_x"]),
            ids=state["ids"],
            x=_restore(state["x"]),
            edges=_zip(*state["edges"]),
            labels=dict(zip(*state["labels"], strict=True)),
        )
        names = None if columns is None else tuple(columns)
        return cls(**{**change.__dict__, "columns": names})


def make_change(
    kind: str,
    *,
    columns: Sequence[str] | None,
    removed: Any = None,
    removed_edges: Any = None,
    updated: Any = None,
    updated_x: Any = None,
    ids: Any = None,
    x: Any = None,
    edges: Any = None,
    labels: Any = None,
) -> Change:
    """Reads a change from what a user gave; ``columns`` are the features' names so far."""
    new_ids = unique_ids(ids) if ids is not None else []
    renewed = unique_ids(updated) if updated is not None else []
    names = tuple(columns) if columns is not None else None
    features = changed = None
    if x is not None:
        features, given = read_features(x, len(new_ids), names)
        names = names or given
    elif new_ids:
        raise InputError(
            f"Expected 'x' with a row of features for each of {len(new_ids)} ids (got none); give "
            "them."
        )
    if updated_x is not None:
        changed, given = read_features(updated_x, len(renewed), names)
        names = names or given
    return Change(
        kind,
        removed=unique_ids(removed) if removed is not None else [],
        removed_edges=read_edges(removed_edges),
        updated=renewed if changed is not None else [],
        updated_x=changed,
        ids=new_ids,
        x=features,
        edges=read_edges(edges),
        labels=read_labels(labels, new_ids or renewed),
        columns=names,
    )


def check_nodes(graph: GrowingGraph, change: Change) -> None:
    """Refuses new nodes that are known already and features of another width."""
    if graph.num_nodes:
        kind = type(graph.ids[0])
        for ids in (change.ids, change.updated, change.removed, *change.edges, list(change.labels)):
            if ids and type(ids[0]) is not kind:
                raise InputError(
                    f"Expected ids as {_kind(kind)}, as those known are (got {ids[0]!r}); "
                    "convert them."
                )
    gone = set(change.removed)
    known = list(map(graph.rows.__contains__, change.ids))
    if any(known):
        for row, (name, there) in enumerate(zip(change.ids, known, strict=True), 1):
            if there and name not in gone:
                raise InputError(
                    f"Expected 'ids' of new nodes (got {name!r} in row {row}, which is known); use "
                    "update for its features and labels."
                )
    for x in (change.x, change.updated_x):
        width = graph.features.shape[1]  # 0 before the first nodes
        if x is not None and width and x.shape[1] != width:
            raise InputError(
                f"Expected 'x' with {width} columns, as in the first batch (got {x.shape[1]}); "
                "give the same features."
            )


def rows_of(graph: GrowingGraph, pairs: Pairs, what: str) -> Tensor:
    """Returns the rows of pairs of ids, ``[2, m]``."""
    return torch.stack([graph.find(side, what) for side in pairs])


def _zip(first: list[Id], second: list[Id]) -> list[tuple[Id, Id]]:
    read_ids(first)
    return list(zip(first, second, strict=True))


def _kind(kind: type) -> str:
    return "text" if kind is str else "whole numbers"


def _restore(state: dict[str, Any] | None) -> Features | None:
    return None if state is None else restore_features(state)


def restore_features(state: dict[str, Any]) -> Features:
    """Checks and takes back what ``features_state`` returned."""
    if "dense" in state:
        x: Tensor = state["dense"]
        if x.dtype != torch.float32 or x.ndim != 2:
            raise ValueError("features of another kind")
        return x
    values, indices, indptr = state["values"], state["indices"], state["indptr"]
    columns = int(state["num_columns"])
    kinds = (values.dtype, indices.dtype, indptr.dtype)
    if kinds != (torch.float32, torch.int64, torch.int64) or indptr.numel() < 1 or columns < 1:
        raise ValueError("features of another kind")
    if any(part.ndim != 1 for part in (values, indices, indptr)):
        raise ValueError("features of another shape")
    steps = indptr[1:] - indptr[:-1]
    if int(indptr[0]) or int(indptr[-1]) != indices.numel() or bool((steps < 0).any()):
        raise ValueError("features with a wrong pointer")
    if values.numel() != indices.numel() or bool(((indices < 0) | (indices >= columns)).any()):
        raise ValueError("features with a wrong column")
    return SparseRows(values, indices, indptr, columns)
