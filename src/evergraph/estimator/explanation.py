r"""Explanation: which neighbours and which features decided on a node's class, against which other.

Scores begin with a linear map of the features: feature :math:`f` of node :math:`j` adds
:math:`x_{jf} \sum_k a_{jk} w_{fk}` to the score of a class less that of the runner-up. For the
**closed form** that is exact, with the lengths of rows as given: :math:`w_{fk}` is what a feature
weighs at hop :math:`k`, :math:`a_{jk}` how much of a node arrives by it. For a **network**
:math:`w` is its first linear map and :math:`a` the gradient behind it, integrated while features
grow from zero to what they are (Sundararajan et al., ICML 2017), as a mean over steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import matmul
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, hstack
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from evergraph.closed_form.features import PropagatedFeatures, PropagationMatrix, propagation_matrix
from evergraph.closed_form.propagation import STEPS as PROPAGATED
from evergraph.closed_form.propagation import mix
from evergraph.errors import InputError, one_line
from evergraph.estimator.graph import Array, Id
from evergraph.estimator.near import CPU, read_field
from evergraph.estimator.state import State
from evergraph.kernels.ops import SparseMatrix
from evergraph.methods.analytic import Analytic
from evergraph.nn.model import NodeClassifier
from evergraph.stream import Features, SparseRows

#: Logits of classes that are never chosen; how far others may be from a network's, by rounding.
NEVER, ROUNDING = -1e8, 1e-3
#: Points of the integral, evenly spaced; more where so much of both ends would be missing.
STEPS, MISSING = (32, 128, 512), 2e-3


@dataclass(frozen=True)
class Explanation:
    """Why a node has its class and not the runner-up.

    With ``base`` contributions sum to the margin, but for :attr:`missing`. Mean-field inference,
    where it follows, is not explained: then the margin is of the scores before.
    """

    id: Id
    label: Id
    against: Id | None  # the runner-up; None if there is no other class
    margin: float  # by how much the score for the class is above that for the runner-up
    base: float  # what of it no feature has a part in: of a network, the margin if all were zero
    nodes: list[Id]  # that have a part, most first, itself among them, [m]
    steps: Array  # how many edges away each of them is, [m]
    features: list[str]  # their names; ``feature 0``, … if they have none, [d]
    contributions: csr_array  # what each node's features add to the margin, [m, d]
    explains: str  # what the margin is of

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

    def text(self, count: int = 5) -> str:
        """Tells what :meth:`summary` returns in a few lines."""
        about = self.summary(count)
        rival = "" if self.against is None else f", not {one_line(str(self.against))}"
        head = f"{one_line(str(self.id))}: {one_line(str(self.label))}{rival}"
        lines = [f"{head}, by {self.margin:.4g} ({self.explains})"]
        away = {None: "", 0: " (itself)", 1: " (1 step)"}
        for key in ("nodes_for", "nodes_against", "features_for", "features_against"):
            told = [
                one_line(str(part["name"]))
                + away.get(steps := part.get("steps"), f" ({steps} steps)")
                + f" {part['adds']:+.3g}"
                for part in about[key]
            ]
            lines += [f"  {key.replace('_', ' ')}: {', '.join(told)}"] if told else []
        if self.base:
            lines.append(f"  without any feature: {self.base:+.3g}; missing: {self.missing:+.2g}")
        return "\n".join(lines)

    __str__ = text


class Parts(NamedTuple):
    """A margin in parts: feature ``f`` of node ``j`` adds ``x[j, f] * (heard[j] @ weighs[f])``."""

    explains: str
    nodes: Tensor  # [n], all that the score depends on
    depth: int  # how many steps away they may be
    joined: csr_array  # [n, n], the edges into all but the farthest, from who hears to who is heard
    x: csr_array  # [n, d], a constant last if there is one
    heard: Array  # [n, b]
    weighs: Array  # [d, b]
    value: float | None = None  # the score; None: what contributions add up to
    base: float = 0.0  # the score if all features were zero


def explain(state: State, rows: Tensor) -> list[Explanation]:
    """Explains the classes of some nodes, on the CPU."""
    closed, model = state.learner.method.closed_form, state.learner.model
    logits = state.logits(CPU, rows).double()
    best = torch.topk(logits, min(2, logits.shape[1]), dim=1)
    signs = torch.tensor([1.0, -1.0], dtype=logits.dtype)[: best.values.shape[1]]
    labels = [row[value > NEVER].tolist() for value, row in zip(*best, strict=True)]
    # What each class weighs in the margin.
    of = torch.zeros_like(logits).scatter_(1, best.indices, signs * (best.values > NEVER))
    if closed is not None and closed.kind.activation == "none":
        found = of_closed_form(state, closed, rows, of)
    elif model is not None:
        found = (of_network(state, model, *one) for one in zip(rows, of, strict=True))
    else:
        raise _cannot(state)
    margins = (logits * of).sum(dim=1).tolist()
    return [_name(state, *one) for one in zip(rows, labels, margins, found, strict=True)]


def _cannot(state: State) -> InputError:
    return InputError(
        f"Expected a method whose scores are a network's or linear in the features (got "
        f"'{state.config.method}' with its settings); only such predictions can be explained."
    )


def _name(state: State, row: Tensor, labels: list[int], margin: float, parts: Parts) -> Explanation:
    """Gives everything that a margin is made of its name."""
    at, x, names = int(torch.nonzero(parts.nodes == row)), parts.x.tocoo(), state.graph.names
    added = np.zeros(x.nnz)
    for heard, weighs in zip(parts.heard.T, parts.weighs.T, strict=True):  # few: no [d, n] is held
        added += heard[x.coords[0]] * weighs[x.coords[1]]
    contributions = csr_array((added * x.data, x.coords), shape=x.shape)
    if "mean-field" in parts.explains:
        margin = float(contributions.sum())
    elif parts.value is not None and abs(parts.value - margin) > ROUNDING * (1 + abs(margin)):
        raise _cannot(state)  # something follows the network, or another one predicts
    away = dijkstra(parts.joined, indices=at, unweighted=True, limit=parts.depth)
    there = np.flatnonzero(np.isfinite(away))
    order = there[np.argsort(-np.abs(contributions.sum(axis=1))[there], kind="stable")]
    columns = state.columns or tuple(f"feature {column}" for column in range(state.graph.width))
    return Explanation(
        id=names.take(row[None].numpy())[0],
        label=state.classes[labels[0]],
        against=state.classes[labels[1]] if len(labels) > 1 else None,
        margin=margin,
        base=parts.base,
        nodes=names.take(parts.nodes.numpy()[order]),
        steps=away[order].astype(np.int64),
        features=[*columns, *["constant"] * (x.shape[1] - len(columns))],
        contributions=contributions[order],
        explains=parts.explains,
    )


def of_network(state: State, model: NodeClassifier, row: Tensor, of: Tensor) -> Parts:
    """Takes apart a margin of a network's logits."""
    nodes, field, _ = read_field(state, row[None], len(model.encoder.layers), CPU)
    encoder, graphs, features = model.eval().encoder, field.graphs, field.features
    first, *later = list[Any](encoder.layers)
    path = ("plain",) if encoder.has_attention else ()
    assert isinstance(graphs, tuple)

    def value(rows: Tensor) -> Tensor:
        h = first.gather(rows, graphs[0], *path)
        for layer, graph in zip(later, graphs[1:], strict=True):
            h = layer.gather(layer.lift(h.relu()), graph, *path)
        return model.classify(h, plain=True)[0] @ of.float()

    with torch.no_grad():
        rows, lifts = first.lift(features), first.lift(torch.eye(features.shape[1]))
        end, base = float(value(rows)), float(value(torch.zeros_like(rows)))
    for steps in STEPS:
        total = torch.zeros_like(rows, dtype=torch.float64)
        for step in range(steps):
            at = (rows * ((step + 0.5) / steps)).requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(value(at), at)
            total += gradient / steps
        missing = end - base - float((total * rows).sum())
        if abs(missing) <= MISSING * (abs(end) + abs(base)):
            break
    own = torch.arange(graphs[0].num_nodes) if graphs[0].own is None else graphs[0].own
    ends = (own[graphs[0].dst], graphs[0].src)
    joined = csr_array((np.ones(ends[1].numel()), ends), shape=(nodes.numel(), nodes.numel()))
    how = "logits of the network, by integrated gradients"
    weighs = lifts.double().numpy()
    return Parts(how, nodes, len(graphs), joined, _rows(features), total.numpy(), weighs, end, base)


