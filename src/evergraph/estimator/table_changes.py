"""Tables as a change: nodes with their features, edges, labels, updates and removals.

Files and requests hold text, or numbers of any kind; a state's names and classes say what it means.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from evergraph.errors import InputError
from evergraph.estimator.graph import Id
from evergraph.estimator.inputs import (
    INT64,
    Change,
    check_columns,
    make_change,
    read_labels,
    warn_of_extra,
)
from evergraph.estimator.state import State
from evergraph.estimator.tables import Table

#: What int() reads beyond this (``1_0``, other scripts' digits) is no number in a file.
_WHOLE = re.compile(r"-?[0-9]{1,19}")
#: What is read of tables that hold no features.
COLUMNS = {
    "edges": {"source", "target", "weight"},
    "remove_edges": {"source", "target"},
    "labels": {"id", "label"},
    "remove_nodes": {"id"},
}


def read_change(tables: dict[str, Table], state: State) -> Change:
    """Makes one change of all tables; features are put in the order of the first batch."""
    parts: dict[str, Any] = {}
    columns, kind = state.columns, state.graph.names.kind
    labels: dict[Any, Any] = {}
    for name, prefix in (("nodes", ""), ("update", "updated_")):
        if name in tables:
            table = tables[name]
            ids = like(kind, table.ids())
            features = tuple(name for name in table.columns if name not in {"id", "label"})
            if not features:
                raise InputError(
                    f"Expected columns of features in '{table.path}' (got none beside id and "
                    "label); add them."
                )
            columns = check_columns(features, columns, str(table.path))
            parts["ids" if not prefix else "updated"] = ids
            parts[f"{prefix}x"] = table.numbers(columns)
            if "label" in table.columns:
                named = zip(ids, table.texts("label", gaps=True), strict=True)
                labels |= {node: label for node, label in named if label is not None}
    if "labels" in tables:
        table = tables["labels"]
        ids = like(kind, table.ids())
        labels |= dict(zip(ids, table.texts("label"), strict=True))
    for name, field in (("edges", "edges"), ("remove_edges", "removed_edges")):
        if name in tables:
            ends = [tables[name].ids(side, unique=False) for side in ("source", "target")]
            parts[field] = list(zip(*(like(kind, end) for end in ends), strict=True))
    if "edges" in tables and "weight" in tables["edges"].columns:
        parts["weights"] = tables["edges"].numbers(["weight"])
    if "remove_nodes" in tables:
        parts["removed"] = like(kind, tables["remove_nodes"].ids())
    for name, used in COLUMNS.items():
        if name in tables:
            extra = [column for column in tables[name].columns if column not in used]
            warn_of_extra(f"'{tables[name].path}'", extra)
    labels = read_labels(labels, [], state.classes)
    names = like(type(state.classes[0]) if state.classes else None, list(labels.values()))
    labels = dict(zip(labels, names, strict=True))
    return make_change("learn", columns=columns, classes=names, labels=labels, **parts)


def like(kind: type[Id] | None, names: Sequence[Any]) -> list[Id]:
    """Reads names as whole numbers where those known are: files hold text alone."""
    if kind is not int:
        return list(names)
    for row, name in enumerate(names, 1):
        if not _WHOLE.fullmatch(name) or int(name) not in INT64:
            raise InputError(
                f"Expected whole numbers, as the state's names are (got {name!r} in row {row}); "
                "correct it."
            )
    return [int(name) for name in names]
