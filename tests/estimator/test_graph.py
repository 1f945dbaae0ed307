"""GrowingGraph against sets and dictionaries, over random lives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import to_sparse
from evergraph.errors import InputError
from evergraph.estimator import graph as graphs
from evergraph.estimator.graph import GrowingGraph
from evergraph.estimator.state import Edits
from evergraph.stream import Features
from support import adjacency


class Naive:
    """The same graph as a dictionary of features and a set of pairs."""

    def __init__(self) -> None:
        self.x: dict[int, list[float]] = {}
        self.edges: set[frozenset[int]] = set()

    def remove(self, gone: set[int]) -> None:
        self.x = {name: row for name, row in self.x.items() if name not in gone}
        self.edges = {pair for pair in self.edges if not pair & gone}


def as_naive(graph: GrowingGraph) -> tuple[dict[int, list[float]], set[frozenset[int]]]:
    x = graph.features if isinstance(graph.features, torch.Tensor) else graph.features.dense()
    names = [int(name) for name in graph.names.take()]
    pairs = torch.stack([graph.adjacency.src, graph.adjacency.dst]).T.tolist()
    return (
        dict(zip(names, x.tolist(), strict=True)),
        {frozenset((names[a], names[b])) for a, b in pairs},
    )


def tensor(rows: list[list[float]], sparse: bool) -> Features:
    x = torch.tensor(rows).reshape(-1, 2)
    return to_sparse(x) if sparse else x


@pytest.mark.parametrize("few_edges", [0, graphs.FEW_EDGES])
@settings(max_examples=40)
@given(st.data(), st.booleans())
def test_random_lives_agree_with_sets(few_edges: int, data: st.DataObject, sparse: bool):
    graphs.FEW_EDGES = few_edges
    graph, naive, fresh = GrowingGraph.empty(), Naive(), 0
    lives: list[tuple[GrowingGraph, Any]] = []
    value = st.integers(0, 3).map(float)
    for _ in range(data.draw(st.integers(1, 8))):
        known = sorted(naive.x)
        kind = data.draw(st.sampled_from(["nodes", "edges", "features", "remove", "cut"]))
        if kind == "nodes" or not known:
            rows = data.draw(st.lists(st.tuples(value, value).map(list), min_size=1, max_size=4))
            names = list(range(fresh, fresh + len(rows)))
            fresh += len(rows)
            naive.x |= dict(zip(names, rows, strict=True))
            graph = graph.with_nodes(names, tensor(rows, sparse))
        elif kind == "edges":
            pair = st.tuples(st.sampled_from(known), st.sampled_from(known))
            pairs = data.draw(st.lists(pair, max_size=6))
            naive.edges |= {frozenset(pair) for pair in pairs if pair[0] != pair[1]}
            ends = [graph.find([pair[side] for pair in pairs], "edges") for side in (0, 1)]
            graph = graph.with_edges(torch.stack(ends))
        elif kind == "features":
            names = data.draw(st.lists(st.sampled_from(known), unique=True))
            rows = [data.draw(st.tuples(value, value).map(list)) for _ in names]
            naive.x |= dict(zip(names, rows, strict=True))
            graph = graph.with_features(graph.find(names, "ids"), tensor(rows, sparse))
        elif kind == "remove":
            names = data.draw(st.lists(st.sampled_from(known), unique=True))
            naive.remove(set(names))
            graph, new_rows = graph.without_nodes(graph.find(names, "ids"))
            assert int((new_rows >= 0).sum()) == graph.num_nodes
        elif naive.edges:
            pairs = data.draw(st.lists(st.sampled_from(sorted(map(sorted, naive.edges)))))
            naive.edges -= {frozenset(pair) for pair in pairs}
            ends = [graph.find([pair[side] for pair in pairs], "edges") for side in (0, 1)]
            graph = graph.without_edges(torch.stack(ends))
        assert as_naive(graph) == (naive.x, naive.edges)
        degree = graph.adjacency.degree
        assert torch.equal(degree.cumsum(0), graph.adjacency.indptr[1:])
        assert torch.equal(degree, graph.degree)
        lives.append((graph, as_naive(graph)))
    for graph, before in lives:  # what came later changed none of them
        assert as_naive(graph) == before
        names = graph.names.take()
        assert graph.names.where(names).tolist() == list(range(len(names)))
        assert graph.names.where([fresh]).tolist() == [-1]


def test_changes_leave_the_graph_before_them_alone():
    first = GrowingGraph.empty().with_nodes(["a", "b"], torch.eye(2))
    second = first.with_features(torch.tensor([0]), torch.zeros(1, 2))
    third = second.with_edges(torch.tensor([[0], [1]]))
    assert first.features.tolist() == [[1, 0], [0, 1]]
    assert second.adjacency.num_edges == 0
    assert third.adjacency.num_edges == 2
    with pytest.raises(InputError, match="'b' – 'a' in row 1"):
        second.without_edges(torch.tensor([[1], [0]]))


def test_rows_are_stored_as_the_first_are():
    x, y = torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 0.0]])
    for first in (x, to_sparse(x)):
        for second in (y, to_sparse(y)):
            both = GrowingGraph.empty().with_nodes([0], first).with_nodes([1], second).features
            assert type(both) is type(first)
            dense = both if isinstance(both, torch.Tensor) else both.dense()
            assert dense.tolist() == [[0, 2], [3, 0]]


def test_two_futures_of_one_graph_do_not_meet():
    graph = GrowingGraph.empty().with_nodes(["a", "b", "c"], torch.eye(3))
    graph = graph.with_edges(torch.tensor([[0], [1]]))
    first = graph.with_nodes(["d"], torch.ones(1, 3)).with_edges(torch.tensor([[3], [0]]))
    second = graph.with_nodes(["e", "d"], torch.zeros(2, 3)).with_edges(torch.tensor([[4], [1]]))
    assert first.names.where(["d", "e"]).tolist() == [3, -1]
    assert second.names.where(["d", "e"]).tolist() == [4, 3]
    assert first.features[3].tolist() == [1, 1, 1]
    assert first.adjacency.keys.tolist() != second.adjacency.keys.tolist()
    for future, around in ((first, [0, 1, 3]), (second, [0, 1]), (graph, [0, 1])):
        assert future.neighbourhood(torch.tensor([0]), 1).nodes.tolist() == around


def test_nodes_beside_come_with_few_neighbours_and_those_that_are_there():
    hub = [(1, leaf) for leaf in range(2, 22)]
    graph = GrowingGraph.empty().with_nodes(range(30), torch.eye(30))
    graph = graph.with_edges(torch.tensor([*hub, (0, 2), (0, 3), (0, 4), (22, 23)]).T)
    part = graph.neighbourhood(torch.tensor([0]), 2, torch.tensor([1, 22]), links=True)
    near, nodes = part.adjacency, part.nodes
    pairs = set(zip(nodes[near.src].tolist(), nodes[near.dst].tolist(), strict=True))
    assert {(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (22, 23)} <= pairs
    assert {(b, a) for a, b in pairs} == pairs
    assert 5 <= len(pairs & set(hub)) <= 8
    assert near.whole_degree[nodes == 1].item() == 20
    assert torch.equal(part.features, torch.eye(30)[nodes])


def test_edits_are_what_differs_and_follow_removals():
    before = adjacency(4, [(0, 1), (1, 2)])
    after = adjacency(4, [(1, 2), (2, 3), (0, 3)])
    edits = Edits.between(before, after)
    assert edits.added.T.tolist() == [[0, 3], [2, 3]]
    assert edits.deleted.T.tolist() == [[0, 1]]
    assert torch.equal(edits.apply(before).keys, after.keys)
    moved = edits.renumbered(torch.tensor([-1, 0, 1, 2]))  # node 0 is gone
    assert moved.added.T.tolist() == [[1, 2]]
    assert moved.deleted.numel() == 0
    assert Edits().apply(before) is before
