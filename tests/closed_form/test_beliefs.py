"""Beliefs: affinity and a step by hand, then by plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.closed_form import affinity, exchange, neighbours
from evergraph.closed_form import beliefs as module
from support import adjacency, seeded

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 0), (2, 5)]


def slow_affinity(beliefs: list[list[float]], edges: list[tuple[int, int]]) -> list[list[float]]:
    k = len(beliefs[0])
    sure = [[p * p / sum(q * q for q in row) for p in row] for row in beliefs]
    joined = [[0.0] * k for _ in range(k)]
    for a, b in edges:
        for c in range(k):
            for d in range(k):
                joined[c][d] += sure[a][c] * sure[b][d] + sure[b][c] * sure[a][d]
    ends = [sum(row) for row in joined]
    return [
        [(joined[c][d] * sum(ends) / (ends[c] * ends[d]) + 0.02) / 1.02 for d in range(k)]
        for c in range(k)
    ]


def test_affinity_of_sure_nodes_counts_edges():
    # 0 and 1 are of one class, 2 and 3 of another; one edge inside each, two between.
    graph = adjacency(4, [(0, 1), (2, 3), (0, 2), (1, 3)])
    sure = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=torch.float64)
    assert affinity(sure, neighbours(graph)).tolist() == [[1, 1], [1, 1]]
    apart = adjacency(4, [(0, 2), (0, 3), (1, 2)])
    # Every edge joins the two classes: twice as often as by chance, and never inside.
    expected = torch.tensor([[0.02, 2.02], [2.02, 0.02]]).double() / 1.02
    torch.testing.assert_close(affinity(sure, neighbours(apart)), expected)


@pytest.mark.parametrize("edges", [[], [(0, 1)]], ids=["no edge", "no edge of a class"])
def test_affinity_says_nothing_of_classes_without_edges(edges):
    sure = torch.tensor([[1, 0], [1, 0], [0, 1]], dtype=torch.float64)
    assert affinity(sure, neighbours(adjacency(3, edges))).tolist() == [[1, 1], [1, 1]]


def test_exchange_is_the_step_of_its_definition():
    own = torch.randn(7, 3, generator=seeded(), dtype=torch.float64)
    first = torch.randn(7, 3, generator=seeded(1), dtype=torch.float64).softmax(dim=1)
    found = exchange(own, first, neighbours(adjacency(7, EDGES)))
    beliefs = first.tolist()
    for _ in range(module.STEPS):
        likely = slow_affinity(beliefs, EDGES)
        logits = own.tolist()
        for a, b in [*EDGES, *((b, a) for a, b in EDGES)]:  # a hears b
            for c in range(3):
                logits[a][c] += math.log(sum(beliefs[b][d] * likely[d][c] for d in range(3)))
        totals = [sum(math.exp(value) for value in row) for row in logits]
        beliefs = [
            [math.exp(value) / total for value in row]
            for row, total in zip(logits, totals, strict=True)
        ]
    torch.testing.assert_close(found.exp(), torch.tensor(beliefs).double(), rtol=0, atol=1e-5)


def test_exchange_leaves_a_node_without_neighbours_to_its_features():
    own = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0]], dtype=torch.float64)
    first = torch.full((3, 2), 0.5, dtype=torch.float64)
    found = exchange(own, first, neighbours(adjacency(3, [(0, 1)])))
    torch.testing.assert_close(found[2], own[2].log_softmax(dim=0))


def test_neighbours_may_be_of_another_class_as_a_rule():
    # A path whose classes alternate; the features of the node in the middle say nothing.
    graph = adjacency(7, [(node, node + 1) for node in range(6)])
    own = torch.tensor([[4.0, 0.0], [0.0, 4.0]] * 3 + [[4.0, 0.0]], dtype=torch.float64)
    own[3] = 0
    found = exchange(own, own.softmax(dim=1), neighbours(graph))
    assert found.argmax(dim=1).tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert float(found[3, 1].exp()) > 0.9
