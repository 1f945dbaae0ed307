"""Diagnosis: what an estimator is made of and what deserves attention."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from evergraph.errors import warn
from evergraph.estimator.inputs import Change
from evergraph.estimator.novelty import last_novel
from evergraph.estimator.state import State
from evergraph.estimator.watch import ENOUGH_HELD_OUT, sentences

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
    graph, method, history = state.graph, state.learner.method, state.history
    judged, degree, size = state.judge(device), graph.degree, 0
    kept = labels = torch.empty(0, dtype=torch.int64)
    if method.buffer is not None:
        kept, labels = method.buffer.nodes.cpu(), method.buffer.labels.cpu()
        size = kept.numel() if method.takes_back else method.buffer.size  # all that it holds
    since = max((at for at, entry in enumerate(history) if entry.removed_classes), default=0)
    ever = list(zip_longest(*(entry.class_accuracy for entry in history[since:])))
    classes = [
        {
            "name": name,
            "buffer": int((labels == label).sum()),
            "held_out": int((state.held_out.labels == label).sum()),
            "accuracy": judged["class_accuracy"][label],
            "best_accuracy": max((v for v in ever[label] if v is not None), default=None),
        }
        for label, name in enumerate(state.classes)
    ]
    isolated, novel = int((degree[kept] == 0).sum()), last_novel(state, device)
    watched = history[-1].watch if history else []
    return {
        "method": state.config.method,
        "changes": len(history),
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "isolated_nodes": int((degree == 0).sum()),
        "learned_labels": state.shown.length,
        "held_out": state.held_out.pairs.length,
        "accuracy": judged["accuracy"],
        "calibration_error": judged.get("calibration_error"),
        "classes": classes,
        "buffer": {
            "size": size,
            "nodes": kept.numel(),
            "isolated": isolated,
            "mean_degree": float(degree[kept].float().mean()) if kept.numel() else None,
        },
        "edited_edges": {
            "added": state.edits.added.shape[1],
            "deleted": state.edits.deleted.shape[1],
        },
        "memory_bytes": method.memory_bytes(),
        "novel": novel,
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


def _warnings(state: State, classes: list[dict[str, Any]], isolated: int) -> list[str]:
    found, method = [], state.learner.method
    fate = "it is not predicted" if method.takes_back else "it will be forgotten"
    for entry in classes:
        if method.buffer is not None and entry["buffer"] == 0:
            found.append(f"Class {entry['name']!r} has no node in the buffer: {fate}.")
        if entry["held_out"] == 0:
            found.append(f"Class {entry['name']!r} has no held-out node: its accuracy is unknown.")
    later = state.history[1:]
    beyond = sum(entry.report.get("rows_beyond_scale", 0) for entry in later)
    if beyond > MOST_BEYOND * max(sum(entry.new_nodes for entry in later), 1):
        found.append(
            f"{beyond} rows that came later lie far beyond the features that the scale was "
            "measured on: check their units, or begin a state with them."
        )
    weights = {**state.config.training.model_dump(), **state.config.settings}["class_weight"]
    if isinstance(weights, dict):
        odd = [name for name in weights if name not in map(str, state.classes)]
        found += [f"'class_weight' names {name!r}, which is no class so far." for name in odd]
    found += noticed(state)
    found += [f"{isolated} nodes of the buffer have no neighbour."] if isolated else []
    found += [UNCALIBRATED] if state.uncalibrated else []
    if state.graph.num_nodes and not state.classes:
        found.append("No label has been learned yet: there is nothing to predict.")
    return found


def noticed(state: State) -> list[str]:
    """Says what the last change shows of drift and of classes that are missed, with the remedy."""
    if not state.history:
        return []
    last, names, logits = state.history[-1], state.classes, state.known_logits
    has_metric = "metric" in type(state.learner.method.config).model_fields
    remedy = "metric='balanced_accuracy'" if has_metric else "class_weight='balanced'"
    held = torch.bincount(state.held_out.labels, minlength=len(names)).tolist()
    known = {label: value for label, value in enumerate(last.class_accuracy) if value is not None}
    missed = [label for label, value in known.items() if value == 0 and held[label] >= FEW]
    found, who, only = sentences(last.watch), "node", list[int]()
    if sorted(known.values())[-2:] == [0, 100]:
        who, only = "held-out node", [label for label, value in known.items() if value]
    elif not known and len(names) > 1 and logits is not None and len(logits) >= ENOUGH_HELD_OUT:
        only = torch.unique(logits.argmax(dim=1)).tolist()
    if len(only) == 1:
        found.append(
            f"Every {who} is given to class {names[only[0]]!r}: nothing else is learned; {remedy}, "
            "or more epochs may help."
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
    return found


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
    warn(
        f"{state.config.method} has learned the labels of {count} nodes that are removed or "
        f"labelled anew, which stay in {place}; {remedy}."
    )
    return {"labels_that_stay": count}


def no_longer_exact(state: State) -> None:
    """Says that the graph is too large from now on for labels to be taken back."""
    warn(
        f"The graph has {state.graph.num_nodes:,} nodes, too many for {state.config.method} to "
        "begin anew at every change: from now on it keeps no training labels, and what those of "
        "removed or relabelled nodes taught stays in its statistics, their classes too. "
        "statistics=exact takes back at any size; refit() with labels begins anew."
    )
