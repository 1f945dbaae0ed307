"""Edge scores of networks without attention, against one edge after another."""

from __future__ import annotations

import pytest
import torch

from evergraph.methods.twp import edge_scores
from evergraph.nn import ModelConfig
from evergraph.nn.model import NodeClassifier
from evergraph.nn.receptive_field import ReceptiveField
from support import adjacency, seeded

GRAPH = adjacency(5, [(0, 1), (1, 2), (2, 0), (3, 1)])  # node 4 has no edge


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_edge_scores_are_a_product_with_the_tanh_of_the_neighbour(backbone):
    config = ModelConfig(backbone=backbone, channels=2, heads=2)
    model = NodeClassifier(config, 3, 2, seeded()).eval()
    x = torch.randn(5, 3, generator=seeded(1))
    first, second = model.encoder.layers
    inputs = [x, torch.relu(first(x, GRAPH))]
    found = edge_scores(model, ReceptiveField(x, GRAPH, None))
    assert [scores.shape for scores in found] == [(8,), (8,)]
    for scores, h, layer in zip(found, inputs, (first, second), strict=True):
        for score, source, target in zip(scores, GRAPH.src, GRAPH.dst, strict=True):
            expected = (h[target] @ layer.weight) @ torch.tanh(h[source] @ layer.weight)
            torch.testing.assert_close(score, expected)
