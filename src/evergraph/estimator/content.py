"""What is stored of states and changes: plain values, and arrays that grow at their end.

What comes back (``restore_*``) may have been written by anyone: everything that compiled code will
trust is checked, rows, labels, pointers and sizes. Wrong content raises anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.estimator.config import EstimatorConfig, read_config
from evergraph.estimator.graph import SPARSE, Array, GrowingGraph, Grown, Names, are_distinct
from evergraph.estimator.inputs import Change, make_change, unique_ids
from evergraph.estimator.state import SMALL, Edits, Entry, GrownLabels, State
from evergraph.files import physical_memory
from evergraph.methods import make_method
from evergraph.stream import Features, SparseRows
from evergraph.stream.features import Scale
from evergraph.train import Learner, learner_state, restore_learner
from evergraph.validation import parse

KEYS = {
    *("config", "classes", "columns", "history", "ids", "features", "edges", "edits", "learner"),
    *("granted", "held_out", "patch", "shown"),
}


def state_content(state: State) -> dict[str, Any]:
    """Returns plain values and arrays that :func:`restore_state` takes back.

    With them are the class of every node and its probability, if known and not too many.
    """
    logits, predicted = state.known_logits, None
    if logits is not None and state.classes and 0 < len(logits) <= SMALL:
        best = state.probabilities(logits).max(dim=1)
        predicted = {"labels": best.indices, "probability": best.values}
    return {
        "config": state.config.model_dump(mode="json"),
        "classes": list(state.classes),
        "columns": state.columns,
        "history": state.lines,
        **graph_content(state.graph),
        "edits": {"added": state.edits.added, "deleted": state.edits.deleted},
        "learner": learner_state(state.learner),
        "granted": state.granted.pairs,
        "held_out": state.held_out.pairs,
        "shown": state.shown,
        "scale": None if state.scale is None else state.scale.state_dict(),
        "predicted": predicted,
    }


def graph_content(graph: GrowingGraph) -> dict[str, Any]:
    """Returns the arrays of a graph."""
    names, patch = graph.names, None
    if graph.patched.numel():
        patch = {"rows": graph.patched, "x": graph.features[graph.patched]}
    return {
        "ids": {"keys": names.keys, "text": names.text, "ends": names.ends},
        "features": {**graph.arrays, "num_columns": graph.width},
        "patch": patch,
        "edges": graph.edges,
        **({} if graph.arcs is None else {"arcs": graph.arcs, "directed": graph.directed}),
    }


def restore_state(content: Mapping[str, Any]) -> State:
    """Checks and takes back what :func:`state_content` returned, perhaps written by anyone."""
    if content.keys() - {"predicted", "scale", "arcs", "directed"} != KEYS:
        raise ValueError("more or less than a state")
    config, columns = read_config(content["config"]), content["columns"]
    names, classes = _restore_names(content["ids"]), unique_ids(content["classes"])
    n, k = len(names), len(classes)
    arrays = dict(content["features"])
    width = arrays.pop("num_columns")
    _check_features(arrays, n, width)
    if columns is not None and len(columns) != width:
        raise ValueError("names of other features")
    edges, arcs, directed = content["edges"], content.get("arcs"), content.get("directed", False)
    check_rows(edges.array, n, n, kinds=("int32", "int64"))
    _check_arcs(arcs, directed, edges.length)
    graph = GrowingGraph(names, arrays, width, edges, arcs=arcs, directed=directed)
    if content["patch"] is not None:
        rows, x = content["patch"]["rows"], content["patch"]["x"]
        _check_features({"dense": Grown.of(x.numpy())}, rows.numel(), width)
        check_rows(rows[:, None], n)
        arrays["dense"].overwrite(rows.numpy(), x.numpy())
        graph = replace(graph, patched=rows)
    edits = [check_rows(content["edits"][key].T, n, n).T for key in ("added", "deleted")]
    for key in ("held_out", "granted"):
        check_rows(content[key].array, n, k)
    check_rows(content["shown"].array[:, None], n)
    scale, lines = content.get("scale"), content["history"]
    _check_kind(lines.array, "uint8", 1)
    history = [parse(Entry, json.loads(line)) for line in lines.array.tobytes().splitlines()]
    for entry in history:
        entry.line()  # refuses NaN
    return State(
        config=config,
        graph=graph,
        classes=tuple(classes),
        learner=_restore_learner(content["learner"], config, width, n, k),
        held_out=GrownLabels(content["held_out"]),
        shown=content["shown"],
        granted=GrownLabels(content["granted"]),
        edits=Edits(*edits),
        history=tuple(history),
        lines=lines,
        columns=None if columns is None else tuple(map(str, columns)),
        scale=None if scale is None else Scale.restore(scale, width),
    )


def _restore_names(content: Mapping[str, Any]) -> Names:
    names = Names(content["keys"], content["text"], content["ends"])
    _check_kind(names.keys.array, "int64", 1)
    if not are_distinct(names.keys.array):
        raise ValueError("a name twice")
    if names.text is not None and names.ends is not None:
        data, ends = names.text.array, names.ends.array
        _check_kind(data, "uint8", 1)
        _check_kind(ends, "int64", 1)
        lengths = np.diff(ends, prepend=0)
        whole = ends.size == len(names) and (lengths > 0).all() and lengths.sum() == data.size
        if not whole or (data[ends[:-1]] & 0xC0 == 0x80).any():  # within a character
            raise ValueError("names that are none")
        data.tobytes().decode()
    elif names.text is not names.ends:
        raise ValueError("names without their ends")
    return names


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
    learner = Learner(make_method(config.method, config.settings))
    restore_learner(learner, content, config.model, "cpu")
    if learner.next_task < 0 or (learner.next_task > 0 and num_classes == 0):
        raise ValueError("a learner of no class")
    learner.method.memory_bytes()  # looks at everything that is kept
    buffer = learner.method.buffer
    if buffer is not None and len(buffer):
        buffer.renumber(torch.arange(num_nodes))  # refuses nodes that are not there
        check_rows(buffer.labels[:, None], num_classes)
    if not 0 <= learner.num_seen <= num_nodes:
        raise ValueError("more nodes learned than there are")
    if learner.model is not None:
        first = learner.model.state_dict()["encoder.layers.0.weight"]
        if first.shape[0] != width or learner.model.head.num_classes != num_classes:
            raise ValueError("a network of other features or classes")
    return learner


def change_content(change: Change) -> dict[str, Any]:
    """Returns plain values and arrays that :func:`restore_change` takes back: names as JSON."""
    plain = {key: value for key, value in vars(change).items() if key not in {"x", "updated_x"}}
    labels = [list(change.labels), list(change.labels.values())]
    text = json.dumps({**plain, "labels": labels}, default=np.ndarray.tolist).encode()
    return {
        "text": torch.frombuffer(bytearray(text), dtype=torch.uint8),
        "x": _features_content(change.x),
        "updated_x": _features_content(change.updated_x),
    }


def restore_change(content: Mapping[str, Any]) -> Change:
    """Takes back what :func:`change_content` returned, checked as what a user gives.

    0.1.0 stored names beside the features.
    """
    given = dict(content)
    if "text" in given:
        given |= json.loads(given.pop("text").numpy().tobytes())
    if given["kind"] not in {"learn", "update", "remove"}:
        raise ValueError("a change of another kind")
    pairs = {key: list(zip(*given[key], strict=True)) for key in ("removed_edges", "edges")}
    features = {key: restore_features(given[key]) for key in ("x", "updated_x")}
    labels = dict(zip(*given["labels"], strict=True))
    read = {"labels": labels, "classes": set(labels.values())}  # as they were read already
    return make_change(**{**given, **pairs, **features, **read})


def _features_content(x: Features | None) -> dict[str, Any] | None:
    """Stores features, dense or sparse."""
    if isinstance(x, SparseRows):
        return {"num_columns": x.num_columns, **{key: getattr(x, key) for key in SPARSE}}
    return None if x is None else {"dense": x}


def restore_features(content: Mapping[str, Any] | None) -> Features | None:
    """Takes back what :func:`_features_content` returned."""
    if content is None:
        return None
    if "dense" in content:
        dense: Tensor = content["dense"]
        _check_kind(dense.numpy(), "float32", 2)
        return dense
    arrays = {key: Grown.of(content[key].numpy()) for key in SPARSE}
    width = int(content["num_columns"])
    _check_features(arrays, arrays["indptr"].length - 1, width)
    values, indices, indptr = (content[key] for key in SPARSE)
    return SparseRows(values, indices, indptr, width)


def _check_features(arrays: Mapping[str, Grown], num_nodes: int, width: int) -> None:
    """Refuses features of other nodes or columns; none are there before the first nodes."""
    if not arrays and num_nodes == width == 0:
        return
    if type(width) is not int or width < 1:
        raise ValueError("no columns")
    if arrays.keys() == {"dense"}:
        shape = arrays["dense"].array.shape
        _check_kind(arrays["dense"].array, "float32", 2)
    else:
        values, indices, indptr = (arrays[key].array for key in SPARSE)
        _check_kind(values, "float32", 1)
        check_rows(indices[:, None], width)
        _check_kind(indptr, "int64", 1)
        ends = indptr[0] == 0 and indptr[-1] == values.size == indices.size
        if not ends or (indptr[1:] < indptr[:-1]).any():
            raise ValueError("a wrong pointer")
        shape = (indptr.size - 1, width)
    if shape != (num_nodes, width):
        raise ValueError("features of other nodes")


def _check_arcs(arcs: Grown | None, directed: bool, num_edges: int) -> None:
    """Refuses weights of other edges, or that are none."""
    if arcs is None and directed is False:
        return
    if arcs is None or type(directed) is not bool:
        raise ValueError("directions without edges")
    _check_kind(arcs.array, "float32", 2)
    good = np.isfinite(arcs.array) & (arcs.array >= 0)
    if arcs.array.shape != (num_edges, 2) or not good.all() or (arcs.array.max(1) == 0).any():
        raise ValueError("weights that are none")


def check_rows(rows: Any, *counts: int, kinds: tuple[str, ...] = ("int64",)) -> Any:
    """Refuses columns ``[m, c]`` of numbers that are not in ``[0, count)`` each."""
    array = rows if isinstance(rows, np.ndarray) else rows.numpy()
    _check_kind(array, str(array.dtype) if str(array.dtype) in kinds else kinds[0], 2)
    if array.shape[1] != len(counts):
        raise ValueError("other columns")
    for column, count in zip(array.T, counts, strict=True):
        if column.size and (column.min() < 0 or column.max() >= count):
            raise ValueError("a number of something that is not there")
    return rows


def _check_kind(array: Array, dtype: str, ndim: int) -> None:
    if array.dtype != dtype or array.ndim != ndim:
        raise ValueError("an array of another kind")
