"""Structure inference: worked by hand, then against a loop over nodes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.stream import Adjacency
from evergraph.structure import StructureConfig, nearest_nodes, refine, unique_pairs
from evergraph.validation import parse
from support import adjacency, seeded

Pairs = set[tuple[int, int]]


def undirected(graph: Adjacency) -> Pairs:
    """The edges once each, after checking that both directions are there."""
    directed = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert len(directed) == graph.num_edges
    assert directed == {(b, a) for a, b in directed}
    assert all(a != b for a, b in directed)
    return {(a, b) for a, b in directed if a < b}


def as_pairs(table: torch.Tensor) -> Pairs:
    pairs = list(zip(*table.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert all(a < b for a, b in pairs)
    return set(pairs)


def run(graph: Adjacency, nodes, candidates, z, **fields):
    table = None if candidates is None else torch.tensor(candidates, dtype=torch.int64)
    return refine(graph, torch.tensor(nodes, dtype=torch.int64), table, z, config(**fields))


def config(**fields) -> StructureConfig:
    return StructureConfig(**fields)


# Scores with node 0: 1 has cosine 0.6, so 0.8; 2 has 0.9; 3 has 0.5; 4 has 0; 5 has 1.
# Between 2 and 3 the score is 0.8 too.
Z = torch.tensor([[1.0, 0], [3, 4], [4, 3], [0, 1], [-1, 0], [2, 0]])
EDGES = {(0, 1), (0, 3), (2, 3), (4, 5)}
GRAPH = adjacency(6, EDGES)


# Worked by hand


def test_refine_adds_the_best_and_deletes_the_worst():
    graph, change = run(GRAPH, [0], [[1, 2, 4, 5]], Z, num_neighbors=2, tau=0.8)
    assert as_pairs(change.added) == {(0, 2), (0, 5)}
    assert as_pairs(change.deleted) == {(0, 1), (0, 3)}  # 0.8 does not surpass 0.8
    # 2-3 also scores 0.8, but neither end is replayed.
    assert undirected(graph) == {(0, 2), (0, 5), (2, 3), (4, 5)}
    assert change.summary() == {"refined_nodes": 1, "added_edges": 2, "deleted_edges": 2}


def test_refine_threshold_is_inclusive():
    for tau, deleted in ((0.79, {(0, 3)}), (0.8, {(0, 1), (0, 3)}), (0.5, {(0, 3)}), (0.49, set())):
        _, change = run(GRAPH, [0], [[2]], Z, num_neighbors=0, tau=tau)
        assert as_pairs(change.deleted) == deleted


def test_refine_deletes_by_score_not_by_cosine():
    # The cosine of 0-1 is 0.6 and would fall below 0.7; its score is 0.8.
    _, change = run(GRAPH, [0], [[2]], Z, num_neighbors=0, tau=0.7)
    assert as_pairs(change.deleted) == {(0, 3)}


def test_refine_never_counts_a_neighbour_among_the_added():
    # 1 scores best but is a neighbour already: the one addition goes to 4, bad as it is.
    graph, change = run(GRAPH, [0], [[1, 4]], Z, num_neighbors=1, tau=0.0)
    assert as_pairs(change.added) == {(0, 4)}
    assert undirected(graph) == EDGES | {(0, 4)}
    # And when all candidates are neighbours, nothing is added.
    _, change = run(GRAPH, [0], [[1, 3]], Z, num_neighbors=2, tau=0.0)
    assert change.added.shape == (2, 0)


def test_refine_among_any_candidates_counts_neighbours_towards_n():
    # As printed: 5 scores best, then 2, then the neighbour 1, which is there already.
    for count, added in (
        (2, {(0, 2), (0, 5)}),
        (3, {(0, 2), (0, 5)}),
        (4, {(0, 2), (0, 4), (0, 5)}),
    ):
        graph, change = run(
            GRAPH, [0], [[1, 2, 4, 5]], Z, num_neighbors=count, tau=0.0, add_among="any"
        )
        assert as_pairs(change.added) == added
        assert undirected(graph) == EDGES | added
    # A neighbour among the best is deleted all the same where its score does not surpass τ.
    _, change = run(GRAPH, [0], [[1]], Z, num_neighbors=1, tau=0.8, add_among="any")
    assert as_pairs(change.deleted) == {(0, 1), (0, 3)}
    assert change.added.shape == (2, 0)


def test_refine_does_not_delete_what_it_added():
    # 0-4 scores zero and stays; a deleted neighbour is not added back either.
    graph, change = run(GRAPH, [0], [[1, 4]], Z, num_neighbors=2, tau=0.99)
    assert as_pairs(change.added) == {(0, 4)}
    assert as_pairs(change.deleted) == {(0, 1), (0, 3)}
    assert undirected(graph) == {(0, 4), (2, 3), (4, 5)}


def test_refine_counts_a_pair_of_replayed_nodes_once():
    # 0 and 5 are alike and choose each other; 4-5 scores zero.
    graph, change = run(GRAPH, [0, 5], [[5, 2], [0, 2]], Z, num_neighbors=1, tau=0.5)
    assert as_pairs(change.added) == {(0, 5)}
    assert as_pairs(change.deleted) == {(0, 3), (4, 5)}
    assert undirected(graph) == {(0, 1), (0, 5), (2, 3)}
    assert change.num_refined == 2
    # An edge between two replayed nodes is deleted once.
    _, change = run(GRAPH, [4, 5], [[0], [0]], Z, num_neighbors=0, tau=0.5)
    assert as_pairs(change.deleted) == {(4, 5)}


def test_refine_addition_by_threshold():
    # Above 0.8: 2 and 5, not 4; 1 and 3 are neighbours. N plays no part.
    _, change = run(GRAPH, [0], None, Z, addition="threshold", num_neighbors=1, tau=0.8)
    assert as_pairs(change.added) == {(0, 2), (0, 5)}
    # Node 1 scores 0.8 with 0 and 5: 0 is a neighbour and 5 does not surpass.
    _, change = run(GRAPH, [1], None, Z, addition="threshold", tau=0.8)
    assert as_pairs(change.added) == {(1, 2), (1, 3)}  # scores 0.98 and 0.9


def test_refine_addition_of_the_nearest():
    # Candidates come nearest first: 4 before 5, whatever they score; 3 is a neighbour.
    _, change = run(GRAPH, [0], [[3, 4, 5, 2]], Z, addition="nearest", num_neighbors=2, tau=0.0)
    assert as_pairs(change.added) == {(0, 4), (0, 5)}
    _, change = run(GRAPH, [0], [[3, 4, 5, 2]], Z, num_neighbors=2, tau=0.0)
    assert as_pairs(change.added) == {(0, 2), (0, 5)}
    with pytest.raises(InputError, match=r"Expected 'addition'.*got 'nearest'"):
        parse(StructureConfig, {"addition": "nearest", "candidates": "entire"})


def test_refine_deletion_of_the_lowest():
    star = adjacency(6, [(0, j) for j in range(1, 6)])
    # From the worst: 4, 3, 1, 2, 5. N counts what is dropped, τ plays no part.
    for count, deleted in enumerate([set(), {4}, {4, 3}, {4, 3, 1}, {4, 3, 1, 2}]):
        _, change = run(
            star, [0], [[1, 2, 3, 4, 5]], Z, deletion="lowest", num_neighbors=count, tau=0.99
        )
        assert as_pairs(change.deleted) == {(0, j) for j in deleted}
        assert change.added.shape == (2, 0)


def test_refine_deletion_of_the_lowest_counts_per_node():
    # 0 drops 3 (of 1 and 3); 2 has only 3; 4 has only 5.
    _, change = run(GRAPH, [4, 0, 2], [[1], [2], [0]], Z, deletion="lowest", num_neighbors=1)
    assert as_pairs(change.deleted) == {(0, 3), (2, 3), (4, 5)}


def test_refine_among_all_nodes():
    _, change = run(GRAPH, [0], None, Z, num_neighbors=1, tau=0.0)
    assert as_pairs(change.added) == {(0, 5)}
    _, change = run(GRAPH, [0], None, Z, num_neighbors=50, tau=0.0)
    assert as_pairs(change.added) == {(0, 2), (0, 4), (0, 5)}  # everyone but itself


def test_refine_extremes_of_tau():
    """Scores are kept inside (0, 1): τ = 0 deletes nothing, τ = 1 everything."""
    star = adjacency(6, [(0, j) for j in range(1, 6)])
    lonely, change = run(star, [0], [[1]], Z, num_neighbors=0, tau=1.0)
    assert lonely.num_edges == 0
    assert change.deleted.shape == (2, 5)
    same, _ = run(star, [0], [[1]], Z, num_neighbors=0, tau=0.0)
    assert undirected(same) == undirected(star)
    bare = adjacency(6, [])
    full, _ = run(bare, [0], None, Z, addition="threshold", tau=0.0)
    assert undirected(full) == undirected(star)
    none, _ = run(bare, [0], None, Z, addition="threshold", tau=1.0)
    assert none.num_edges == 0


def test_refine_of_nothing():
    for candidates in (torch.empty(0, 3, dtype=torch.int64), None):
        graph, change = refine(GRAPH, torch.empty(0, dtype=torch.int64), candidates, Z, config())
        assert undirected(graph) == EDGES
        assert change.added.shape == change.deleted.shape == (2, 0)
        assert change.summary() == {"refined_nodes": 0, "added_edges": 0, "deleted_edges": 0}


def test_refine_without_candidates_still_deletes():
    nodes, none = torch.tensor([0]), torch.empty(1, 0, dtype=torch.int64)
    _, change = refine(GRAPH, nodes, none, Z, config(tau=0.8))
    assert change.added.shape == (2, 0)
    assert as_pairs(change.deleted) == {(0, 1), (0, 3)}


def test_refine_leaves_its_inputs_untouched():
    graph, z = adjacency(6, EDGES), Z.clone()
    nodes, candidates = torch.tensor([0, 5]), torch.tensor([[1, 2, 4], [0, 2, 3]])
    watched = (graph.src, graph.dst, graph.indptr, z, nodes, candidates)
    before = [tensor.clone() for tensor in watched]
    first, _ = refine(graph, nodes, candidates, z, config(num_neighbors=2))
    assert all(torch.equal(a, b) for a, b in zip(before, watched, strict=True))
    assert undirected(graph) == EDGES
    again, _ = refine(graph, nodes, candidates, z, config(num_neighbors=2))
    assert torch.equal(first.keys, again.keys)


def test_unique_pairs():
    pairs = torch.tensor([[3, 1, 2, 1], [1, 3, 0, 2]])
    assert unique_pairs(pairs).tolist() == [[0, 1, 1], [2, 2, 3]]
    assert unique_pairs(pairs[:, :0]).shape == (2, 0)


def test_structure_config_takes_no_more_neighbours_than_candidates():
    with pytest.raises(InputError, match="'num_neighbors' of at most 'num_candidates', 3"):
        parse(StructureConfig, {"num_neighbors": 4, "num_candidates": 3})
    allowed = {"num_neighbors": 4, "num_candidates": 3, "candidates": "entire"}
    assert parse(StructureConfig, allowed).num_neighbors == 4


# Against a loop


def naive_refine(
    *,
    n: int,
    edges: Pairs,
    nodes: list[int],
    candidates: list[list[int]] | None,
    z: list[list[float]],
    settings: StructureConfig,
) -> tuple[Pairs, Pairs]:
    """What is added and what is deleted, one replayed node at a time."""

    def s(i: int, j: int) -> float:
        dot = sum(a * b for a, b in zip(z[i], z[j], strict=True))
        cosine = dot / (math.hypot(*z[i]) * math.hypot(*z[j]))
        return min(max((cosine + 1) / 2, 1e-6), 1 - 1e-6)

    added: Pairs = set()
    deleted: Pairs = set()
    for row, i in enumerate(nodes):
        neighbours = [j for j in range(n) if (min(i, j), max(i, j)) in edges]
        options = range(n) if candidates is None else candidates[row]
        free = [j for j in options if j != i and j not in neighbours]
        if settings.addition == "top":
            new = sorted(free, key=lambda j: -s(i, j))[: settings.num_neighbors]
        else:
            new = [j for j in free if s(i, j) > settings.tau]
        if settings.deletion == "threshold":
            old = [j for j in neighbours if s(i, j) <= settings.tau]
        else:
            old = sorted(neighbours, key=lambda j: s(i, j))[: settings.num_neighbors]
        added |= {(min(i, j), max(i, j)) for j in new}
        deleted |= {(min(i, j), max(i, j)) for j in old}
    return added, deleted


@settings(max_examples=120)
@given(
    n=st.integers(1, 14),
    density=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    count=st.sampled_from([1, 3, 20]),
    source=st.sampled_from(["nearest", "random", "entire"]),
    addition=st.sampled_from(["top", "threshold"]),
    deletion=st.sampled_from(["threshold", "lowest"]),
    tau=st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]),
    num_neighbors=st.integers(0, 5),
    seed=st.integers(0, 10_000),
)
def test_refine_equals_loop(
    *, n, density, share, count, source, addition, deletion, tau, num_neighbors, seed
):
    generator = seeded(seed)
    possible = torch.combinations(torch.arange(n), 2).reshape(-1, 2)
    chosen = possible[torch.rand(possible.shape[0], generator=generator) < density]
    edges = {(a, b) for a, b in chosen.tolist()}
    nodes = torch.randperm(n, generator=generator)[: round(share * n)]
    z = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    if source == "entire":
        table = None
    elif source == "nearest":
        table = nearest_nodes(torch.randn(n, 2, generator=generator), nodes, count)
    else:  # in any order, the node itself included
        rows = [torch.randperm(n, generator=generator)[:count] for _ in nodes]
        table = torch.stack(rows) if rows else torch.empty(0, min(count, n), dtype=torch.int64)
    fields = config(
        addition=addition,
        deletion=deletion,
        tau=tau,
        num_neighbors=num_neighbors,
        candidates="entire" if source == "entire" else "nearest",
    )
    graph = adjacency(n, edges)
    edited, change = refine(graph, nodes, table, z, fields)
    listed = None if table is None else table.tolist()
    added, deleted = naive_refine(
        n=n,
        edges=edges,
        nodes=nodes.tolist(),
        candidates=listed,
        z=z.tolist(),
        settings=fields,
    )
    assert as_pairs(change.added) == added
    assert as_pairs(change.deleted) == deleted
    assert undirected(edited) == (edges - deleted) | added
    assert undirected(graph) == edges
    assert not added & edges
    assert change.num_refined == nodes.numel()


@pytest.mark.parametrize("entries", [1, 100, 1000])
@pytest.mark.parametrize("source", ["nearest", "entire"])
@pytest.mark.parametrize("addition", ["top", "threshold"])
def test_refine_does_not_depend_on_blocks(monkeypatch, entries, source, addition):
    z = torch.randn(30, 4, generator=seeded(1))
    pairs = torch.randint(30, (50, 2), generator=seeded(2)).tolist()
    graph, nodes = adjacency(30, pairs), torch.arange(0, 30, 2)
    table = nearest_nodes(z, nodes, 9) if source == "nearest" else None
    fields = config(addition=addition, tau=0.7)
    expected, _ = refine(graph, nodes, table, z, fields)
    monkeypatch.setattr("evergraph.structure.BLOCK_ENTRIES", entries)
    assert torch.equal(refine(graph, nodes, table, z, fields)[0].keys, expected.keys)


def test_refine_adds_exactly_n_among_ties():
    graph, _ = run(adjacency(8, []), [0], None, torch.ones(8, 2), num_neighbors=3, tau=0.5)
    assert graph.degree[0] == 3
