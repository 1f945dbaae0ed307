r"""Scores of nodes in their graph: score propagation and mean-field inference.

**Score propagation** as in APPNP: the scores :math:`s` of all nodes become
:math:`\tilde s = \alpha s + (1 - \alpha) P \tilde s`, where :math:`P` averages over a node and its
neighbours and :math:`\alpha` is the teleport probability; a few steps from :math:`\tilde s = s`.

**Mean-field inference** in a block model: with :math:`q_i` the class probabilities of node
:math:`i`, :math:`u_i` its unary term and :math:`R` how much oftener than by chance edges join two
classes,

.. math:: q_i \leftarrow \mathrm{softmax}\Bigl(u_i + \sum_{j \sim i} \log (R\, q_j)\Bigr).

Propagation asks that neighbours be alike; here they may be anything. Neither learns from labels and
nothing of either is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from evergraph.closed_form.features import Rows, propagation_matrix
from evergraph.closed_form.ridge import Spectrum
from evergraph.device import evenly_spaced
from evergraph.kernels.ops import SparseMatrix
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.shard import Shard

#: Steps of score propagation.
STEPS = 5
#: Steps of mean-field inference.
MEAN_FIELD_STEPS = 2
#: Weight of joining by chance in the affinity, so that no two classes exclude each other.
CHANCE = 0.02
#: Ridge strength of the unary term; from 5e-4 to 1e-2 it makes no difference.
UNARY_STRENGTH = 5e-3
#: Most nodes that the unary term is regressed on, evenly spaced.
UNARY_NODES = 2_000


def coefficients(teleport: float) -> list[float]:
    """Returns how much each power of P counts; they sum to one."""
    onward = round(1 - teleport, 12)  # 0.3, not 0.30000000000000004
    return [*((1 - onward) * onward**step for step in range(STEPS)), onward**STEPS]


def powers(scores: Tensor, graph: Adjacency | Shard) -> Iterator[Tensor]:
    """Yields P^0 s to P^STEPS s."""
    mean = propagation_matrix(graph, "mean", self_loops=True)
    yield scores
    for _ in range(STEPS):
        scores = mean.times(scores.float()).to(scores.dtype)
        yield scores


def mix(parts: Iterable[Tensor], teleport: float) -> Tensor:
    """Sums what belongs to each power of P by its coefficient."""
    terms = zip(parts, coefficients(teleport), strict=True)
    first, share = next(terms)
    total = share * first
    for part, share in terms:
        total.add_(part, alpha=share)
    return total


def propagate(scores: Tensor, graph: Adjacency | Shard, teleport: float) -> Tensor:
    """Propagates the scores of all nodes, ``[n, k]``; teleport 1 leaves them as they are."""
    if teleport == 1:
        return scores
    return mix(powers(scores, graph), teleport)


def propagate_changed(
    own: Tensor, part: Adjacency, known: Sequence[Tensor], teleport: float
) -> Tensor:
    """Propagates nodes' ``own`` scores ``[m, k]`` where their graph has changed near them.

    What differs is followed from step to step: exactly among the nodes, and one step beyond them.
    ``part`` has all edges into them; ``known`` are scores of its sources after every step, before
    the change.
    """
    assert part.own is not None
    mean, degree = propagation_matrix(part, "mean", self_loops=True), part.strength[:, None] + 1
    weight = 1 if part.weight is None else part.weight[:, None]
    steps = [known[0].index_copy(0, part.own, own)]
    for before, after in pairwise(known):
        changed = steps[-1] - before
        back = changed.index_add(0, part.src, weight * changed[part.own][part.dst])
        inner = mean.times(steps[-1].float()).to(after.dtype)
        steps.append((after + back / degree).to(after.dtype).index_copy(0, part.own, inner))
    return mix(steps, teleport)[part.own]


def unary_terms(probabilities: Sequence[Tensor], features: Rows) -> Sequence[Tensor]:
    r"""Computes what a node's own features say of its class, each ``[n, k]``, before a softmax.

    The probabilities of all nodes, labelled or not, are regressed on the features by ridge, and
    every node gets what the *others* make of it: with :math:`h_i` its leverage, node :math:`i`'s
    residual :math:`e_i` becomes :math:`e_i / (1 - h_i)`.
    """
    first = probabilities[0]
    count = first.shape[0] if features.shard is None else features.shard.num_nodes
    nodes = evenly_spaced(count, UNARY_NODES, first.device)
    targets = torch.cat([features.pick(one, nodes) for one in probabilities], dim=1).double()
    x = features.rows(nodes).double()
    rows = x / nodes.numel() ** 0.5
    spectrum = Spectrum(rows)
    turned = rows @ spectrum.basis
    weights = spectrum.regress(turned.t() @ targets / nodes.numel() ** 0.5, UNARY_STRENGTH)
    leverage = spectrum.leverage(turned.square(), rows.square().sum(dim=1), UNARY_STRENGTH)
    scores = features.times(weights)
    residuals = (targets - x @ weights) / (1 - leverage)[:, None]
    here = (at := features.place(nodes)) >= 0
    scores[at[here]] = (targets - residuals)[here].to(scores.dtype)
    return torch.split(scores, first.shape[1], dim=1)


def affinity(probabilities: Tensor, graph: Adjacency | Shard) -> Tensor:
    """Estimates how much oftener than by chance edges join two classes, ``[k, k]``.

    Probabilities ``[n, k]`` are squared first, for unsure nodes would make all classes look alike.
    Classes without any edge are joined to all others as by chance.
    """
    sure = probabilities.square()
    sure = sure / sure.sum(dim=1, keepdim=True)
    joined = graph.team.sum(sure.t().double() @ _neighbour_sums(sure, graph).double())
    ends = joined.sum(dim=1, keepdim=True)
    chance = ends * ends.t() / ends.sum().clamp(min=1e-12)
    oftener = torch.where(chance > 0, joined / chance.clamp(min=1e-12), 1)
    return ((oftener + CHANCE) / (1 + CHANCE)).to(probabilities.dtype)


def mean_field(unary: Tensor, probabilities: Tensor, graph: Adjacency | Shard) -> Tensor:
    """Takes the steps of mean-field inference from some probabilities; all are ``[n, k]``.

    Returns log-probabilities; the unary term is ready for the softmax.
    """
    for _ in range(MEAN_FIELD_STEPS):
        messages = (probabilities @ affinity(probabilities, graph)).log()
        logits = unary + _neighbour_sums(messages, graph)
        probabilities = softmax(logits)
    return logits.t().log_softmax(dim=0).t()


def softmax(logits: Tensor) -> Tensor:
    """Computes the softmax of every row, ``[n, k]``: down columns ten times as fast as across."""
    return logits.t().softmax(dim=0).t()


def _neighbour_sums(rows: Tensor, graph: Adjacency | Shard) -> Tensor:
    """Sums ``[n, k]`` over neighbours; edges weigh one on average."""
    weight = torch.ones(graph.pattern.columns.shape, device=graph.device)
    if graph.weight is not None:
        weight = graph.weight / graph.mean_weight
    return SparseMatrix(graph.pattern, weight).times(graph.extend(rows.float())).to(rows.dtype)
