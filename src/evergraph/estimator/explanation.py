r"""Explanation: which neighbours and which features decided on a node's class, against which other.

A node's score for its class less that for the runner-up is taken apart into what each feature of
each node around it adds. Scores begin with a linear map of the features, so that this has few
factors: feature :math:`f` of node :math:`j` adds :math:`x_{jf} \sum_k a_{jk} w_{fk}`.

For the **closed form** it is exact: a score is linear in the features around the node once the
lengths of rows are known, which count as given. :math:`w_{fk}` is what a feature weighs at hop
:math:`k`, and :math:`a_{jk}` how much of a node arrives by it. For a **network** :math:`w` is its
first linear map and :math:`a` the gradient behind it, integrated while features grow from zero to
what they are (Sundararajan et al., ICML 2017): all add up to the score less that without any
feature; nearly so, for the integral is a mean over steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, hstack
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from evergraph.closed_form.features import PropagatedFeatures, PropagationMatrix, propagation_matrix
from evergraph.closed_form.propagation import STEPS as PROPAGATED
from evergraph.closed_form.propagation import coefficients
from evergraph.errors import InputError, one_line
from evergraph.estimator.graph import Array, Id
from evergraph.estimator.near import CPU, read_field
from evergraph.estimator.state import State
from evergraph.kernels.ops import SparseMatrix
from evergraph.nn.model import NodeClassifier
from evergraph.stream import Features, SparseRows

if TYPE_CHECKING:
    from evergraph.methods.analytic import Analytic

#: Logits below this are those of classes that are never chosen.
NEVER = -1e8
#: How far a network's logits may be from those predicted, of the difference, by rounding.
ROUNDING = 1e-3
#: Points of the integral, evenly spaced; more where so much of both ends would be missing.
STEPS, MISSING = (32, 128, 512), 2e-3


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
    closed, model = state.learner.method.closed_form, state.learner.model
    if closed is not None and closed.kind.activation == "none":
        scores = of_closed_form(state, closed, rows)
        return [_explained(state, row, scores) for row in rows]
    if model is None:
        raise _cannot(state)
    return [_explained(state, row, of_network(state, model, row)) for row in rows]


def _cannot(state: State) -> InputError:
    return InputError(
        f"Expected a method whose scores are a network's or linear in the features (got "
        f"'{state.config.method}' with its settings); only such predictions can be explained."
    )


def _explained(state: State, row: Tensor, scores: Scores) -> Explanation:
    """Takes the margin of a node's class apart, and gives everything its name."""
    logits, at = state.logits(CPU, row[None])[0].double(), int(torch.nonzero(scores.nodes == row))
    best = torch.topk(logits, min(2, logits.numel()))
    labels = best.indices[best.values > NEVER].tolist()
    of = torch.zeros_like(logits)
    of[labels] = torch.tensor([1.0, -1.0], dtype=of.dtype)[: len(labels)]
    factors = scores.attribute(at, of)
    added, margin = _contributions(scores.features, factors), float(logits[labels] @ of[labels])
    if "mean-field" in scores.explains:
        margin = float(added.sum())
    elif factors.value is not None and abs(factors.value - margin) > ROUNDING * (1 + abs(margin)):
        raise _cannot(state)  # something follows the network, or another one predicts
    away = dijkstra(scores.joined, indices=at, unweighted=True, limit=scores.depth)
    there = np.flatnonzero(np.isfinite(away))
    order = there[np.argsort(-np.abs(added.sum(axis=1))[there], kind="stable")]
    names = state.columns or tuple(f"feature {column}" for column in range(state.graph.width))
    return Explanation(
        id=state.graph.names.take(row[None].numpy())[0],
        label=state.classes[labels[0]],
        against=state.classes[labels[1]] if len(labels) > 1 else None,
        margin=margin,
        base=factors.base,
        nodes=state.graph.names.take(scores.nodes.numpy()[order]),
        steps=away[order].astype(np.int64),
        features=[*names, *["constant"] * (added.shape[1] - len(names))],
        contributions=added[order],
        explains=scores.explains,
    )


def _contributions(x: Features, factors: Factors) -> csr_array:
    """Multiplies every feature that is not zero by its factors; a constant is the last column."""
    if isinstance(x, SparseRows):
        found = csr_array((x.values, x.indices, x.indptr), shape=x.shape)
    else:
        found = csr_array(x.numpy())
    row, column = found.tocoo().coords
    added = np.zeros(found.nnz)
    for left, right in zip(factors.nodes.T, factors.features.T, strict=True):
        added += left[row] * right[column]
    parts = [csr_array((added * found.data, found.indices, found.indptr), shape=found.shape)]
    parts += [factors.nodes @ factors.features[x.shape[1] :].T * x.shape[1] ** 0.5]
    return csr_array(hstack(parts))


class Factors(NamedTuple):
    """Contributions, and the score with the features as they are and with all of them zero."""

    nodes: Array  # [n, b]
    features: Array  # [d, b]; one row more is of a constant √d beside the features
    value: float | None = None  # None: what they add up to
    base: float = 0.0


