"""Neighbour sampling: exact when nothing is left out, uniform when something is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.nn import ModelConfig, build_model
from evergraph.nn.sampling import sample_block, sample_neighbours
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


def test_sample_block_by_hand():
    block = sample_block(STAR, torch.tensor([2, 7, 2]), 10, 1, seeded())
    assert block.nodes.tolist() == [2, 7, 0, 1]  # 2 hears 0 and 1
    assert block.rows.tolist() == [0, 1, 0]
    pairs = {
        (int(a), int(b)) for a, b in zip(block.adjacency.src, block.adjacency.dst, strict=True)
    }
    assert pairs == {(2, 0), (3, 0)}
    assert not block.adjacency.symmetric
    assert block.adjacency.whole_degree.tolist() == [2, 0, 6, 2]


@pytest.mark.parametrize(
    ("backbone", "path"), [("gat", "plain"), ("gat", "fused"), ("gcn", "auto"), ("sage", "auto")]
)
@given(graphs, st.integers(0, 99))
def test_block_without_omissions_gives_what_the_whole_graph_gives(backbone, path, graph, seed):
    config = ModelConfig(backbone=backbone, channels=3, heads=2, dropout=0.0, attention=path)
    model = build_model(config, 4, 3, seeded(seed))
    x = torch.randn(graph.num_nodes, 4, generator=seeded(seed + 1))
    wanted = torch.randint(graph.num_nodes, (3,), generator=seeded(seed + 2))
    block = sample_block(graph, wanted, graph.num_nodes, 2, seeded())
    results = []
    for output in (
        model(x, graph, wanted),
        model(x[block.nodes], block.adjacency, block.rows),
    ):
        model.zero_grad()
        (output.logits**2).sum().backward()
        results.append([output.logits.detach(), *(p.grad.clone() for p in model.parameters())])
    for whole, part in zip(*results, strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-4, atol=1e-5)


def test_sample_block_is_the_same_for_the_same_generator():
    first, second = (sample_block(STAR, torch.tensor([0, 1]), 2, 2, seeded(4)) for _ in range(2))
    assert torch.equal(first.nodes, second.nodes)
    assert torch.equal(first.adjacency.src, second.adjacency.src)
    others = [sample_block(STAR, torch.tensor([0, 1]), 2, 2, seeded(k)).nodes for k in range(9)]
    assert len({tuple(nodes.tolist()) for nodes in others}) > 1
