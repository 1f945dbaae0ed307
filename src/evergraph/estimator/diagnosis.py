"""Diagnosis: what an estimator is made of and what deserves attention."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from evergraph.estimator.graph import Id
from evergraph.estimator.inputs import Change
from evergraph.estimator.novelty import last_novel
from evergraph.estimator.state import ENOUGH_HELD_OUT, State
from evergraph.methods import Method

#: Held-out nodes of a class from which on it counts as missed if all of them are.
FEW = 3
#: How many times the labels of the smallest class the largest has before a warning.
UNEVEN = 20
#: Points that features alone may be better by on held-out nodes before a warning.
MISLED = 2.0
UNCALIBRATED = (
    "Probabilities are not calibrated, for no node is held out: do not act on them; begin with a "
    "'validation_fraction' above 0."
)
#: Share of later rows beyond the scale of the features before a warning.
MOST_BEYOND = 0.05


def diagnose(state: State, device: torch.device) -> dict[str, Any]:
    """Describes classes, buffer, memory and held-out accuracy, with warnings in sentences."""
    graph, buffer = state.graph, state.learner.method.buffer
    watched = state.history[-1].watch if state.history else []
    judged = state.judge(device)
    kept = buffer.nodes.cpu() if buffer is not None else torch.empty(0, dtype=torch.int64)
    labels = buffer.labels.cpu() if buffer is not None else kept
    classes = [
        {
            "name": name,
            "buffer": int((labels == label).sum()),
            "held_out": int((state.held_out.labels == label).sum()),
            "accuracy": judged.by_class[label],
            "best_accuracy": _best(state, label),
        }
        for label, name in enumerate(state.classes)
    ]
    degree = graph.degree
    kept_degree = degree[kept]
    isolated = int((kept_degree == 0).sum())
    return {
        "method": state.config.method,
        "changes": len(state.history),
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "isolated_nodes": int((degree == 0).sum()),
        "learned_labels": state.shown.length,
        "held_out": state.held_out.pairs.length,
        "accuracy": judged.accuracy,
        "calibration_error": judged.calibration_error,
        "classes": classes,
        "buffer": {
            "size": _size(state.learner.method),
            "nodes": kept.numel(),
            "isolated": isolated,
            "mean_degree": float(kept_degree.float().mean()) if kept.numel() else None,
        },
        "edited_edges": {
            "added": state.edits.added.shape[1],
            "deleted": state.edits.deleted.shape[1],
        },
        "memory_bytes": state.learner.method.memory_bytes(),
        "novel": (novel := last_novel(state, device)),
        "alarms": [one.model_dump() for one in watched if one.alarm],
        "warnings": _warnings(state, classes, isolated) + _novel_words(novel),
    }


def _novel_words(novel: dict[str, Any] | None) -> list[str]:
    """Says how many of the last nodes fit no known class, if that is no chance."""
    if novel is None or not novel["surely"]:
        return []
    count, last, groups = novel["novel"], f"{novel['asked']:,}", len(novel["groups"])
    last += f" of {novel['last']:,}" if novel["last"] > novel["asked"] else ""
    alike = "are all alike" if groups == 1 else f"make {groups} groups"
    return [
        f"{count:,} of the last {last} nodes without a label fit no known class "
        f"({novel['expected']:,} would by chance) and {alike}: novel_nodes() and inspect --novel "
        "list them; label some of each group."
    ]


def noticed(state: State) -> list[str]:
    """Says what the last change shows of drift and of classes that are missed, with the remedy."""
    if not state.history:
        return []
    last, names = state.history[-1], state.classes
    held = torch.bincount(state.held_out.labels, minlength=len(names)).tolist()
    known = [(label, value) for label, value in enumerate(last.class_accuracy) if value is not None]
    missed = [label for label, value in known if value == 0 and held[label] >= FEW]
    found, remedy = [], _remedy(state)
    who, only = "node", _only_class(state) if not known and len(names) > 1 else None
    if len(known) > 1 and sorted(value for _, value in known)[-2:] == [0, 100]:
        who, (only,) = "held-out node", (label for label, value in known if value)
    if only is not None:
        found.append(
            f"Every {who} is given to class {names[only]!r}: nothing else is learned; {remedy}, or "
            "more epochs may help."
        )
    elif missed:
        words = ", ".join(repr(names[label]) for label in missed[:5])
        found.append(
            f"No held-out node of class {words} is given to it: it is not learned; more labels of "
            f"it or {remedy} may help."
        )
    counts = [(count, label) for label, count in enumerate(last.class_labels) if count]
    if counts and max(counts)[0] >= UNEVEN * min(counts)[0]:
        (most, large), (few, small) = max(counts), min(counts)
        found.append(
            f"Classes are uneven: {most} labels of {names[large]!r}, {few} of {names[small]!r}. "
            f"Where small classes matter, look at the accuracy by class; {remedy} may help."
        )
    told: dict[str, Any] = {}
    for entry in state.history:
        told = entry.report.get("features_alone", told)
    if told and told["better"] > max(MISLED, told["noise"]):
        other = "method='auto'" if state.learner.model is not None else "hops=0 or a network"
        found.append(
            f"Neighbours mislead: features alone would do better by {told['better']:.1f} points "
            f"on {told['judged']} held-out nodes; {other} may help."
        )
    from evergraph.estimator.watch import sentences  # noqa: PLC0415 - SciPy's tests are large

    return [*sentences(last.watch), *found]


def _only_class(state: State) -> int | None:
    """Returns the class that all nodes are given, if predictions are known and it is one."""
    logits = state.known_logits
    if logits is None or len(logits) < ENOUGH_HELD_OUT:
        return None
    given = torch.unique(logits.argmax(dim=1))
    return int(given[0]) if given.numel() == 1 else None


def _remedy(state: State) -> str:
    """Names the setting by which small classes weigh more."""
    if "metric" in type(state.learner.method.config).model_fields:
        return "metric='balanced_accuracy'"
    return "class_weight='balanced'"


def what_stays(state: State, change: Change) -> dict[str, int]:
    """Counts labels that a change takes back in vain, and says so: the method has learned them."""
    method, names = state.learner.method, [*change.removed, *change.labels]
    rows = np.unique(state.graph.names.where(names))
    count = int(np.isin(rows, state.shown.array).sum())
    if method.takes_back or not count:
        return {}
    place, remedy = "the network", "refit() learns anew without them and classes they leave empty"
    if state.learner.model is None:
        place, remedy = "its statistics", "a state with statistics=exact takes them back"
    warnings.warn(
        f"{state.config.method} has learned the labels of {count} nodes that are "
        f"removed or labelled anew, which stay in {place}; {remedy}.",
        stacklevel=6,
    )
    return {"labels_that_stay": count}


def no_longer_exact(state: State) -> None:
    """Says that the graph is too large from now on for labels to be taken back."""
    warnings.warn(
        f"The graph has {state.graph.num_nodes:,} nodes, too many for {state.config.method} to "
        "begin anew at every change: from now on it keeps no training labels, and what those of "
        "removed or relabelled nodes taught stays in its statistics, their classes too. "
        "statistics=exact takes back at any size; refit() with labels begins anew.",
        stacklevel=7,
    )


def _size(method: Method[Any]) -> int:
    """Counts the nodes that a buffer may hold: those it holds where it holds all."""
    if method.buffer is None:
        return 0
    return len(method.buffer) if method.takes_back else method.buffer.size


def _best(state: State, label: int) -> float | None:
    """Finds the best held-out accuracy that a class ever had."""
    since = max((at for at, entry in enumerate(state.history) if entry.removed_classes), default=0)
    ever = (entry.class_accuracy[label : label + 1] for entry in state.history[since:])
    return max((value for values in ever for value in values if value is not None), default=None)


def _warnings(state: State, classes: list[dict[str, Any]], isolated: int) -> list[str]:
    found = []
    method = state.learner.method
    has_buffer = method.buffer is not None
    fate = "it is not predicted" if method.takes_back else "it will be forgotten"
    for entry in classes:
        name: Id = entry["name"]
        if has_buffer and entry["buffer"] == 0:
            found.append(f"Class {name!r} has no node in the buffer: {fate}.")
        if entry["held_out"] == 0:
            found.append(f"Class {name!r} has no held-out node: its accuracy is unknown.")
    reports = [entry.report for entry in state.history[1:]]
    beyond = sum(report.get("rows_beyond_scale", 0) for report in reports)
    rows = sum(entry.new_nodes for entry in state.history[1:])
    if beyond > MOST_BEYOND * max(rows, 1):
        found.append(
            f"{beyond} rows that came later lie far beyond the features that the scale was "
            "measured on: check their units, or begin a state with them."
        )
    weights = {**state.config.training.model_dump(), **state.config.settings}["class_weight"]
    if isinstance(weights, dict):
        odd = [name for name in weights if name not in map(str, state.classes)]
        found += [f"'class_weight' names {name!r}, which is no class so far." for name in odd]
    found += noticed(state)
    if isolated:
        found.append(f"{isolated} nodes of the buffer have no neighbour.")
    if state.uncalibrated:
        found.append(UNCALIBRATED)
    if state.graph.num_nodes and not state.classes:
        found.append("No label has been learned yet: there is nothing to predict.")
    return found
