"""Explanation: which neighbours and which features decided on a node's class, against which other.

A node's score for its class less that for the runner-up is taken apart into what each feature of
each node around it adds: exactly for the closed form, by integrated gradients for a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, hstack
from torch import Tensor

from evergraph.closed_form.attribution import ClosedForm
from evergraph.closed_form.features import FeatureConfig, PropagatedFeatures
from evergraph.closed_form.propagation import STEPS
from evergraph.errors import InputError, one_line
from evergraph.estimator.graph import Array, Id
from evergraph.estimator.near import edited_field
from evergraph.estimator.state import State
from evergraph.methods.analytic import Analytic
from evergraph.nn.attribution import integrated_gradients
from evergraph.nn.model import NodeClassifier
from evergraph.stream import Adjacency, Features, SparseRows

#: Logits below this are those of classes that are never chosen.
NEVER = -1e8
#: How far a network's logits may be from those predicted, of the difference, by rounding.
ROUNDING = 1e-3
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Explanation:
    """Why a node has its class and not the runner-up.

    Attributes:
        id: The node.
        label: Its class.
        against: The runner-up; None if there is no other class.
        margin: By how much its score for the class is above that for the runner-up.
        base: What of it no feature has a part in: of a network, the margin if all were zero.
        nodes: The nodes that have a part, most first, itself among them, ``[m]``.
        steps: How many edges away each of them is, ``[m]``.
        features: Names of the features; ``feature 0``, … if they have none, ``[d]``.
        contributions: What each node's features add to the margin, sparse ``[m, d]``. With ``base``
            they sum to it: to 1e-5 for the closed form, for a network but for :attr:`missing`.
        explains: What the margin is of. Mean-field inference, where it follows, is not explained:
            then it is of the scores before, and below zero if only the inference chose the class.
    """

    id: Id
    label: Id
    against: Id | None
    margin: float
    base: float
    nodes: list[Id]
    steps: Array
    features: list[str]
    contributions: csr_array
    explains: str

    @property
    def by_node(self) -> Array:
        """What each node adds, ``[m]``."""
        return np.asarray(self.contributions.sum(axis=1))

    @property
    def by_feature(self) -> Array:
        """What each feature adds, ``[d]``."""
        return np.asarray(self.contributions.sum(axis=0))

    @property
    def missing(self) -> float:
        """What of the margin is not attributed: rounding, and the steps of an integral."""
        return self.margin - self.base - float(self.contributions.sum())

    def summary(self, count: int = 5) -> dict[str, Any]:
        """Returns the nodes and features that add most and that take most, at most ``count``."""
        told = ("id", "label", "against", "margin", "base", "explains", "missing")
        found: dict[str, Any] = {key: getattr(self, key) for key in told}
        sides = (("nodes", self.nodes, self.by_node), ("features", self.features, self.by_feature))
        for what, names, values in sides:
            order = np.argsort(-values, kind="stable")
            for side, sign, best in (("for", 1, order), ("against", -1, order[::-1])):
                found[f"{what}_{side}"] = [
                    {"name": names[at], "adds": float(values[at])}
                    | ({"steps": int(self.steps[at])} if what == "nodes" else {})
                    for at in best[:count].tolist()
                    if sign * values[at] > 0
                ]
        return found

    def __str__(self) -> str:
        return self.text()

    def text(self, count: int = 5) -> str:
        """Tells what :meth:`summary` returns in a few lines."""
        about = self.summary(count)
        rival = "" if self.against is None else f", not {one_line(str(self.against))}"
        head = f"{one_line(str(self.id))}: {one_line(str(self.label))}{rival}"
        lines = [f"{head}, by {self.margin:.4g} ({self.explains})"]
        for key in ("nodes_for", "nodes_against", "features_for", "features_against"):
            told = []
            for part in about[key]:
                steps = part.get("steps")
                where = {None: "", 0: " (itself)", 1: " (1 step)"}.get(steps, f" ({steps} steps)")
                told.append(f"{one_line(str(part['name']))}{where} {part['adds']:+.3g}")
            if told:
                lines.append(f"  {key.replace('_', ' ')}: {', '.join(told)}")
        if self.base:
            lines.append(f"  without any feature: {self.base:+.3g}; missing: {self.missing:+.2g}")
        return "\n".join(lines)


def explain(state: State, rows: Tensor) -> list[Explanation]:
    """Explains the classes of some nodes, on the CPU."""
    method, logits = state.learner.method, state.logits(CPU, rows)
    asked = [(row, _Rivals.of(scores)) for row, scores in zip(rows.tolist(), logits, strict=True)]
    closed = method if isinstance(method, Analytic) else getattr(method, "analytic", None)
    if isinstance(closed, Analytic):
        kind = closed.selection.kind
        if closed.config.rows == "smoothed" and kind is not None and kind.activation == "none":
            return _by_closed_form(state, closed, kind, asked)
    elif state.learner.model is not None:
        return [_by_network(state, state.learner.model, *pair) for pair in asked]
    raise _cannot(state)


def _cannot(state: State) -> InputError:
    return InputError(
        f"Expected a method whose scores are a network's or linear in the features (got "
        f"'{state.config.method}' with its settings); only such predictions can be explained."
    )


class _Rivals(NamedTuple):
    """The class of most and, if there is another, that of second most."""

    labels: list[int]
    signs: Tensor  # 1 and −1, ``[1]`` or ``[2]``
    margin: float

    @classmethod
    def of(cls, logits: Tensor) -> _Rivals:
        values, labels = torch.topk(logits.double(), min(2, logits.numel()))
        count = 1 + int((values[1:] > NEVER).sum())
        signs = torch.tensor([1.0, -1.0], dtype=torch.float64)[:count]
        return cls(labels[:count].tolist(), signs, float(values[:count] @ signs))


def _by_closed_form(
    state: State, closed: Analytic, kind: FeatureConfig, asked: list[tuple[int, _Rivals]]
) -> list[Explanation]:
    chosen, weights, found = closed.selection, closed.solved(), []
    wanted = torch.unique(torch.tensor([row for row, _ in asked]))
    depth = kind.reach + (STEPS if chosen.teleport < 1 else 0)
    around = _field(state, wanted, depth)
    seed, features = state.config.parameters.seed, state.graph.take(around.nodes)
    near, far = around.graphs[: kind.reach], around.graphs[kind.reach :]
    rows = PropagatedFeatures(features, near, kind, seed, chosen.basis)
    form = ClosedForm(rows, far, chosen.teleport)
    column = {label: at for at, label in enumerate(closed.moments.labels)}
    for row, rivals in asked:
        of = weights[:, [column[label] for label in rivals.labels]].double() @ rivals.signs
        at = around.places[int(torch.searchsorted(wanted, row))]
        added = _contributions(features, *form.attribute(at, of))
        margin, explains = rivals.margin, "scores of the closed form, exact"
        if chosen.mean_field:
            margin, explains = float(added.sum()), "scores before mean-field inference, exact"
        about = {"margin": margin, "base": 0.0, "explains": explains}
        found.append(_explained(state, (row, rivals), around, at, added, **about))
    return found


def _by_network(state: State, model: NodeClassifier, row: int, rivals: _Rivals) -> Explanation:
    around = _field(state, torch.tensor([row]), len(model.encoder.layers))
    of, features = torch.zeros(model.head.num_classes), state.graph.take(around.nodes)
    of[rivals.labels] = rivals.signs.float()
    factors = integrated_gradients(model, features, around.graphs, of)
    if abs(factors.value - rivals.margin) > ROUNDING * (1 + abs(rivals.margin)):
        raise _cannot(state)  # something follows the network, or another one predicts
    added = _contributions(features, factors.nodes, factors.features)
    explains = "logits of the network, by integrated gradients"
    about = {"margin": rivals.margin, "base": factors.base, "explains": explains}
    return _explained(state, (row, rivals), around, around.places[0], added, **about)


class _Field(NamedTuple):
    """The nodes that scores depend on, the graph of every step, and where the wanted nodes are."""

    nodes: Tensor
    graphs: tuple[Adjacency, ...]
    places: list[int]


def _field(state: State, wanted: Tensor, depth: int) -> _Field:
    field = edited_field(state.edits, state.graph, wanted, depth)
    assert isinstance(field.features, Tensor)
    assert isinstance(field.graphs, tuple)
    places = torch.arange(wanted.numel()) if field.rows is None else field.rows
    return _Field(field.features, field.graphs, places.tolist())


def _explained(
    state: State, asked: tuple[int, _Rivals], around: _Field, at: int, added: csr_array, **how: Any
) -> Explanation:
    """Puts nodes in order and gives everything its name."""
    (row, rivals), (nodes, graphs, _) = asked, around
    away = _steps_away(graphs, at, nodes.numel()).numpy()
    there = np.flatnonzero(away >= 0)
    order = there[np.argsort(-np.abs(added.sum(axis=1))[there], kind="stable")]
    width, take = state.graph.width, state.graph.names.take
    names = state.columns or tuple(f"feature {at}" for at in range(width))
    label, against, *_ = [*(state.classes[label] for label in rivals.labels), None]
    return Explanation(
        **{"id": take(np.array([row]))[0], "label": label, "against": against, **how},
        nodes=take(nodes.numpy()[order]),
        steps=away[order],
        features=[*names, *["constant"] * (added.shape[1] - width)],
        contributions=added[order],
    )


def _contributions(
    x: Features, nodes: Tensor, features: Tensor, constant: Tensor | None = None
) -> csr_array:
    """Multiplies every feature that is not zero by its factors; a constant is the last column."""
    if isinstance(x, SparseRows):
        row, column, values = x.row_index(), x.indices, x.values
    else:
        row, column = torch.nonzero(x, as_tuple=True)
        values = x[row, column]
    added = torch.zeros(values.numel(), dtype=torch.float64)
    for left, right in zip(nodes.t(), features.t(), strict=True):
        added += left[row] * right[column]
    place = (row.numpy(), column.numpy())
    found = csr_array(((added * values).numpy(), place), shape=tuple(x.shape))
    return found if constant is None else csr_array(hstack([found, constant.numpy()[:, None]]))


def _steps_away(graphs: tuple[Adjacency, ...], at: int, count: int) -> Tensor:
    """Counts the edges from a node to each one that its score reads, ``[n]``; −1: none."""
    far = len(graphs) + 1
    away = torch.full((graphs[-1].num_nodes if graphs else count,), far)
    away[at] = 0
    for graph in reversed(graphs):
        source = torch.full((graph.num_sources,), far)
        source.scatter_reduce_(0, graph.src, away[graph.dst] + 1, "amin")
        own = torch.arange(away.numel()) if graph.own is None else graph.own
        source[own] = torch.minimum(source[own], away)
        away = source.clamp(max=far)
    return torch.where(away < far, away, -1)
