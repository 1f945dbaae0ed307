r"""Attribution: what features of nodes add to a network's logit, by integrated gradients.

Features grow from zero to what they are (Sundararajan et al., ICML 2017): feature :math:`f` of
node :math:`j` gets :math:`x_{jf} \int_0^1 \partial z(t x) / \partial x_{jf}\, dt`, and all add up
to :math:`z(x) - z(0)`; nearly so, for the integral is a mean over steps. Since layers begin with a
linear map, gradients are integrated behind it, where rows are short.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from evergraph.nn.model import NodeClassifier
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features

#: Points of the integral, evenly spaced; more where so much of both ends would be missing.
STEPS, MISSING = (32, 128, 512), 2e-3


class Integrated(NamedTuple):
    """Contributions as factors: feature f of node j adds ``x[j, f] * (nodes[j] · features[f])``."""

    nodes: Tensor  # [n, b]
    features: Tensor  # [d, b]
    value: float  # with the features as they are
    base: float  # with all of them zero


def integrated_gradients(
    model: NodeClassifier, features: Features, graphs: tuple[Adjacency, ...], of: Tensor
) -> Integrated:
    """Takes apart the sum of one node's logits, weighed by ``of`` ``[k]``.

    Features and graphs are its receptive field: the last layer's graph gives the node alone.
    """
    encoder = model.eval().encoder
    layers: list[Any] = list(encoder.layers)
    first, later = layers[0], layers[1:]
    path = ("plain",) if encoder.has_attention else ()

    def value(rows: Tensor) -> Tensor:
        h = first.gather(rows, graphs[0], *path)
        for layer, graph in zip(later, graphs[1:], strict=True):
            h = layer.gather(layer.lift(h.relu()), graph, *path)
        return model.classify(h, plain=True)[0] @ of

    with torch.no_grad():
        rows = first.lift(features)
        lifts = first.lift(torch.eye(features.shape[1]))  # the linear map itself, [d, b]
        ends = float(value(rows)), float(value(torch.zeros_like(rows)))
    for steps in STEPS:
        total = torch.zeros_like(rows, dtype=torch.float64)
        for step in range(steps):
            at = (rows * ((step + 0.5) / steps)).requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(value(at), at)
            total += gradient / steps
        missing = ends[0] - ends[1] - float((total * rows).sum())
        if abs(missing) <= MISSING * (abs(ends[0]) + abs(ends[1])):
            break
    return Integrated(total, lifts.double(), *ends)
