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
from evergraph.estimator.inputs import Change, make_change, read_ids, unique_ids
from evergraph.estimator.state import Entry, State
from evergraph.files import physical_memory
from evergraph.methods import make_method
from evergraph.stream import Adjacency, Features, LabelledNodes, SparseRows
from evergraph.train import Learner, learner_state, restore_learner
from evergraph.validation import parse

KEYS = {
    *("config", "classes", "columns", "history", "ids", "features", "edges", "edits", "learner"),
    *("granted", "held_out", "shown"),
}
#: Predictions of larger graphs are not stored but computed when they are asked for.
MOST_PREDICTED = 100_000


def state_content(state: State) -> dict[str, Any]:
    """Returns plain values and arrays that :func:`restore_state` takes back."""
    graph, held_out = state.graph, state.held_out
    return {
        "config": state.config.model_dump(mode="json"),
        "classes": list(state.classes),
        "columns": state.columns,
        "history": _history_content(state.history),
        "ids": _ids_content(graph.ids),
        "features": _features_content(graph.features),
        # Every edge once, by its later end: edges of new nodes come last.
        "edges": ends(undirected(graph.adjacency.keys, graph.num_nodes)),
        "edits": {"added": ends(state.edits.added), "deleted": ends(state.edits.deleted)},
        "learner": learner_state(state.learner),
        "granted": {"nodes": state.granted.nodes, "labels": state.granted.labels},
        "held_out": {"nodes": held_out.nodes, "labels": held_out.labels},
        "shown": state.shown,
        "predicted": _predicted_content(state),
    }


def _predicted_content(state: State) -> dict[str, Tensor] | None:
    """Stores the class of every node with its probability, if they are known and not too many."""
    logits = state.known_logits
    if logits is None or not state.classes or not 0 < len(logits) <= MOST_PREDICTED:
        return None
    best = logits.double().softmax(dim=1).max(dim=1)
    return {"labels": best.indices, "probability": best.values}


def restore_state(content: Mapping[str, Any]) -> State:
    """Checks and takes back what :func:`state_content` returned, perhaps written by anyone."""
    if content.keys() - {"predicted"} != KEYS:
        raise ValueError("more or less than a state")
    config, columns, shown = read_config(content["config"]), content["columns"], content["shown"]
    ids, classes = unique_ids(_restore_ids(content["ids"])), unique_ids(content["classes"])
    n, k = len(ids), len(classes)
    features = _restore_features(content["features"])
    if features is None or features.shape[0] != n or shown.shape != (n,):
        raise ValueError("features or marks of other nodes")
    if columns is not None and len(columns) != features.shape[1]:
        raise ValueError("names of other features")
    _check_kind(shown, torch.bool, 1)
    edges = torch.stack(_restore_rows(content["edges"], first=n, second=n))
    keys = edges[1] * n + edges[0]
    if bool((edges[0] >= edges[1]).any()) or bool((keys[1:] <= keys[:-1]).any()):
        raise ValueError("edges twice or in a wrong order")
    edits = [
        torch.stack(_restore_rows(content["edits"][key], first=n, second=n))
        for key in ("added", "deleted")
    ]
    held_out, granted = (
        LabelledNodes(*_restore_rows(content[key], nodes=n, labels=k))
        for key in ("held_out", "granted")
    )
    history = tuple(parse(Entry, entry) for entry in content["history"])
    _history_content(history)
    return State(
        config,
        GrowingGraph(
            tuple(ids), features, Adjacency.from_edges(torch.cat([edges, edges.flip(0)], dim=1), n)
        ),
        tuple(classes),
        _restore_learner(content["learner"], config, features.shape[1], n, k),
        held_out,
        shown,
        granted,
        Edits(*edits),
        history,
        None if columns is None else tuple(map(str, columns)),
    )


def _history_content(history: Sequence[Entry]) -> list[dict[str, Any]]:
    content = [entry.model_dump(mode="json") for entry in history]
    try:
        json.dumps(content, allow_nan=False)
    except ValueError:
        raise InputError(
            "Expected finite numbers in what a method reports (got NaN or infinity); correct "
            "the method."
        ) from None
    return content


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
        _restore_rows({"labels": buffer.labels}, labels=num_classes)
    if not 0 <= learner.num_seen <= num_nodes:
        raise ValueError("more nodes learned than there are")
    if learner.model is not None:
        first = learner.model.state_dict()["encoder.layers.0.weight"]
        if first.shape[0] != width or learner.model.head.num_classes != num_classes:
            raise ValueError("a network of other features or classes")
    return learner


