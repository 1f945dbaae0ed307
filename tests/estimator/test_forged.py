"""States whose checksums hold and whose content is nonsense: refused in a sentence, or harmless."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from batches import batches, quick
from evergraph.errors import InputError
from evergraph.estimator.content import restore_state, state_content
from evergraph.estimator.inputs import make_change
from evergraph.estimator.step import advance
from evergraph.methods import METHODS
from evergraph.stream import Protocol, TaskStream

CPU = torch.device("cpu")
Place = tuple[str | int, ...]


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Lists every tensor and plain value of a nested state."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*place, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from leaves(item, (*place, at))
    else:
        yield place, value


def forgeries(value: Any) -> Iterator[Any]:
    """Makes wrong values of a kind that somebody could write."""
    if isinstance(value, torch.Tensor):
        yield value[None].clone()
        if value.ndim and value.shape[0]:
            yield value[:-1].clone()
        if value.ndim > 1 and value.shape[-1] > 1:
            yield value[..., :-1].clone()
        yield value.to(torch.int64) if value.is_floating_point() else value.double()
    elif value is None:
        yield 3
    else:
        yield "word"
        yield None
        yield -5 if isinstance(value, int) else float("nan")


def put(state: Any, place: Place, value: Any) -> Any:
    """Copies a state with one value changed."""
    changed = copy.deepcopy(state)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


@pytest.mark.parametrize("method", METHODS)
def test_forged_learner_is_refused_or_harmless(method: str, make_graph: Any):
    stream = TaskStream(make_graph(36, 6, num_features=5), Protocol(), 0)
    first, second, third = batches(stream)
    clf = quick(method, settings={"epochs": 1}).learn(**first).learn(**second)
    state = clf._state
    content = state_content(state)
    learner = content["learner"]
    restore_state(content)
    change = make_change("learn", columns=None, **third)
    refused = 0
    for place, value in leaves(learner["method"]):
        for forged in forgeries(value):
            forgery = {**learner, "method": put(learner["method"], place, forged)}
            try:
                wrong = restore_state({**content, "learner": forgery})
            except Exception:  # whoever reads the folder says that it is damaged
                refused += 1
                continue
            try:
                wrong.logits(CPU)
                advance(wrong, change, CPU)
            except InputError:
                refused += 1
    assert refused > 0 or not learner["method"]
