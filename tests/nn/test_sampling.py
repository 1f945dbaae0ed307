"""Neighbour sampling: exact when nothing is left out, uniform when something is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.nn import ModelConfig, NodeClassifier
from evergraph.nn.receptive_field import sample_field, sample_neighbours
from evergraph.stream import Adjacency
from support import adjacency, seeded

STAR = adjacency(8, [(0, i) for i in range(1, 7)] + [(1, 2)])  # node 7 is alone

graphs = st.integers(1, 9).flatmap(
    lambda n: st.builds(
        adjacency,
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3 * n),
    )
)


def neighbours_of(graph: Adjacency, node: int) -> set[int]:
    return set(graph.src[graph.indptr[node] : graph.indptr[node + 1]].tolist())


@given(graphs, st.integers(1, 4), st.integers(0, 99))
def test_sample_neighbours_draws_distinct_neighbours(graph, fanout, seed):
    nodes = torch.randperm(graph.num_nodes, generator=seeded(seed))
    owner, neighbour = sample_neighbours(graph, nodes, fanout, seeded(seed + 1))
    assert owner.tolist() == sorted(owner.tolist())
    for row, node in enumerate(nodes.tolist()):
        drawn = neighbour[owner == row].tolist()
        known = neighbours_of(graph, node)
        assert len(drawn) == len(set(drawn)) == min(fanout, len(known))
        assert set(drawn) <= known


def test_sample_neighbours_is_uniform():
    generator = seeded(3)
    hub = torch.zeros(6000, dtype=torch.int64)
    _, neighbour = sample_neighbours(STAR, hub, 2, generator)
    counts = torch.bincount(neighbour, minlength=8)
    assert counts[[0, 7]].tolist() == [0, 0]
    # Each of six is drawn with probability 1/3; a standard deviation is 36.5.
    assert (counts[1:7] - 2000).abs().max() < 4 * 36.5


IDS = torch.arange(STAR.num_nodes)[:, None]  # features that tell which nodes were drawn


def test_sample_field_by_hand():
    field = sample_field(IDS, STAR, torch.tensor([2, 7, 2]), 1, fanout=10, generator=seeded())
    assert field.features[:, 0].tolist() == [2, 7, 0, 1]  # 2 hears 0 and 1
    assert field.rows.tolist() == [0, 1, 0]
    graph = field.graphs
    pairs = {(int(a), int(b)) for a, b in zip(graph.src, graph.dst, strict=True)}
    assert pairs == {(2, 0), (3, 0)}
    assert not graph.symmetric
    assert graph.whole_degree.tolist() == [2, 0, 6, 2]


@pytest.mark.parametrize(
    ("backbone", "path"), [("gat", "plain"), ("gat", "fused"), ("gcn", "auto"), ("sage", "auto")]
)
@given(graphs, st.integers(0, 99))
def test_sample_without_omissions_gives_what_the_whole_graph_gives(backbone, path, graph, seed):
    config = ModelConfig(backbone=backbone, channels=3, heads=2, dropout=0.0, attention=path)
    model = NodeClassifier(config, 4, 3, seeded(seed))
    x = torch.randn(graph.num_nodes, 4, generator=seeded(seed + 1))
    wanted = torch.randint(graph.num_nodes, (3,), generator=seeded(seed + 2))
    field = sample_field(x, graph, wanted, 2, fanout=graph.num_nodes, generator=seeded())
    results = []
    for output in (
        model(x, graph, wanted),
        model(field.features, field.graphs, field.rows),
    ):
        model.zero_grad()
        (output.logits**2).sum().backward()
        results.append([output.logits.detach(), *(p.grad.clone() for p in model.parameters())])
    for whole, part in zip(*results, strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-4, atol=1e-5)


def test_sample_field_is_the_same_for_the_same_generator():
    def draw(seed):
        wanted = torch.tensor([0, 1])
        return sample_field(IDS, STAR, wanted, 2, fanout=2, generator=seeded(seed))

    first, second = draw(4), draw(4)
    assert torch.equal(first.features, second.features)
    assert torch.equal(first.graphs.src, second.graphs.src)
    assert len({tuple(draw(seed).features[:, 0].tolist()) for seed in range(9)}) > 1
