"""Candidates: the nearest nodes, against sorted lists."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.nn import ModelConfig, NodeClassifier
from evergraph.stream import Protocol, TaskStream
from evergraph.structure import nearest_nodes

LINE = torch.tensor([[0.0], [1.0], [3.0], [7.0], [15.0]])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def naive_distances(h: torch.Tensor, node: int, pool: list[int]) -> list[tuple[float, int]]:
    points = h.double().tolist()
    return sorted((math.dist(points[node], points[j]), j) for j in pool if j != node)


def test_nearest_nodes_by_hand():
    found = nearest_nodes(LINE, torch.tensor([2, 0, 4]), 3)
    # From 3: at 2, 3, 4. From 0: 1, 3, 7. From 15: 8, 12, 14.
    assert found.tolist() == [[1, 0, 3], [1, 2, 3], [3, 2, 1]]


def test_nearest_nodes_never_finds_the_node_itself_even_among_duplicates():
    found = nearest_nodes(torch.ones(6, 3), torch.arange(6), 5)
    for node, row in enumerate(found.tolist()):
        assert sorted(row) == [other for other in range(6) if other != node]


@pytest.mark.parametrize("count", [4, 5, 50])
def test_nearest_nodes_count_is_capped_at_the_others(count):
    found = nearest_nodes(LINE, torch.tensor([1, 3]), count)
    assert found.tolist() == [[0, 2, 3, 4], [2, 1, 0, 4]]


def test_nearest_nodes_among_some():
    among = torch.tensor([4, 0, 3])
    assert nearest_nodes(LINE, torch.tensor([0, 3]), 2, among).tolist() == [[3, 4], [0, 4]]
    assert nearest_nodes(LINE, torch.tensor([1, 2]), 1, among).tolist() == [[0], [0]]
    assert nearest_nodes(LINE, torch.tensor([3]), 9, among).shape == (1, 2)


def test_nearest_nodes_among_none_of_the_nodes_finds_them_all():
    # Neither node is among the three, so each has three others.
    among = torch.tensor([0, 3, 4])
    assert nearest_nodes(LINE, torch.tensor([1, 2]), 3, among).tolist() == [[0, 3, 4], [0, 3, 4]]


@pytest.mark.parametrize(
    ("h", "nodes", "count", "among", "shape"),
    [
        (LINE, [], 3, None, (0, 0)),
        (LINE, [1, 2], 0, None, (2, 0)),
        (LINE[:1], [0], 3, None, (1, 0)),
        (LINE, [2], 3, [2], (1, 0)),
        (LINE, [2], 3, [], (1, 0)),
    ],
)
def test_nearest_nodes_of_nothing(h, nodes, count, among, shape):
    chosen = torch.tensor(nodes, dtype=torch.int64)
    pool = None if among is None else torch.tensor(among, dtype=torch.int64)
    found = nearest_nodes(h, chosen, count, pool)
    assert found.shape == shape
    assert found.dtype == torch.int64


@given(st.integers(2, 40), st.integers(1, 5), st.integers(1, 45), st.booleans(), st.integers(0, 99))
def test_nearest_nodes_equals_brute_force(n, d, count, some, seed):
    h = torch.randn(n, d, generator=seeded(seed))
    nodes = torch.randperm(n, generator=seeded(seed + 1))[: max(1, n // 2)]
    among = nodes[torch.randperm(nodes.numel(), generator=seeded(seed + 2))] if some else None
    found = nearest_nodes(h, nodes, count, among)
    pool = nodes.tolist() if some else list(range(n))
    assert found.shape == (nodes.numel(), min(count, len(pool) - 1))
    for node, row in zip(nodes.tolist(), found.tolist(), strict=True):
        expected = naive_distances(h, node, pool)[: len(row)]
        actual = [math.dist(h[node].double().tolist(), h[j].double().tolist()) for j in row]
        # By distance, so that near-ties may come either way round.
        assert actual == pytest.approx([distance for distance, _ in expected], abs=1e-3)
        assert len(set(row)) == len(row)
        assert node not in row
        assert set(row) <= set(pool)


def test_nearest_nodes_of_close_embeddings_are_exact():
    # Embeddings that have nearly collapsed: points 1/128 apart at 100, exact in float32.
    h = 100 + torch.arange(40, dtype=torch.float32)[:, None] / 128
    h = h.expand(-1, 16).contiguous()
    found = nearest_nodes(h, torch.arange(40), 2)
    for node in range(1, 39):
        assert set(found[node].tolist()) == {node - 1, node + 1}


@pytest.mark.parametrize("entries", [1, 30, 70, 10_000])
def test_nearest_nodes_does_not_depend_on_blocks(monkeypatch, entries):
    h = torch.randn(30, 4, generator=seeded(1))
    expected = nearest_nodes(h, torch.arange(0, 30, 2), 7)
    monkeypatch.setattr("evergraph.kernels.ops.BLOCK_ENTRIES", entries)
    assert torch.equal(nearest_nodes(h, torch.arange(0, 30, 2), 7), expected)


def test_nearest_nodes_are_never_of_a_later_task(make_graph):
    """Candidates at the end of task 1 come from its own embeddings, hence its own nodes."""
    stream = TaskStream(make_graph(60), Protocol())
    view = stream.view(0)
    model = NodeClassifier(ModelConfig(channels=4, heads=2), view.num_features, 2, seeded())
    with torch.no_grad():
        h = model(view.features, view.adjacency).h
    found = nearest_nodes(h, view.train_nodes[:5], 1000)
    assert found.shape == (5, stream.tasks[0].num_nodes - 1)
    assert found.max() < stream.tasks[0].num_nodes < stream.tasks[1].num_nodes
    assert (stream.labels[found] < view.num_classes).all()