def change_content(change: Change) -> dict[str, Any]:
    """Returns plain values and arrays that :func:`restore_change` takes back."""
    labels = (list(change.labels), list(change.labels.values()))
    pairs = {"removed_edges": change.removed_edges, "edges": change.edges, "labels": labels}
    return {
        "kind": change.kind,
        **{key: _ids_content(getattr(change, key)) for key in ("removed", "updated", "ids")},
        **{key: [_ids_content(side) for side in sides] for key, sides in pairs.items()},
        **{key: _features_content(getattr(change, key)) for key in ("x", "updated_x")},
        "columns": change.columns,
    }


def restore_change(content: Mapping[str, Any]) -> Change:
    """Takes back what :func:`change_content` returned, checked as what a user gives."""
    if content["kind"] not in {"learn", "update", "remove"}:
        raise ValueError("a change of another kind")
    ids = {key: _restore_ids(content[key]) for key in ("removed", "updated", "ids")}
    removed_edges, edges, labels = (
        zip(*map(_restore_ids, content[key]), strict=True)
        for key in ("removed_edges", "edges", "labels")
    )
    return make_change(
        content["kind"],
        columns=content["columns"],
        removed_edges=removed_edges,
        updated_x=_restore_features(content["updated_x"]),
        x=_restore_features(content["x"]),
        edges=edges,
        labels=dict(labels),
        **ids,
    )


def _ids_content(ids: Sequence[Id]) -> dict[str, Tensor]:
    """Stores names as arrays: whole numbers, or the bytes of all texts and where each begins."""
    if not ids or isinstance(ids[0], int):
        return {"numbers": torch.tensor(ids, dtype=torch.int64)}
    texts = [str(name).encode() for name in ids]
    lengths = torch.tensor([0, *map(len, texts)], dtype=torch.int64)
    data = torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8)
    return {"text": data, "starts": torch.cumsum(lengths, 0)}


def _restore_ids(content: Any) -> list[Id]:
    """Takes names back; 0.1.0 stored them as a list."""
    if isinstance(content, list):
        return read_ids(content)
    if "numbers" in content:
        _check_kind(content["numbers"], torch.int64, 1)
        return list(content["numbers"].tolist())
    data, starts = content["text"], content["starts"]
    _check_kind(data, torch.uint8, 1)
    _check_pointer(starts, data.numel())
    text = data.numpy().tobytes()
    return [text[begin:end].decode() for begin, end in pairwise(starts.tolist())]


def _features_content(x: Features | None) -> dict[str, Any] | None:
    """Stores features, dense or sparse."""
    if isinstance(x, SparseRows):
        return {key: getattr(x, key) for key in ("values", "indices", "indptr", "num_columns")}
    return None if x is None else {"dense": x}


def _restore_features(content: Mapping[str, Any] | None) -> Features | None:
    if content is None:
        return None
    if "dense" in content:
        x: Tensor = content["dense"]
        _check_kind(x, torch.float32, 2)
        return x
    values, indptr, columns = content["values"], content["indptr"], int(content["num_columns"])
    _check_kind(values, torch.float32, 1)
    _check_pointer(indptr, values.numel())
    (indices,) = _restore_rows(content, indices=columns)
    if columns < 1 or values.numel() != indices.numel():
        raise ValueError("features of another shape")
    return SparseRows(values, indices, indptr, columns)


def ends(pairs: Tensor) -> dict[str, Tensor]:
    """Stores pairs ``[2, m]`` by their ends, each of which grows at its own end."""
    return {"first": pairs[0], "second": pairs[1]}


def _restore_rows(content: Mapping[str, Tensor], **counts: int) -> tuple[Tensor, ...]:
    """Takes back arrays of one length, each of numbers in ``[0, count)``."""
    for key, count in counts.items():
        rows = content[key]
        _check_kind(rows, torch.int64, 1)
        if bool(((rows < 0) | (rows >= count)).any()):
            raise ValueError("a number of something that is not there")
    if len({content[key].numel() for key in counts}) > 1:
        raise ValueError("arrays of different lengths")
    return tuple(content[key] for key in counts)


def _check_pointer(pointer: Tensor, last: int) -> None:
    _check_kind(pointer, torch.int64, 1)
    wrong = int(pointer[0]) or int(pointer[-1]) != last
    if wrong or bool((pointer[1:] < pointer[:-1]).any()):
        raise ValueError("a wrong pointer")


def _check_kind(array: Tensor, dtype: torch.dtype, ndim: int) -> None:
    if array.dtype != dtype or array.ndim != ndim:
        raise ValueError("an array of another kind")