class Scores(NamedTuple):
    """What scores of some nodes depend on, and a way to take them apart."""

    explains: str
    nodes: Tensor  # [n], all within ``depth`` steps
    features: Features  # [n, d]
    joined: csr_array  # [n, n], the edges into all but the farthest, from who hears to who is heard
    depth: int
    attribute: Callable[[int, Tensor], Factors]  # of one of the nodes, with what classes weigh, [k]


def of_network(state: State, model: NodeClassifier, row: Tensor) -> Scores:
    """Takes apart the logits of a network, of one node."""
    nodes, field, _ = read_field(state, row[None], len(model.encoder.layers), CPU)
    encoder, graphs, features = model.eval().encoder, field.graphs, field.features
    first, *later = list[Any](encoder.layers)
    path = ("plain",) if encoder.has_attention else ()
    assert isinstance(graphs, tuple)

    def value(rows: Tensor, of: Tensor) -> Tensor:
        h = first.gather(rows, graphs[0], *path)
        for layer, graph in zip(later, graphs[1:], strict=True):
            h = layer.gather(layer.lift(h.relu()), graph, *path)
        return model.classify(h, plain=True)[0] @ of.float()

    def attribute(_: int, of: Tensor) -> Factors:
        with torch.no_grad():
            rows, lifts = first.lift(features), first.lift(torch.eye(features.shape[1]))
            end, base = float(value(rows, of)), float(value(torch.zeros_like(rows), of))
        for steps in STEPS:
            total = torch.zeros_like(rows, dtype=torch.float64)
            for step in range(steps):
                at = (rows * ((step + 0.5) / steps)).requires_grad_()
                with torch.enable_grad():
                    (gradient,) = torch.autograd.grad(value(at, of), at)
                total += gradient / steps
            missing = end - base - float((total * rows).sum())
            if abs(missing) <= MISSING * (abs(end) + abs(base)):
                break
        return Factors(total.numpy(), lifts.double().numpy(), end, base)

    own = torch.arange(graphs[0].num_nodes) if graphs[0].own is None else graphs[0].own
    ends = (own[graphs[0].dst], graphs[0].src)
    joined = csr_array((np.ones(ends[1].numel()), ends), shape=(nodes.numel(), nodes.numel()))
    how = "logits of the network, by integrated gradients"
    return Scores(how, nodes, features, joined, len(graphs), attribute)


def of_closed_form(state: State, closed: Analytic, asked: Tensor) -> Scores:
    """Takes apart the scores of the closed form, those before mean-field inference."""
    chosen, kind, seed = closed.selection, closed.kind, state.config.parameters.seed
    depth = kind.reach + (PROPAGATED if chosen.teleport < 1 else 0)
    around = state.graph.neighbourhood(asked, depth)
    n, part, features = around.nodes.numel(), around.adjacency, around.features
    rows = PropagatedFeatures(features, part, kind, seed, chosen.basis)
    weights = closed.moments.logits(closed.solved(), len(state.classes)).double()
    share = kind.parts if kind.combine == "sum" else kind.parts**0.5
    lengths = share * torch.where(rows.hop_lengths > 0, rows.hop_lengths, 1).double().numpy()
    own_lengths = 1.0 if kind.scaling == "none" else rows.lengths.double().numpy()
    mean = _sparse(propagation_matrix(part, "mean", self_loops=True))
    ways = [[_sparse(matrix) for matrix in rows.matrices[:power]] for power in kind.powers]
    ways += [[_sparse(matrix)] for matrix in rows.directed]

    def attribute(at: int, of: Tensor) -> Factors:
        heard, reached = np.zeros(n), np.eye(1, n, at)[0]
        for share in coefficients(chosen.teleport):
            heard += share * reached
            reached = reached @ mean
        arrives = []
        for way, length in zip(ways, lengths, strict=True):
            part = heard / length
            for matrix in way:
                part = part @ matrix
            arrives.append(part / own_lengths)
        nodes, features = np.stack(arrives, axis=1), (weights @ of).view(kind.blocks, -1).t()
        if kind.blocks == 1:
            nodes = nodes.sum(axis=1, keepdims=True)
        if rows.directions is not None:
            d = rows.directions.shape[1]
            features = torch.cat([rows.directions.double() @ features[:d], features[d:]])
        return Factors(nodes, features.numpy())

    what = "before mean-field inference" if chosen.mean_field else "of the closed form"
    joined = _sparse(PropagationMatrix(SparseMatrix(part.pattern, torch.ones(part.num_edges))))
    return Scores(f"scores {what}, exact", around.nodes, features, joined, depth, attribute)


def _sparse(matrix: PropagationMatrix) -> csr_array:
    pattern, n = matrix.matrix.pattern, matrix.matrix.pattern.num_rows
    entries = (matrix.matrix.values.double(), pattern.columns, pattern.indptr)
    found = csr_array(entries, shape=(n, n))
    diagonal = matrix.diagonal
    return found if diagonal is None else found + diags_array(diagonal.double().numpy())