def of_closed_form(state: State, closed: Analytic, rows: Tensor, of: Tensor) -> Iterator[Parts]:
    """Takes apart margins of the closed form's scores, those before mean-field inference."""
    chosen, kind, seed = closed.selection, closed.kind, state.config.parameters.seed
    depth = kind.reach + (PROPAGATED if chosen.teleport < 1 else 0)
    around = state.graph.neighbourhood(rows, depth)
    n, part, x = around.nodes.numel(), around.adjacency, _rows(around.features)
    made = PropagatedFeatures(around.features, part, kind, seed, chosen.basis)
    share = kind.parts if kind.combine == "sum" else kind.parts**0.5
    lengths = share * torch.where(made.hop_lengths > 0, made.hop_lengths, 1).double().numpy()
    own_lengths = 1.0 if kind.scaling == "none" else made.lengths.double().numpy()[:, None]
    mean = _sparse(propagation_matrix(part, "mean", self_loops=True))
    ways = [*(made.matrices[:power] for power in kind.powers), *([way] for way in made.directed)]
    solved = closed.moments.logits(closed.solved(), len(state.classes)).double() @ of.t()
    solved = solved.view(kind.blocks, len(solved) // kind.blocks, len(of))
    if made.directions is not None:
        d, directions = made.directions.shape[1], made.directions.double()
        solved = torch.cat([directions @ solved[:, :d], solved[:, d:]], dim=1)
    if kind.constant is True:
        x = csr_array(hstack([x, np.full((n, 1), state.graph.width**0.5)]))
    joined = _sparse(PropagationMatrix(SparseMatrix(part.pattern, torch.ones(part.num_edges))))
    what = "before mean-field inference" if chosen.mean_field else "of the closed form"
    pairs = [(list(map(_sparse, way)), each) for way, each in zip(ways, lengths, strict=True)]
    for number, at in enumerate(around.rows(rows).tolist()):
        reached = accumulate([mean] * PROPAGATED, matmul, initial=np.eye(1, n, at)[0])
        heard = mix(map(torch.from_numpy, reached), chosen.teleport).numpy()
        arrives = [reduce(matmul, way, heard / length) for way, length in pairs]
        by_hop = np.stack(arrives, axis=1) / own_lengths
        by_hop = by_hop.sum(axis=1, keepdims=True) if kind.blocks == 1 else by_hop
        weighs = solved[:, :, number].t().numpy()
        yield Parts(f"scores {what}, exact", around.nodes, depth, joined, x, by_hop, weighs)


def _rows(x: Features) -> csr_array:
    """Returns features as sparse rows, ``[n, d]``."""
    if isinstance(x, SparseRows):
        return csr_array((x.values, x.indices, x.indptr), shape=x.shape)
    return csr_array(x.numpy())


def _sparse(matrix: PropagationMatrix) -> csr_array:
    pattern, n = matrix.matrix.pattern, matrix.matrix.pattern.num_rows
    entries = (matrix.matrix.values.double(), pattern.columns, pattern.indptr)
    found = csr_array(entries, shape=(n, n))
    diagonal = matrix.diagonal
    return found if diagonal is None else found + diags_array(diagonal.double().numpy())
