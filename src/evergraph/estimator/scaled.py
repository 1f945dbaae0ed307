"""The features of a change on the state's scale, and what to say of features that spoil it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.graph import GrowingGraph
from evergraph.estimator.inputs import Change
from evergraph.estimator.state import State
from evergraph.stream import SparseRows
from evergraph.stream.graph import row_lengths
from evergraph.stream.scaling import Scale
from evergraph.train import learner_state

#: Rows of such length are tried before they are taken in.
HUGE = 1e6


def bring_to_scale(state: State, change: Change) -> tuple[State, Change, dict[str, Any]]:
    """Scales the features of a change as all before; the first labels fix how.

    Returns the state with its scale, the change, and what is worth telling of both. A state that
    has learned without a scale goes on without.
    """
    scale, scaling = state.scale, state.config.parameters.feature_scaling
    if scale is None and (scaling == "none" or not change.labels or state.learner.next_task):
        return state, change, {}
    if scale is None:
        most = state.graph.features
        if change.x is not None and change.x.shape[0] >= most.shape[0]:
            most = change.x
        scale = Scale.fit(most, scaling)
        state = replace(state, graph=_scaled_graph(state.graph, scale), scale=scale)
    if change.x is None and change.updated_x is None:
        return state, change, {"scaling": scale.kind}
    x, odd = (None, 0) if change.x is None else scale.apply(change.x)
    updated, also = (None, 0) if change.updated_x is None else scale.apply(change.updated_x)
    told = {"scaling": scale.kind, "rows_beyond_scale": odd + also}
    return state, replace(change, x=x, updated_x=updated), told


def _scaled_graph(graph: GrowingGraph, scale: Scale) -> GrowingGraph:
    """Scales what came before the first labels."""
    if not graph.num_nodes:
        return graph
    return graph.with_features(torch.arange(graph.num_nodes), scale.apply(graph.features)[0])


def check_finite(state: State, change: Change, learned: bool, device: torch.device) -> None:
    """Refuses a change that leaves weights, statistics or predictions that are not finite."""
    wrong = "weights" if learned and not _all_finite(learner_state(state.learner)) else None
    if wrong is None:
        names = [*change.ids, *change.updated]
        rows = torch.from_numpy(state.graph.names.where(names))
        huge = row_lengths(state.graph.features[rows]) > HUGE
        if bool(huge.any()):
            found = state.logits(device, rows[huge])
            found = found if state.known_logits is None else state.known_logits
            wrong = None if bool(found.isfinite().all()) else "predictions"
    if wrong is not None:
        raise InputError(
            f"Expected features that leave the {wrong} finite (got {_largest(state, change)}); "
            "correct the value, or leave 'feature_scaling' at auto."
        )


def _all_finite(content: Any) -> bool:
    if isinstance(content, dict):
        return all(map(_all_finite, content.values()))
    return not (isinstance(content, Tensor) and not bool(content.isfinite().all()))


def _largest(state: State, change: Change) -> str:
    """Describes the largest value of what came, or of all that is there if nothing came."""
    names, x = change.ids, change.x
    if x is None:
        names, x = change.updated, change.updated_x
    if x is None:
        x = state.graph.features
        names = state.graph.names.take()
    values = x.values if isinstance(x, SparseRows) else x.flatten()
    at = int(values.abs().argmax())
    if isinstance(x, SparseRows):
        row, column = int(x.row_index()[at]), int(x.indices[at])
    else:
        row, column = divmod(at, x.shape[1])
    label = repr(state.columns[column]) if state.columns else column + 1
    return f"{float(values[at]):g} in column {label} of node {names[row]!r}"
