"""Adjacency against a Python set of pairs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from evergraph.stream import Adjacency

Pairs = set[tuple[int, int]]


def tensor(pairs) -> torch.Tensor:
    return torch.tensor(list(pairs), dtype=torch.int64).reshape(-1, 2).T


def both_ways(pairs) -> Pairs:
    return {(a, b) for a, b in pairs if a != b} | {(b, a) for a, b in pairs if a != b}


def adjacency(n: int, pairs) -> Adjacency:
    return Adjacency.from_edges(tensor(sorted(both_ways(pairs))), n)


def edge_set(graph: Adjacency) -> Pairs:
    return set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def check(graph: Adjacency, n: int, expected: Pairs) -> None:
    """Compares with the oracle and checks every array's order."""
    pairs = list(zip(graph.dst.tolist(), graph.src.tolist(), strict=True))
    assert pairs == sorted((dst, src) for src, dst in expected)
    assert (graph.num_nodes, graph.num_edges) == (n, len(expected))
    arriving = [[s for s, d in sorted(expected) if d == node] for node in range(n)]
    leaving = [[d for s, d in sorted(expected) if s == node] for node in range(n)]
    assert graph.degree.tolist() == [len(neighbours) for neighbours in arriving]
    assert graph.indptr.numel() == graph.source_indptr.numel() == n + 1
    for node in range(n):
        assert graph.src[graph.indptr[node] : graph.indptr[node + 1]].tolist() == arriving[node]
        mine = graph.by_source[graph.source_indptr[node] : graph.source_indptr[node + 1]]
        assert graph.src[mine].tolist() == [node] * len(leaving[node])
        assert graph.dst[mine].tolist() == leaving[node]


def snapshot(graph: Adjacency) -> list[list[int]]:
    return [getattr(graph, name).tolist() for name in ("src", "dst", "indptr")]


@st.composite
def graphs(draw, max_nodes: int = 8) -> tuple[int, list[tuple[int, int]]]:
    """A node count and undirected pairs: often empty, often with isolated nodes or a hub."""
    n = draw(st.integers(1, max_nodes))
    node = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=3 * n))
    if draw(st.booleans()):
        hub = draw(node)
        pairs += [(hub, other) for other in range(n)]
    return n, pairs


HUB = (6, [(3, other) for other in range(6)])
LONE = (1, [])
EMPTY = (4, [])


# By hand: the path 0-1-2 and an isolated node 3.

PATH = adjacency(4, [(0, 1), (1, 2)])


def test_from_edges_by_hand():
    assert PATH.src.tolist() == [1, 0, 2, 1]
    assert PATH.dst.tolist() == [0, 1, 1, 2]
    assert PATH.indptr.tolist() == [0, 1, 3, 4, 4]
    assert PATH.keys.tolist() == [1, 4, 6, 9]  # dst * 4 + src
    assert PATH.degree.tolist() == [1, 2, 1, 0]


def test_by_source_by_hand():
    # Positions of 0→1, 1→0, 1→2, 2→1.
    assert PATH.by_source.tolist() == [1, 0, 3, 2]
    assert PATH.source_indptr.tolist() == [0, 1, 3, 4, 4]


def test_edges_into_by_hand():
    owner, neighbour = PATH.edges_into(torch.tensor([1, 3, 0]))
    assert owner.tolist() == [0, 0, 2]
    assert neighbour.tolist() == [0, 2, 1]


def test_edit_by_hand():
    edited = PATH.edit(add=torch.tensor([[3], [0]]), remove=torch.tensor([[2], [1]]))
    assert edge_set(edited) == {(0, 1), (1, 0), (0, 3), (3, 0)}
    assert edge_set(PATH) == {(0, 1), (1, 0), (1, 2), (2, 1)}


def test_edit_pair_in_both_lists_ends_up_present():
    pair = torch.tensor([[0], [1]])
    assert edge_set(PATH.edit(add=pair, remove=pair.flip(0))) == edge_set(PATH)


def test_edit_ignores_loops_and_what_is_there_or_missing_already():
    edited = PATH.edit(
        add=torch.tensor([[0, 2, 3], [1, 2, 3]]), remove=torch.tensor([[0, 3], [3, 2]])
    )
    assert snapshot(edited) == snapshot(PATH)


def test_edit_of_nothing_is_the_same_graph():
    nothing = tensor([])
    assert snapshot(PATH.edit(nothing, nothing)) == snapshot(PATH)


def test_edit_can_empty_and_refill():
    nothing = tensor([])
    emptied = PATH.edit(nothing, tensor([(0, 1), (1, 2)]))
    assert emptied.num_edges == 0
    assert emptied.indptr.tolist() == [0] * 5
    check(emptied.edit(tensor([(2, 3)]), nothing), 4, {(2, 3), (3, 2)})


