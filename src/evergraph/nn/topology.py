"""What edges mean to a network without attention (TWP's form of it)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.nn.model import NodeClassifier
from evergraph.nn.ops import Ends, spread
from evergraph.nn.products import project
from evergraph.nn.propagation import PropagationStack
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features


def edge_scores(model: NodeClassifier, x: Features, graph: Adjacency) -> list[Tensor]:
    r"""Computes :math:`e_{ij} = (W h_i)^\top \tanh(W h_j)` of every edge, ``[E]`` per layer.

    :math:`j` is the source and :math:`i` the target; :math:`h` is what the layer reads, without
    dropout, and :math:`W` what it multiplies neighbours by. Memory grows with edges × channels.
    """
    encoder = model.encoder
    assert isinstance(encoder, PropagationStack)
    sources, targets = Ends.sources(graph), Ends.targets(graph)
    scores, h = [], x
    for depth, layer in enumerate(encoder.layers):
        if depth > 0:
            assert isinstance(h, Tensor)
            h = functional.relu(h)
        assert isinstance(layer.weight, Tensor)
        wh = project(h, layer.weight)
        scores.append((spread(wh, targets) * spread(torch.tanh(wh), sources)).sum(dim=1))
        h = layer(h, graph)
    return scores
