"""Change: what users hand over, in the forms they have it, read into one transaction.

Ids, features, edges and labels come as lists, arrays, tensors and frames, or together as a graph of
PyG or NetworkX, taken apart without importing either. One file, so that there is one way in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError, warn
from evergraph.estimator.graph import GrowingGraph, Id, Ids, are_distinct, kind_of, show, sparse
from evergraph.metrics import Array
from evergraph.stream import Features, SparseRows
from evergraph.stream.features import from_scipy_parts

#: Longer names are not names; each is kept as it is.
MAX_ID_LENGTH = 4096
INT64 = range(-(2**63), 2**63)
#: Texts that stand for a missing value in what spreadsheets, pandas and R write.
MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "<na>", "nat", "none", "null", "nil"})
#: What a graph of PyG may tell of edges and kinds of nodes, and nobody reads; and what is read.
NOT_USED = ("edge_type", "node_type")
PYG = ("x", "n_id", "y", "train_mask", "edge_weight", "edge_attr", *NOT_USED)
#: A whole number that was a float on its way here, as when a column has missing entries.
_WHOLE_FLOAT = re.compile(r"([+-]?[0-9]+)\.0*")
#: Halves of characters, which no encoding writes.
_SURROGATE = re.compile("[\ud800-\udfff]")
Pairs = tuple[Ids, Ids]


@dataclass(frozen=True)
class Change:
    """What happens at once, in this order: removals, new features, nodes, edges, labels."""

    kind: str  # learn, update or remove
    removed: Ids = field(default_factory=list)
    removed_edges: Pairs = field(default_factory=lambda: ([], []))
    updated: Ids = field(default_factory=list)
    updated_x: Features | None = None  # [len(updated), d]
    ids: Ids = field(default_factory=list)
    x: Features | None = None  # [len(ids), d]
    edges: Pairs = field(default_factory=lambda: ([], []))
    weights: Array | None = None  # [len(edges)] float32; None: known ones stay, others are one
    directed: bool = False  # whether a graph came whose edges lead one way
    labels: dict[Id, Id] = field(default_factory=dict)  # of any nodes, new or old
    columns: tuple[str, ...] | None = None  # names of the features, if they have any


def make_change(
    kind: str, *, columns: Sequence[str] | None, classes: Collection[Id] = (), **given: Any
) -> Change:
    """Reads a change from what a user gave: parts of a :class:`Change`, in any form.

    ``columns`` are the features' names so far, ``classes`` the classes known so far.
    """
    part = given.get
    ids, updated, removed = (
        unique_ids([] if part(key) is None else part(key)) for key in ("ids", "updated", "removed")
    )
    if len(ids) and part("x") is None:
        raise InputError(
            f"Expected 'x' with a row of features for each of {len(ids)} ids (got none); give them."
        )
    x, names = read_features(part("x"), len(ids), columns)
    updated_x, names = read_features(part("updated_x"), len(updated), names)
    edges, beside = read_edges(part("edges"), weighted=True)
    weights = beside if part("weights") is None else part("weights")
    return Change(
        kind,
        removed=removed,
        removed_edges=read_edges(part("removed_edges"))[0],
        updated=updated if updated_x is not None else [],
        updated_x=updated_x,
        ids=ids,
        x=x,
        edges=edges,
        weights=read_weights(weights, len(edges[0])),
        directed=part("directed", False),
        labels=read_labels(part("labels"), ids if len(ids) else updated, classes),
        columns=names,
    )


def from_object(ids: Any, x: Any, edges: Any, labels: Any, graph: GrowingGraph) -> dict[str, Any]:
    """Returns ids, features, edges and labels, taken from a graph object if ``ids`` is one.

    Of a graph object the nodes that ``graph`` has already bring their edges alone. There are also
    what edges weigh, and whether they lead one way; if not, but those of ``graph`` do, they lead
    both.
    """
    if hasattr(type(ids), "node_types") and hasattr(type(ids), "edge_types"):
        raise InputError(
            f"Expected a graph with nodes of one kind (got {type(ids).__name__}); convert it, for "
            "example by to_homogeneous(), with features of one width."
        )
    pyg = hasattr(ids, "edge_index") and hasattr(ids, "num_nodes")
    networkx = hasattr(ids, "nodes") and hasattr(ids, "edges") and hasattr(ids, "adj")
    given = {"x": x, "edges": edges, "labels": labels}
    if not pyg and not networkx:
        return {"ids": ids, **given}
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"Expected no '{name}' beside a graph object, which brings its own (got one); "
                "leave it out."
            )
    brought, others = _from_pyg(ids, graph) if pyg else _from_networkx(ids, graph)
    warn_of_extra("The graph", others)
    return brought


def warn_of_extra(where: str, names: Collection[str]) -> None:
    """Says what is there and has no effect, if anything."""
    if names:
        warn(f"{where} has {', '.join(map(repr, names))}, which is not used.")


def read_ids(values: Any, field: str = "ids") -> Ids:
    """Reads names of nodes: all text or all whole numbers, which stay an array if they are one."""
    whole = _whole(values)
    if whole is not None and whole.ndim == 1:
        return whole
    items = _items(values, field)
    check_names(enumerate(items, 1), field)
    return items


def unique_ids(values: Any, field: str = "ids") -> Ids:
    """Reads names of nodes, each of which may come once."""
    ids = read_ids(values, field)
    distinct = are_distinct(ids) if isinstance(ids, np.ndarray) else len(set(ids)) == len(ids)
    if not distinct:
        first: dict[Id, int] = {}
        row = next(row for row, item in enumerate(ids) if first.setdefault(item, row) < row)
        raise InputError(
            f"Expected '{field}' without repetition (got {show(ids[row])} again in row "
            f"{row + 1}); keep one."
        )
    return ids


def read_labels(values: Any, ids: Ids, known: Collection[Id] = ()) -> dict[Id, Id]:
    """Reads class names beside ids; None, NaN and words for them stand for no label.

    A mapping names the labelled nodes itself. Blanks around a name and ``.0`` behind a whole
    number make no class of their own; what is in ``known`` is taken as it is.
    """
    if values is None:
        return {}
    if isinstance(values, dict):
        ids, values = read_ids(list(values), "labels"), list(values.values())
    given = _items(values, "labels")
    if len(given) != len(ids):
        raise InputError(
            f"Expected 'labels' with one entry per id, {len(ids)} (got {len(given)}); give None "
            "where there is no label."
        )
    texts = [name for name in known if isinstance(name, str)]
    named = {_label(name): name for name in texts} | {name: name for name in texts}
    items: list[Any] = []
    words = set()
    for item in given:
        name = item if isinstance(item, str) and item in named else _label(item)
        items.append(named.get(name, name) if isinstance(name, str) else name)
        if name is None and isinstance(item, str) and item:
            words.add(repr(item))
    if words:
        warn(f"Nodes labelled {', '.join(sorted(words))} count as unlabelled.")
    check_names(((row, item) for row, item in enumerate(items, 1) if item is not None), "labels")
    names = _items(ids, "ids")
    return {name: item for name, item in zip(names, items, strict=True) if item is not None}


def check_names(rows: Iterable[tuple[int, Any]], field: str) -> None:
    """Refuses names that are not all text or all whole numbers; takes rows with their names."""
    first = None
    for row, item in rows:
        kind = str if isinstance(item, str) else int
        if kind is int and (type(item) is not int or item not in INT64):
            wrong = "as text or whole numbers"
        elif kind is str and (not 0 < len(item) <= MAX_ID_LENGTH or _SURROGATE.search(item)):
            wrong = f"of 1 to {MAX_ID_LENGTH} characters of text"
        elif first is not None and kind is not first:
            wrong = "of one kind, text or whole numbers"
        else:
            first = kind
            continue
        got = "both, the first change" if "one kind" in wrong else show(item)
        raise InputError(f"Expected '{field}' {wrong} (got {got} in row {row}); convert it.")


def read_features(
    x: Any, count: int, columns: Sequence[str] | None = None
) -> tuple[Features | None, tuple[str, ...] | None]:
    """Reads one row of numbers per id: arrays, frames, tensors and SciPy's matrices, also sparse.

    Args:
        x: The features, None if there are none.
        count: How many rows there must be.
        columns: Names of the columns so far; a frame is put in that order.

    Returns:
        The features and the names of their columns, if they have any.
    """
    names = tuple(columns) if columns is not None else None
    if x is None:
        return None, names
    if hasattr(x, "columns") and hasattr(x, "to_numpy"):
        given = tuple(map(str, x.columns))
        names = check_columns(given, names, "x")
        x = (x if given == names else x[list(names)]).to_numpy()
    if isinstance(x, Tensor) and x.layout != torch.strided and x.ndim == 2:
        x = sparse(x.detach().cpu())
    elif hasattr(x, "tocsr"):
        rows = x.tocsr()
        rows.sum_duplicates()
        x = from_scipy_parts(rows.data, rows.indices, rows.indptr, rows.shape[1])
    x = x.with_values(x.values.float()) if isinstance(x, SparseRows) else _dense(x)
    if len(x.shape) != 2 or x.shape[0] != count or x.shape[1] == 0:
        raise InputError(
            f"Expected 'x' of shape [{count}, d], one row per id (got {list(x.shape)}); correct it."
        )
    good = torch.isfinite(x.values if isinstance(x, SparseRows) else x)
    if not bool(good.all()):
        at = torch.nonzero(~good)[0, 0]
        row = int(x.row_index()[at] if isinstance(x, SparseRows) else at) + 1
        raise InputError(f"Expected 'x' to be finite (got NaN or infinity in row {row}); clean it.")
    return x, names


def read_edges(
    edges: Any, field: str = "edges", *, weighted: bool = False
) -> tuple[Pairs, Any | None]:
    """Reads pairs of ids, and where they may be ``weighted`` what they weigh.

    They are a sequence of pairs or triples, an array ``[m, 2]``, or a frame of two columns and
    maybe one called ``weight``.
    """
    if edges is None:
        return ([], []), None
    if hasattr(edges, "columns") and hasattr(edges, "to_numpy"):
        sides = [name for name in edges.columns if not weighted or name != "weight"]
        if len(sides) == 2:
            first, second = (read_ids(edges[name], field) for name in sides)
            return (first, second), edges["weight"] if len(edges.columns) == 3 else None
        edges = zip(*(edges[name].to_list() for name in edges.columns), strict=True)
        weighted = False
    whole = _whole(edges)
    if whole is not None and whole.ndim == 2 and whole.shape[1] == 2:
        return (whole[:, 0], whole[:, 1]), None
    pairs = _items(edges, field)
    triples = weighted and pairs and hasattr(pairs[0], "__len__") and len(pairs[0]) == 3
    width = 3 if triples and not isinstance(pairs[0], str) else 2
    for row, pair in enumerate(pairs, 1):
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != width:
            entries = "two ids each" if width == 2 else "two ids and a weight each"
            raise InputError(
                f"Expected '{field}' as pairs of ids (got {show(pair)} in row {row}); give "
                f"{entries}."
            )
    first, second = (read_ids([pair[side] for pair in pairs], field) for side in (0, 1))
    return (first, second), [pair[2] for pair in pairs] if width == 3 else None


def read_weights(values: Any, count: int) -> Array | None:
    """Reads what edges weigh, above zero each."""
    if values is None:
        return None
    values = values.detach().cpu() if isinstance(values, Tensor) else values
    given = np.asarray(values, dtype=object if isinstance(values, list) else None).reshape(-1)
    if given.size != count:
        raise InputError(
            f"Expected 'weights' for each of {count} edges (got {given.size}); give one each."
        )
    try:
        weights = given.astype(np.float32)
    except (ValueError, TypeError):
        weights = np.array([w if isinstance(w, int | float) else np.nan for w in given])
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"Expected 'weights' of edges as numbers above zero (got {show(given[at])} in row "
            f"{at + 1}); correct it, or leave such edges out."
        )
    return weights


def _from_pyg(data: Any, there: GrowingGraph) -> tuple[dict[str, Any], list[str]]:
    """Reads ``x``, ``edge_index`` and, where there are any, ``n_id``, ``y`` and ``train_mask``.

    Without ``n_id`` nodes are called 0, 1, …; without ``train_mask`` every ``y`` of at least 0
    is a label. Edges weigh ``edge_weight``, or ``edge_attr`` if it is one number above zero for
    each. Also returns what there is and nobody reads.
    """
    found = {key: getattr(data, key, None) for key in PYG}
    index, about, y = data.edge_index, found["edge_attr"], found["y"]
    if found["x"] is None:
        raise InputError("Expected 'x' in the Data object (got none); set it.")
    ids = read_ids(range(int(data.num_nodes)) if found["n_id"] is None else found["n_id"], "n_id")
    ids = np.asarray(ids, dtype=object if kind_of(ids) is str else np.int64)
    rows = np.flatnonzero(there.names.where(ids) < 0)
    labels: list[Any] = [None] * len(ids)
    if y is not None:
        mask = torch.ones(y.numel()) if found["train_mask"] is None else found["train_mask"]
        pairs = zip(y.flatten().tolist(), mask.tolist(), strict=True)
        labels = [label if shown and label >= 0 else None for label, shown in pairs]
    weights = found["edge_weight"]
    if weights is None and isinstance(about, Tensor) and about.numel() == index.shape[1]:
        weights = about if bool((about > 0).all()) else None
    count = int(index.max()) + 1 if index.numel() else 0
    led, back = (torch.unique(pair[0] * count + pair[1]) for pair in (index, index.flip(0)))
    unread = ["edge_attr"] if about is not None and about is not weights else []
    return {
        "ids": ids[rows],
        "x": data.x[rows],
        "edges": ids[index.T.cpu().numpy()],
        "weights": weights,
        "directed": bool((~torch.isin(led, back)).any()),
        "labels": [labels[row] for row in rows.tolist()],
    }, [*(key for key in NOT_USED if found[key] is not None), *unread]


def _from_networkx(graph: Any, there: GrowingGraph) -> tuple[dict[str, Any], list[str]]:
    """Reads node attributes ``x`` and, where there is one, ``label`` (or ``y``).

    Also returns what there is and nobody reads.
    """
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    rows = there.names.where([name for name, _ in nodes]).tolist()
    new = [node for node, row in zip(nodes, rows, strict=True) if row < 0]
    for name, about in new:
        if "x" not in about:
            raise InputError(
                f"Expected an attribute 'x' of node {name!r} (got "
                f"{', '.join(map(str, about)) or 'none'}); set it to a list of numbers."
            )
    unread = {key for *_, about in edges for key in about} - {"weight"}
    unread |= {key for _, about in nodes for key in about} - {"x", "label", "y"}
    if there.directed and not graph.is_directed():
        edges += [(b, a, about) for a, b, about in edges]
    weights = [about.get("weight", 1) for *_, about in edges]
    return {
        "ids": [name for name, _ in new],
        "x": [about["x"] for _, about in new] if new else None,
        "edges": [(a, b) for a, b, _ in edges],
        "weights": weights if any(weight != 1 for weight in weights) else None,
        "directed": graph.is_directed(),
        "labels": [about.get("label", about.get("y")) for _, about in new],
    }, sorted(map(str, unread))


def _whole(values: Any) -> Array | None:
    """Returns a copy of whole numbers that come as an array, tensor or column, otherwise None."""
    if isinstance(values, Tensor) and not values.is_floating_point():
        values = values.detach().cpu().numpy()
    elif hasattr(values, "to_numpy"):  # a column of pandas or Polars
        values = values.to_numpy()
    if not isinstance(values, np.ndarray) or not np.can_cast(values.dtype, np.int64):
        return None
    return None if values.dtype == bool else values.astype(np.int64)


def _items(values: Any, field: str) -> list[Any]:
    if hasattr(values, "tolist"):  # NumPy, PyTorch and pandas
        values = values.tolist()
    elif hasattr(values, "to_list"):  # Polars
        values = values.to_list()
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise InputError(
            f"Expected '{field}' as a sequence (got {type(values).__name__}); give a list."
        )
    return [item.item() if isinstance(item, np.generic) else item for item in values]


def _dense(x: Any) -> Tensor:
    if isinstance(x, Tensor) and not x.is_complex():
        return x.detach().cpu().to(torch.float32).contiguous().clone()
    try:
        if np.iscomplexobj(x):
            raise TypeError
        with np.errstate(over="ignore"):  # infinities are refused below
            return torch.from_numpy(np.array(x, dtype=np.float32, order="C"))
    except (ValueError, TypeError):
        raise InputError(
            "Expected 'x' as rows of real numbers, all of the same length (got something else); "
            "convert text and fill gaps."
        ) from None


def check_columns(
    given: tuple[str, ...], known: tuple[str, ...] | None, field: str
) -> tuple[str, ...]:
    """Returns the names of features in the order of the first batch, whose names they must be."""
    if known is None:
        return given
    odd = sorted(set(given) ^ set(known))
    if odd or len(given) != len(known):
        raise InputError(
            f"Expected '{field}' with the features of the first batch (got a difference in "
            f"{', '.join(map(repr, odd[:5])) or 'their number'}); add or drop them."
        )
    return known


def _label(item: Any) -> Any:
    """Reads a class as people mean it: no label is None, ``0.0`` is 0, blanks are not part."""
    if type(item).__name__ in {"NAType", "NaTType"}:  # of pandas
        return None
    if isinstance(item, float):
        return None if math.isnan(item) else int(item) if item.is_integer() else item
    if not isinstance(item, str):
        return item
    text = item.strip()
    whole = _WHOLE_FLOAT.fullmatch(text)
    return None if text.lower() in MISSING else whole[1] if whole else text
