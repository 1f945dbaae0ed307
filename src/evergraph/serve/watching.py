"""Watching: what an operator wants to know of a version; of a large one a process finds out."""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evergraph.errors import InputError
from evergraph.estimator.diagnosis import noticed
from evergraph.estimator.near import CPU
from evergraph.estimator.novelty import LOOKED_AT, Novelty, novel_nodes
from evergraph.estimator.state import Entry, State
from evergraph.estimator.transaction import load_state
from evergraph.estimator.watch import KINDS, interval

#: The most changes that are shown, the last ones, and nodes of a group of novel ones.
MOST_CHANGES, MOST_SHOWN = 200, 20


def describe(state: State) -> dict[str, Any]:
    """Tells how a state has fared, and what deserves attention; nothing is predicted."""
    last, held = state.history[-1] if state.history else None, state.held_out.labels
    judged = torch.bincount(held, minlength=len(state.classes)).tolist()
    accuracy = list(last.class_accuracy) if last is not None else []
    return {
        "method": state.config.method,
        "nodes": state.graph.num_nodes,
        "edges": state.graph.num_edges,
        "labels": state.shown.length,
        "classes": [
            {"name": str(name), "labels": count, "held_out": part, "accuracy": value}
            for name, count, part, value in zip(
                state.classes, state.class_labels, judged, accuracy, strict=True
            )
        ],
        "whole": bool(state.classes) and isinstance(state.classes[0], int),
        "warnings": noticed(state),
        "alarms": alarms(state),
        "changes": [_change(entry) for entry in state.history[-MOST_CHANGES:]],
    }


def alarms(state: State) -> dict[str, int]:
    """Counts the alarms of the last change by their kind."""
    last = state.history[-1].watch if state.history else []
    kinds = [one.kind for one in last if one.alarm]
    return {kind: kinds.count(kind) for kind in KINDS}


def _change(entry: Entry) -> dict[str, Any]:
    return {
        **{"change": entry.step + 1, "kind": entry.kind, "nodes": entry.num_nodes},
        **{"labels": entry.trained_on, "classes": len(entry.class_accuracy)},
        **{"new_classes": entry.new_classes, "alarms": sum(one.alarm for one in entry.watch)},
        **interval(entry.accuracy, sum(entry.class_judged)),
        "by_class": [None if a is None else round(a, 1) for a in entry.class_accuracy],
    }


def find_novel(state: State) -> dict[str, Any]:
    """Groups those of the last nodes without a label that fit no known class."""
    rows = state.unlabelled()[-LOOKED_AT:]
    try:
        if not state.classes or not rows.numel():
            raise InputError("There are no nodes without a label, or no classes yet.")
        found, scores, groups, told = novel_nodes(state, CPU, rows=rows)
    except InputError as error:  # too few held-out nodes to tell
        return {"sentence": str(error)}
    likely = state.logits(CPU, found).argmax(dim=1).tolist()
    names, parts = state.graph.names.take(found.numpy()), []
    for number, size in enumerate(told["groups"], 1):
        at = np.flatnonzero(groups == number)[:MOST_SHOWN].tolist()
        nodes = [
            {"id": names[i], "novelty": float(scores[i]), "nearest": str(state.classes[likely[i]])}
            for i in at
        ]
        parts.append({"size": size, "nodes": nodes})
    return {**told, "groups": parts}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with suppress(OSError, AttributeError):
        os.nice(10)  # whoever answers and learns goes first
    looked, number = load_state(Path(sys.argv[1]))
    told = json.dumps([number, looked.version[1].hex(), find_novel(looked)])
    every = torch.arange(looked.graph.num_nodes)
    scores = Novelty.of(looked, CPU).scores(looked, every).astype(np.float32)
    with suppress(BrokenPipeError):
        np.savez(sys.stdout.buffer, told=told, scores=scores)