def test_with_self_loops_by_hand():
    looped = PATH.with_self_loops
    assert looped.src.tolist() == [0, 1, 0, 1, 2, 1, 2, 3]
    assert looped.dst.tolist() == [0, 0, 1, 1, 1, 2, 2, 3]
    assert edge_set(PATH) == {(0, 1), (1, 0), (1, 2), (2, 1)}


def test_with_self_loops_twice_is_once():
    assert snapshot(PATH.with_self_loops.with_self_loops) == snapshot(PATH.with_self_loops)


def test_has_edges_broadcasts():
    nodes = torch.arange(4)
    matrix = PATH.has_edges(nodes[None, :], nodes[:, None])  # [dst, src]
    assert matrix.shape == (4, 4)
    assert matrix.nonzero().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_has_edges_of_an_empty_graph_broadcasts():
    nodes = torch.arange(3)
    found = adjacency(3, []).has_edges(nodes[None, :], nodes[:, None])
    assert found.shape == (3, 3)
    assert found.dtype == torch.bool
    assert not found.any()


def test_adjacency_fields_cannot_be_set():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PATH.num_nodes = 5


def test_to_the_same_device_is_the_same_object():
    assert PATH.to("cpu") is PATH


# Against the oracle.


@example(HUB)
@example(LONE)
@example(EMPTY)
@given(graphs())
def test_from_edges_equals_the_set(graph):
    n, pairs = graph
    check(adjacency(n, pairs), n, both_ways(pairs))


@given(graphs(), st.randoms(use_true_random=False))
def test_from_edges_does_not_depend_on_the_order_of_edges(graph, random):
    n, pairs = graph
    edges = sorted(both_ways(pairs))
    random.shuffle(edges)
    assert snapshot(Adjacency.from_edges(tensor(edges), n)) == snapshot(adjacency(n, pairs))


@example(HUB)
@example(LONE)
@example(EMPTY)
@given(graphs())
def test_has_edges_equals_the_set(graph):
    n, pairs = graph
    expected = both_ways(pairs)
    nodes = torch.arange(n)
    found = adjacency(n, pairs).has_edges(nodes[:, None], nodes[None, :])
    assert found.tolist() == [[(a, b) in expected for b in range(n)] for a in range(n)]


@example(HUB, [3, 0, 3])
@example(LONE, [0])
@example(EMPTY, [])
@given(graphs(), st.lists(st.integers(0, 7), max_size=10))
def test_edges_into_equals_the_set(graph, nodes):
    n, pairs = graph
    nodes = [node % n for node in nodes]  # repeats allowed
    owner, neighbour = adjacency(n, pairs).edges_into(torch.tensor(nodes, dtype=torch.int64))
    expected = [
        (position, src)
        for position, node in enumerate(nodes)
        for src, dst in sorted(both_ways(pairs))
        if dst == node
    ]
    assert list(zip(owner.tolist(), neighbour.tolist(), strict=True)) == expected


PAIRS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12)


@example(HUB, [(0, 1), (1, 0)], [(3, other) for other in range(6)])
@example(LONE, [(0, 0)], [(0, 0)])
@example(EMPTY, [(1, 2), (2, 1), (1, 2)], [(0, 3)])
@given(graphs(), PAIRS, PAIRS)
def test_edit_equals_the_set(graph, add, remove):
    n, pairs = graph
    add, remove = ([(a % n, b % n) for a, b in chosen] for chosen in (add, remove))
    original = adjacency(n, pairs)
    before = snapshot(original)
    edited = original.edit(tensor(add), tensor(remove))
    expected = (both_ways(pairs) - both_ways(remove)) | both_ways(add)
    check(edited, n, expected)
    assert {(b, a) for a, b in edge_set(edited)} == edge_set(edited)  # symmetric
    assert snapshot(original) == before
    check(original, n, both_ways(pairs))  # its cached orders too


@given(graphs(), PAIRS)
def test_edit_shares_no_memory_with_the_original(graph, add):
    n, pairs = graph
    original = adjacency(n, pairs)
    before = snapshot(original), original.keys.tolist()
    edited = original.edit(tensor([(a % n, b % n) for a, b in add]), tensor([]))
    for name in ("src", "dst", "indptr", "keys"):
        getattr(edited, name).fill_(-1)
    assert (snapshot(original), original.keys.tolist()) == before


@example(HUB)
@example(LONE)
@example(EMPTY)
@given(graphs())
def test_with_self_loops_equals_the_set(graph):
    n, pairs = graph
    original = adjacency(n, pairs)
    check(original.with_self_loops, n, both_ways(pairs) | {(node, node) for node in range(n)})
    check(original, n, both_ways(pairs))
