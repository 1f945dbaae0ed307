"""Explanation: which neighbours and which features decided on a node's class, against which other.

A node's score for its class less that for the runner-up is taken apart into what each feature of
each node around it adds: exactly for the closed form, by integrated gradients for a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from evergraph.closed_form.attribution import ClosedForm
from evergraph.closed_form.propagation import STEPS
from evergraph.errors import InputError, one_line
from evergraph.estimator.graph import Array, Id
from evergraph.estimator.state import State
from evergraph.methods.analytic import Analytic
from evergraph.nn.attribution import integrated_gradients
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
        named: dict[str, Any] = {"nodes": self.nodes, "features": self.features}
        found: dict[str, Any] = {
            key: getattr(self, key) for key in ("id", "label", "against", "margin", "base")
        }
        found |= {"explains": self.explains, "missing": self.missing}
        for what, values in (("nodes", self.by_node), ("features", self.by_feature)):
            order = np.argsort(-values, kind="stable")
            up = [at for at in order[:count].tolist() if values[at] > 0]
            down = [at for at in order[::-1][:count].tolist() if values[at] < 0]
            for side, chosen in (("for", up), ("against", down)):
                found[f"{what}_{side}"] = [
                    {"name": named[what][at], "adds": float(values[at])}
                    | ({"steps": int(self.steps[at])} if what == "nodes" else {})
                    for at in chosen
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
        for what in ("nodes", "features"):
            for side in ("for", "against"):
                parts = about[f"{what}_{side}"]
                told = ", ".join(_part(part) for part in parts)
                if told:
                    lines.append(f"  {what} {side}: {told}")
        if self.base:
            lines.append(f"  without any feature: {self.base:+.3g}; missing: {self.missing:+.2g}")
        return "\n".join(lines)


def _part(part: dict[str, Any]) -> str:
    steps = part.get("steps")
    where = {None: "", 0: " (itself)", 1: " (1 step)"}.get(steps, f" ({steps} steps)")
    return f"{one_line(str(part['name']))}{where} {part['adds']:+.3g}"


def explain(state: State, rows: Tensor) -> list[Explanation]:
    """Explains the classes of some nodes, on the CPU."""
    method = state.learner.method
    closed = method if isinstance(method, Analytic) else getattr(method, "analytic", None)
    if isinstance(closed, Analytic):
        kind = closed.selection.kind
        if closed.config.rows == "smoothed" and kind is not None and kind.activation == "none":
            return _by_closed_form(state, closed, rows)
    elif state.learner.model is not None:
        return [_by_network(state, row, logits) for row, logits in _each(state, rows)]
    raise _cannot(state)


def _cannot(state: State) -> InputError:
    return InputError(
        f"Expected a method whose scores are a network's or linear in the features (got "
        f"'{state.config.method}' with its settings); only such predictions can be explained."
    )


def _each(state: State, rows: Tensor) -> list[tuple[int, Tensor]]:
    return list(zip(rows.tolist(), state.logits(CPU, rows), strict=True))


def _rivals(logits: Tensor) -> dict[int, int]:
    """Returns the class of most with 1 and that of second most, if there is one, with −1."""
    best = torch.topk(logits, min(2, logits.numel()))
    pairs = zip(best.indices.tolist(), best.values.tolist(), (1, -1), strict=False)
    return {label: sign for label, value, sign in pairs if sign > 0 or value > NEVER}


def _margin(logits: Tensor, rivals: dict[int, int]) -> float:
    return sum(sign * float(logits[label]) for label, sign in rivals.items())


def _by_closed_form(state: State, closed: Analytic, rows: Tensor) -> list[Explanation]:
    chosen, weights = closed.selection, closed.solved()
    kind = chosen.kind
    assert kind is not None
    wanted, found = torch.unique(rows), []
    depth = kind.reach + (STEPS if chosen.teleport < 1 else 0)
    nodes, graphs, places = _field(state, wanted, depth)
    form = ClosedForm(
        state.graph.take(nodes),
        graphs,
        kind,
        teleport=chosen.teleport,
        seed=state.config.parameters.seed,
        basis=chosen.basis,
    )
    column = {label: at for at, label in enumerate(closed.moments.labels)}
    for row, logits in _each(state, rows):
        rivals = _rivals(logits)
        signs = torch.tensor(list(rivals.values()), dtype=weights.dtype)
        of = weights[:, [column[label] for label in rivals]] @ signs
        at = places[int(torch.searchsorted(wanted, row))]
        factors = form.attribute(at, of)
        added = _contributions(form.rows.features, *factors)
        about = (row, nodes, _steps_away(graphs, at, nodes.numel()), rivals)
        if chosen.mean_field:
            margin, explains = float(added.sum()), "scores before mean-field inference, exact"
        else:
            margin, explains = _margin(logits, rivals), "scores of the closed form, exact"
        found.append(_explained(state, about, added, margin=margin, base=0.0, explains=explains))
    return found


def _by_network(state: State, row: int, logits: Tensor) -> Explanation:
    model, rivals = state.learner.model, _rivals(logits)
    assert model is not None
    nodes, graphs, places = _field(state, torch.tensor([row]), len(model.encoder.layers))
    of, margin = torch.zeros(model.head.num_classes), _margin(logits, rivals)
    for label, sign in rivals.items():
        of[label] = sign
    features = state.graph.take(nodes)
    factors = integrated_gradients(model, features, graphs, of)
    if abs(factors.value - margin) > ROUNDING * (1 + abs(margin)):
        raise _cannot(state)  # something follows the network, or another one predicts
    added = _contributions(features, factors.nodes, factors.features)
    about = (row, nodes, _steps_away(graphs, places[0], nodes.numel()), rivals)
    explains = "logits of the network, by integrated gradients"
    return _explained(state, about, added, margin=margin, base=factors.base, explains=explains)


def _field(
    state: State, wanted: Tensor, depth: int
) -> tuple[Tensor, tuple[Adjacency, ...], list[int]]:
    """Finds the nodes that scores depend on, the graph of every step, and places of the wanted."""
    field = state.edits.field(state.graph, wanted, depth)
    assert isinstance(field.features, Tensor)
    assert isinstance(field.graphs, tuple)
    places = torch.arange(wanted.numel()) if field.rows is None else field.rows
    return field.features, field.graphs, places.tolist()


def _explained(
    state: State, about: tuple[int, Tensor, Tensor, dict[int, int]], added: csr_array, **how: Any
) -> Explanation:
    """Puts nodes in order and gives everything its name.

    ``about`` are a node, the rows around it, how many steps away each is (−1: out of reach), and
    the classes between which it was decided.
    """
    row, nodes, away, rivals = about
    there = np.flatnonzero((away >= 0).numpy())
    order = there[np.argsort(-np.abs(added.sum(axis=1))[there], kind="stable")]
    width, take = state.graph.width, state.graph.names.take
    names = state.columns or tuple(f"feature {at}" for at in range(width))
    label, against, *_ = [*(state.classes[label] for label in rivals), None]
    return Explanation(
        **{"id": take(np.array([row]))[0], "label": label, "against": against, **how},
        nodes=take(nodes.numpy()[order]),
        steps=away.numpy()[order],
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
    added *= values
    width = x.shape[1]
    if constant is not None:
        every = torch.arange(constant.numel())
        row, column = torch.cat([row, every]), torch.cat([column, torch.full_like(every, width)])
        added, width = torch.cat([added, constant]), width + 1
    place = (row.numpy(), column.numpy())
    return csr_array((added.numpy(), place), shape=(x.shape[0], width))


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
