"""Score propagation, unary term, mean field: by hand, by plain loops, by solving again."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.closed_form import propagation as module
from evergraph.closed_form.features import EmbeddingRows
from evergraph.closed_form.propagation import (
    affinity,
    coefficients,
    mean_field,
    propagate,
    unary_terms,
)
from support import adjacency, seeded

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 0), (2, 5)]


def slow_affinity(q: list[list[float]], edges: list[tuple[int, int]]) -> list[list[float]]:
    k = len(q[0])
    sure = [[p * p / sum(other * other for other in row) for p in row] for row in q]
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
    assert affinity(sure, graph).tolist() == [[1, 1], [1, 1]]
    apart = adjacency(4, [(0, 2), (0, 3), (1, 2)])
    # Every edge joins the two classes: twice as often as by chance, and never inside.
    expected = torch.tensor([[0.02, 2.02], [2.02, 0.02]]).double() / 1.02
    torch.testing.assert_close(affinity(sure, apart), expected)


@pytest.mark.parametrize("edges", [[], [(0, 1)]], ids=["no edge", "no edge of a class"])
def test_affinity_says_nothing_of_classes_without_edges(edges):
    sure = torch.tensor([[1, 0], [1, 0], [0, 1]], dtype=torch.float64)
    assert affinity(sure, adjacency(3, edges)).tolist() == [[1, 1], [1, 1]]


def test_mean_field_is_the_step_of_its_definition():
    own = torch.randn(7, 3, generator=seeded(), dtype=torch.float64)
    first = torch.randn(7, 3, generator=seeded(1), dtype=torch.float64).softmax(dim=1)
    found = mean_field(own, first, adjacency(7, EDGES))
    q = first.tolist()
    for _ in range(module.MEAN_FIELD_STEPS):
        likely = slow_affinity(q, EDGES)
        logits = own.tolist()
        for a, b in [*EDGES, *((b, a) for a, b in EDGES)]:  # b to a
            for c in range(3):
                logits[a][c] += math.log(sum(q[b][d] * likely[d][c] for d in range(3)))
        totals = [sum(math.exp(value) for value in row) for row in logits]
        q = [
            [math.exp(value) / total for value in row]
            for row, total in zip(logits, totals, strict=True)
        ]
    torch.testing.assert_close(found.exp(), torch.tensor(q).double(), rtol=0, atol=1e-5)


def test_mean_field_leaves_a_node_without_neighbours_to_its_features():
    own = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0]], dtype=torch.float64)
    first = torch.full((3, 2), 0.5, dtype=torch.float64)
    found = mean_field(own, first, adjacency(3, [(0, 1)]))
    torch.testing.assert_close(found[2], own[2].log_softmax(dim=0))


def test_neighbours_may_be_of_another_class_as_a_rule():
    # A path whose classes alternate; the features of the node in the middle say nothing.
    graph = adjacency(7, [(node, node + 1) for node in range(6)])
    own = torch.tensor([[4.0, 0.0], [0.0, 4.0]] * 3 + [[4.0, 0.0]], dtype=torch.float64)
    own[3] = 0
    found = mean_field(own, own.softmax(dim=1), graph)
    assert found.argmax(dim=1).tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert float(found[3, 1].exp()) > 0.9


@pytest.mark.parametrize("teleport", [1.0, 0.65, 0.1])
def test_propagate_is_the_step_of_its_definition(teleport):
    graph = adjacency(7, EDGES)
    scores = torch.randn(7, 3, generator=seeded(), dtype=torch.float64)
    mean = torch.eye(7, dtype=torch.float64)
    mean[graph.dst, graph.src] = 1
    mean /= mean.sum(dim=1, keepdim=True)
    expected = scores
    for _ in range(5):
        expected = teleport * scores + (1 - teleport) * mean @ expected
    torch.testing.assert_close(propagate(scores, graph, teleport), expected, rtol=0, atol=1e-6)


def test_coefficients_halve():
    assert coefficients(0.5) == [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125]
    assert coefficients(1.0) == [1, 0, 0, 0, 0, 0]
    assert sum(coefficients(0.1)) == pytest.approx(1)


def regressed(x: torch.Tensor, q: torch.Tensor, count: int) -> torch.Tensor:
    """Ridge regression of some nodes' probabilities, each of ``count`` nodes weighing the same."""
    left = x.t() @ x / count + module.UNARY_STRENGTH * torch.eye(x.shape[1])
    return torch.linalg.solve(left, x.t() @ q / count)


@pytest.mark.parametrize("columns", [3, 30], ids=["tall", "wide"])
def test_unary_term_is_regression_on_all_other_nodes(columns):
    features = EmbeddingRows(torch.randn(12, columns, generator=seeded(), dtype=torch.float64))
    x = features.unit
    q = torch.rand(12, 4, generator=seeded(1), dtype=torch.float64).softmax(dim=1)
    unary = unary_terms([q], features)[0]
    for node in range(12):
        rest = torch.arange(12) != node
        torch.testing.assert_close(unary[node], x[node] @ regressed(x[rest], q[rest], 12))


def test_unary_term_is_regressed_on_some_nodes_when_there_are_many(monkeypatch):
    monkeypatch.setattr(module, "UNARY_NODES", 4)
    features = EmbeddingRows(torch.randn(10, 3, generator=seeded(), dtype=torch.float64))
    x = features.unit
    q = torch.rand(10, 2, generator=seeded(1), dtype=torch.float64)
    some, others = torch.tensor([0, 3, 6, 9]), torch.tensor([1, 2, 4, 5, 7, 8])
    unary = unary_terms([q], features)[0]
    torch.testing.assert_close(unary[others], (x @ regressed(x[some], q[some], 4))[others])
    without_first = x[0] @ regressed(x[some[1:]], q[some[1:]], 4)
    torch.testing.assert_close(unary[0], without_first)
