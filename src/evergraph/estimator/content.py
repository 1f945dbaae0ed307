"""What is stored of states and changes: plain values, and arrays that grow at their end.

What comes back (``restore_*``) may have been written by anyone: everything that compiled code will
trust is checked, rows, labels, pointers and sizes. Wrong content raises anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.config import EstimatorConfig, read_config
from evergraph.estimator.graph import Edits, GrowingGraph, Id, undirected
from evergraph.estimator.inputs import Change, check_finite, unique_ids
from evergraph.estimator.state import Entry, Evaluator, State
from evergraph.files import physical_memory
from evergraph.methods import make_method
from evergraph.stream import Adjacency, Features, LabelledNodes, SparseRows
from evergraph.train import Learner, learner_state, restore_learner
from evergraph.validation import parse


def state_content(state: State) -> dict[str, Any]:
    """Returns plain values and arrays that :func:`restore_state` takes back."""
    history = [entry.model_dump(mode="json") for entry in state.history]
    try:
        json.dumps(history, allow_nan=False)
    except ValueError:
        raise InputError(
            "Expected finite numbers in what a method reports (got NaN or infinity); correct "
            "the method."
        ) from None
    edits = {"added": state.edits.added, "deleted": state.edits.deleted}
    return {
        "config": state.config.model_dump(mode="json"),
        "classes": list(state.classes),
        "columns": None if state.columns is None else list(state.columns),
        "history": history,
        "ids": ids_content(state.graph.ids),
        "features": features_content(state.graph.features),
        "edges": edges_content(state.graph.adjacency),
        "edits": {k: {"first": v[0], "second": v[1]} for k, v in edits.items()},
        "learner": learner_state(state.learner),
        "granted": _labels_content(state.granted),
        "held_out": _labels_content(state.evaluator.held_out),
        "shown": state.evaluator.shown,
    }


def restore_state(content: Mapping[str, Any]) -> State:
    """Checks and takes back what :func:`state_content` returned, perhaps written by anyone.

    Everything that compiled code will trust is checked; wrong content raises anything.
    """
    config = read_config(content["config"])
    ids, classes, columns = restore_ids(content["ids"]), content["classes"], content["columns"]
    for names in (ids, classes):
        if len(set(names)) < len(names) or len({type(name) for name in names} | {str, int}) > 2:
            raise ValueError("names twice or of several kinds")
    features = restore_features(content["features"])
    if features.shape[0] != len(ids):
        raise ValueError("features of other nodes")
    if columns is not None and len(columns) != features.shape[1]:
        raise ValueError("names of other features")
    graph = GrowingGraph(tuple(ids), features, restore_edges(content["edges"], len(ids)))
    pairs = (restore_pairs(content["edits"][key], len(ids)) for key in ("added", "deleted"))
    shown = content["shown"]
    if shown.dtype != torch.bool or shown.shape != (len(ids),):
        raise ValueError("marks of other nodes")
    sizes = (len(ids), len(classes))
    return State(
        config,
        graph,
        tuple(classes),
        _restore_learner(content["learner"], config, features.shape[1], *sizes),
        Evaluator(_restore_labels(content["held_out"], *sizes), shown),
        _restore_labels(content["granted"], *sizes),
        Edits(*pairs),
        tuple(parse(Entry, entry) for entry in content["history"]),
        None if columns is None else tuple(str(name) for name in columns),
    )


def _restore_learner(
    content: Mapping[str, Any],
    config: EstimatorConfig,
    width: int,
    num_nodes: int,
    num_classes: int,
) -> Learner:
    # Random directions are drawn anew, not stored: what they take is nowhere in the content.
    projection = config.settings.get("projection")
    if projection is not None and 8 * projection * max(width, 1) > physical_memory() // 2:
        raise ValueError("a projection that does not fit into the memory")
    learner = Learner(make_method(config.parameters.method, config.settings))
    restore_learner(learner, content, config.model, "cpu")
    if learner.next_task < 0 or (learner.next_task > 0 and num_classes == 0):
        raise ValueError("a learner of no class")
    learner.method.memory_bytes()  # looks at everything that is kept
    buffer = learner.method.buffer
    if buffer is not None and len(buffer):
        buffer.renumber(torch.arange(num_nodes))  # refuses nodes that are not there
        check_rows(buffer.labels, num_classes)
    if not 0 <= learner.num_seen <= num_nodes:
        raise ValueError("more nodes learned than there are")
    if learner.model is not None:
        first = learner.model.state_dict()["encoder.layers.0.weight"]
        if first.shape[0] != width or learner.model.head.num_classes != num_classes:
            raise ValueError("a network of other features or classes")
    return learner


def _labels_content(labelled: LabelledNodes) -> dict[str, Tensor]:
    return {"nodes": labelled.nodes, "labels": labelled.labels}


def _restore_labels(
    content: Mapping[str, Tensor], num_nodes: int, num_classes: int
) -> LabelledNodes:
    nodes, labels = content["nodes"], content["labels"]
    check_rows(nodes, num_nodes)
    check_rows(labels, num_classes)
    if nodes.shape != labels.shape:
        raise ValueError("labels of other nodes")
    return LabelledNodes(nodes, labels)


def change_content(change: Change) -> dict[str, Any]:
    """Returns plain values and arrays that :func:`restore_change` takes back."""
    x, updated_x = change.x, change.updated_x
    names = {
        "removed": change.removed,
        "removed_sources": change.removed_edges[0],
        "removed_targets": change.removed_edges[1],
        "updated": change.updated,
        "ids": change.ids,
        "sources": change.edges[0],
        "targets": change.edges[1],
        "labelled": list(change.labels),
        "labels": list(change.labels.values()),
    }
    return {
        "kind": change.kind,
        **{key: ids_content(ids) for key, ids in names.items()},
        "x": None if x is None else features_content(x),
        "updated_x": None if updated_x is None else features_content(updated_x),
        "columns": None if change.columns is None else list(change.columns),
    }


def restore_change(content: Mapping[str, Any]) -> Change:
    """Takes back what :func:`change_content` returned."""
    if content["kind"] not in {"learn", "update", "remove"}:
        raise ValueError("a change of another kind")
    x, updated_x, columns = content["x"], content["updated_x"], content["columns"]
    change = Change(
        content["kind"],
        removed=unique_ids(restore_ids(content["removed"])),
        removed_edges=_restore_ends(content, "removed_sources", "removed_targets"),
        updated=unique_ids(restore_ids(content["updated"])),
        updated_x=None if updated_x is None else restore_features(updated_x),
        ids=unique_ids(restore_ids(content["ids"])),
        x=None if x is None else restore_features(x),
        edges=_restore_ends(content, "sources", "targets"),
        labels=dict(zip(*_restore_ends(content, "labelled", "labels"), strict=True)),
        columns=None if columns is None else tuple(map(str, columns)),
    )
    for rows, features in ((change.ids, change.x), (change.updated, change.updated_x)):
        if len(rows) != (0 if features is None else features.shape[0]):
            raise ValueError("features of other nodes")
        if features is not None:
            check_finite(features)
    return change


def _restore_ends(content: Mapping[str, Any], *keys: str) -> tuple[list[Id], list[Id]]:
    first, second = (restore_ids(content[key]) for key in keys)
    if len(first) != len(second):
        raise ValueError("pairs that are none")
    return first, second


def ids_content(ids: Sequence[Id]) -> dict[str, Tensor]:
    """Stores names as arrays: whole numbers, or the bytes of all texts and where each begins."""
    if not ids or isinstance(ids[0], int):
        return {"numbers": torch.tensor(ids, dtype=torch.int64)}
    texts = [str(name).encode() for name in ids]
    lengths = torch.tensor([0, *map(len, texts)], dtype=torch.int64)
    data = torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8)
    return {"text": data, "starts": torch.cumsum(lengths, 0)}


def restore_ids(content: Mapping[str, Tensor]) -> list[Id]:
    """Takes back what :func:`ids_content` returned."""
    if "numbers" in content:
        _check_kind(content["numbers"], torch.int64, 1)
        return list(content["numbers"].tolist())
    data, starts = content["text"], content["starts"]
    _check_kind(data, torch.uint8, 1)
    _check_pointer(starts, data.numel())
    text = data.numpy().tobytes()
    return [text[begin:end].decode() for begin, end in pairwise(starts.tolist())]


def edges_content(graph: Adjacency) -> dict[str, Tensor]:
    """Stores every edge once, by its later end: edges of new nodes come last."""
    first, second = undirected(graph.keys, graph.num_nodes)
    return {"first": first, "second": second}


def restore_edges(content: Mapping[str, Tensor], num_nodes: int) -> Adjacency:
    """Takes back what :func:`edges_content` returned."""
    pairs = restore_pairs(content, num_nodes)
    keys = pairs[1] * num_nodes + pairs[0]
    if bool((pairs[0] >= pairs[1]).any()) or bool((keys[1:] <= keys[:-1]).any()):
        raise ValueError("edges twice or in a wrong order")
    return Adjacency.from_edges(torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes)


def restore_pairs(content: Mapping[str, Tensor], num_nodes: int) -> Tensor:
    """Checks and joins the two ends of pairs of rows, ``[2, m]``."""
    for rows in (content["first"], content["second"]):
        check_rows(rows, num_nodes)
    return torch.stack([content["first"], content["second"]])


def features_content(x: Features) -> dict[str, Any]:
    """Stores features, dense or sparse."""
    if isinstance(x, Tensor):
        return {"dense": x}
    parts = {"values": x.values, "indices": x.indices, "indptr": x.indptr}
    return {**parts, "num_columns": x.num_columns}


def restore_features(content: Mapping[str, Any]) -> Features:
    """Takes back what :func:`features_content` returned."""
    if "dense" in content:
        x: Tensor = content["dense"]
        _check_kind(x, torch.float32, 2)
        return x
    values, indices, indptr = content["values"], content["indices"], content["indptr"]
    columns = int(content["num_columns"])
    _check_kind(values, torch.float32, 1)
    _check_pointer(indptr, values.numel())
    check_rows(indices, columns)
    if columns < 1 or values.numel() != indices.numel():
        raise ValueError("features of another shape")
    return SparseRows(values, indices, indptr, columns)


def check_rows(rows: Tensor, count: int) -> None:
    """Refuses numbers ``[m]`` that are not in ``[0, count)``."""
    _check_kind(rows, torch.int64, 1)
    if bool(((rows < 0) | (rows >= count)).any()):
        raise ValueError("a number of something that is not there")


def _check_pointer(pointer: Tensor, last: int) -> None:
    _check_kind(pointer, torch.int64, 1)
    wrong = int(pointer[0]) or int(pointer[-1]) != last
    if wrong or bool((pointer[1:] < pointer[:-1]).any()):
        raise ValueError("a wrong pointer")


def _check_kind(array: Tensor, dtype: torch.dtype, ndim: int) -> None:
    if array.dtype != dtype or array.ndim != ndim:
        raise ValueError("an array of another kind")
