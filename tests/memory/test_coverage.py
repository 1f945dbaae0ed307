"""Coverage-based diversity: worked by hand, then against the method's words in Python."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.kernels.ops import distance_blocks, mean_pairwise_distance
from evergraph.memory import SELECTORS, SelectionPool
from evergraph.memory.coverage import CoverageDiversity, coverage_diversity
from evergraph.stream import Adjacency

H = torch.tensor([[0.0], [1.0], [2.0], [10.0]])  # mean distance 31/6 = 5.17, radius 1.55


def line(*points: float) -> torch.Tensor:
    return torch.tensor(points, dtype=torch.float32)[:, None]


def naive_coverage(points: list[list[float]], budget: int, r: float) -> list[int]:
    """Section 2 of the method, word for word, with sets."""
    m = len(points)
    everyone = set(range(m))
    apart = [math.dist(points[i], points[j]) for i in range(m) for j in range(m) if i != j]
    d = r * sum(apart) / len(apart) if apart else 0.0
    cover = [{j for j in everyone if math.dist(points[i], points[j]) < d} | {i} for i in everyone]
    picked: list[int] = []
    while len(picked) < budget:
        covered, candidates = set(picked), everyone - set(picked)
        while candidates and len(picked) < budget:
            best = max(sorted(candidates), key=lambda i: len(cover[i] - covered))
            picked.append(best)
            covered |= cover[best]
            candidates -= cover[best]
    return picked


def on_the_boundary(points: list[list[float]], r: float) -> bool:
    """Whether a distance is so near to the radius that rounding decides."""
    apart = [math.dist(a, b) for i, a in enumerate(points) for b in points[:i]]
    if not apart:
        return False
    d = r * sum(apart) / len(apart)
    return any(abs(x - d) <= 1e-5 * max(d, 1e-3) for x in apart)


# Worked by hand


def test_coverage_diversity_takes_hub_then_outlier():
    assert coverage_diversity(H, budget=2, r=0.3).tolist() == [1, 3]


def test_coverage_diversity_begins_a_second_round():
    # 1 and 3 cover all four. Then 0 and 2 would each cover one more: the lowest first.
    assert coverage_diversity(H, budget=4, r=0.3).tolist() == [1, 3, 0, 2]


def test_coverage_diversity_ties_go_to_the_lowest_row():
    # Two pairs; distances 1, 10, 11, 9, 10, 1 have mean 7, radius 1.4: every cover has two.
    assert coverage_diversity(line(0, 1, 10, 11), budget=4, r=0.2).tolist() == [0, 2, 1, 3]
    assert coverage_diversity(line(10, 0, 11, 1), budget=4, r=0.2).tolist() == [0, 1, 2, 3]


def test_coverage_diversity_whole_cover_leaves_the_candidates():
    # Mean 16/10, radius 1.28: covers {0,1,2}, {0,1,2}, {0,1,2,3}, {2,3,4}, {3,4}. After 2, both
    # 3 and 4 would cover one more, and 3 is lower, but 3 left with the cover of 2.
    h = line(0, 0, 1, 2, 3)
    assert coverage_diversity(h, budget=2, r=0.8).tolist() == [2, 4]
    # Round two, with 2 and 4 covered: 0 covers {0, 1}. Round three has only 1 left.
    assert coverage_diversity(h, budget=5, r=0.8).tolist() == [2, 4, 0, 3, 1]


def test_coverage_diversity_counts_only_what_is_not_covered_yet():
    # Sum of distances of 0..6 and 20: 56 + 119 = 175, over 28 pairs 6.25; r = 0.2: 1.25, so
    # covers are next neighbours. 1 covers {0,1,2}; then 4 gains {3,4,5} but 3 only {3,4}.
    h = line(0, 1, 2, 3, 4, 5, 6, 20)
    assert coverage_diversity(h, budget=4, r=0.2).tolist() == [1, 4, 6, 7]


def test_coverage_diversity_radius_is_strict():
    # Mean distance (3 + 6 + 3) / 3 = 4. At r = 0.75 the radius is 3 and neighbours stay out.
    assert coverage_diversity(line(0, 3, 6), budget=3, r=0.75).tolist() == [0, 1, 2]
    assert coverage_diversity(line(0, 3, 6), budget=3, r=0.76).tolist() == [1, 0, 2]


def test_coverage_diversity_of_radius_zero_takes_rows_in_order():
    assert coverage_diversity(H, budget=3, r=0.0).tolist() == [0, 1, 2]


def test_coverage_diversity_of_a_radius_over_all_takes_rows_in_order():
    # Every node covers everything, so each round has one pick.
    assert coverage_diversity(H, budget=4, r=100.0).tolist() == [0, 1, 2, 3]


def test_coverage_diversity_of_duplicates():
    # All alike: the mean distance, and so the radius, is zero.
    assert coverage_diversity(torch.ones(4, 3), budget=3, r=0.5).tolist() == [0, 1, 2]
    # Mean (0 + 6 · 9) / 10 = 5.4, radius 2.7: the triple first, then the pair.
    assert coverage_diversity(line(9, 9, 0, 0, 0), budget=3, r=0.5).tolist() == [2, 0, 3]


def test_coverage_diversity_of_one_node():
    assert coverage_diversity(line(5), budget=1, r=0.3).tolist() == [0]
    assert coverage_diversity(line(5), budget=0, r=0.3).tolist() == []


def test_coverage_diversity_of_no_budget():
    none = coverage_diversity(H, budget=0, r=0.3)
    assert none.dtype == torch.int64
    assert none.shape == (0,)


def test_mean_pairwise_distance_by_hand():
    assert float(mean_pairwise_distance(H)) == pytest.approx(31 / 6)
    assert float(mean_pairwise_distance(line(3))) == 0
    # A triangle of sides 3, 4 and 5.
    assert float(mean_pairwise_distance(torch.tensor([[0.0, 0], [3, 0], [0, 4]]))) == 4


# Against the naive version


def random_case(rng: random.Random, kind: str) -> tuple[list[list[float]], int, float]:
    """Points, a budget and a radius, none of them decided by rounding."""
    while True:
        m, d = rng.randint(1, 25), rng.randint(1, 4)
        if kind == "grid":  # few places, many ties and duplicates
            points = [[float(rng.randint(0, 3)) for _ in range(d)] for _ in range(m)]
        elif kind == "clusters":
            centres = [[rng.gauss(0, 5) for _ in range(d)] for _ in range(3)]
            points = [[x + rng.gauss(0, 1) for x in rng.choice(centres)] for _ in range(m)]
        else:
            points = [[rng.gauss(0, 1) for _ in range(d)] for _ in range(m)]
        points = torch.tensor(points, dtype=torch.float32).tolist()  # what both will read
        r = rng.choice([0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.3, rng.random()])
        if r == 0 or not on_the_boundary(points, r):
            return points, rng.randint(0, m), r


@pytest.mark.parametrize(("kind", "cases"), [("grid", 100), ("clusters", 50), ("normal", 50)])
def test_coverage_diversity_equals_naive(kind, cases):
    rng = random.Random(f"coverage-{kind}")
    for _ in range(cases):
        points, budget, r = random_case(rng, kind)
        picks = coverage_diversity(torch.tensor(points), budget, r)
        assert picks.tolist() == naive_coverage(points, budget, r), (points, budget, r)


embeddings = st.integers(1, 12).flatmap(
    lambda m: st.integers(1, 3).flatmap(
        lambda d: st.lists(
            st.lists(st.integers(-3, 3).map(float), min_size=d, max_size=d), min_size=m, max_size=m
        )
    )
)


@given(embeddings, st.floats(0, 2), st.data())
def test_coverage_diversity_smaller_budget_is_a_prefix(points, r, data):
    h = torch.tensor(points)
    whole = coverage_diversity(h, len(points), r).tolist()
    assert sorted(whole) == list(range(len(points)))  # a permutation
    budget = data.draw(st.integers(0, len(points)))
    assert coverage_diversity(h, budget, r).tolist() == whole[:budget]


@settings(max_examples=20)
@given(embeddings, st.floats(0.01, 2), st.integers(-3, 3))
def test_coverage_diversity_does_not_depend_on_place(points, r, shift):
    h = torch.tensor(points)
    whole = coverage_diversity(h, len(points), r)
    # Whole numbers, so that distances stay the same bit for bit.
    assert torch.equal(coverage_diversity(h + shift, len(points), r), whole)
    assert torch.equal(coverage_diversity(4 * h, len(points), r), whole)


# Blocks


@pytest.mark.parametrize("entries", [1, 30, 45, 100, 10_000])
def test_coverage_diversity_does_not_depend_on_blocks(monkeypatch, entries):
    h = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    expected = coverage_diversity(h, 30, 0.4)
    mean = mean_pairwise_distance(h)
    monkeypatch.setattr("evergraph.kernels.ops.BLOCK_ENTRIES", entries)
    assert torch.equal(coverage_diversity(h, 30, 0.4), expected)
    torch.testing.assert_close(mean_pairwise_distance(h), mean)


@pytest.mark.parametrize(("entries", "sizes"), [(1, [1] * 7), (14, [2, 2, 2, 1]), (1000, [7])])
def test_distance_blocks_are_bounded_and_exact(monkeypatch, entries, sizes):
    monkeypatch.setattr("evergraph.kernels.ops.BLOCK_ENTRIES", entries)
    h = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    blocks = list(distance_blocks(h, h))
    assert [block.shape for _, block in blocks] == [(size, 7) for size in sizes]
    assert [begin for begin, _ in blocks] == [sum(sizes[:i]) for i in range(len(sizes))]
    whole = torch.cat([block for _, block in blocks])
    assert torch.equal(whole, whole.T)
    assert whole.diagonal().tolist() == [0] * 7
    oracle = [[math.dist(a, b) for b in h.tolist()] for a in h.tolist()]
    torch.testing.assert_close(whole, torch.tensor(oracle))


def test_distances_are_exact_far_from_the_origin():
    # The expansion |a|² + |b|² − 2ab loses these entirely in float32.
    h = 10_000 + torch.arange(40, dtype=torch.float32)[:, None] / 8
    whole = torch.cat([block for _, block in distance_blocks(h, h)])
    assert torch.equal(whole, (h - h.T).abs())


# The selector


def test_coverage_selector_returns_ids_of_its_class():
    labels = torch.tensor([0, 1, 0, 0, 1, 0])
    h = line(0, 50, 1, 2, 60, 10)  # class 0 holds H
    nodes = torch.tensor([3, 5, 8, 11, 12, 20])
    graph = Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), 21)
    pool = SelectionPool(nodes, labels, h, torch.zeros(21, 1), graph, torch.Generator())
    selector = SELECTORS["cd"].make(0.3)
    assert selector == CoverageDiversity(0.3)
    assert selector.rank(pool, 0, 4).tolist() == [8, 20, 3, 11]
    assert selector.rank(pool, 0, 2).tolist() == [8, 20]
    assert selector.rank(pool, 1, 2).tolist() == [5, 12]


def test_core_is_covered_before_the_rest_comes_by_distance():
    # The mean of 0, 1, 2, 3, 10, 20 is 6: the core is 10, 3, 2, then come 1, 0 and 20.
    nodes, labels = torch.tensor([4, 5, 6, 7, 8, 9]), torch.zeros(6, dtype=torch.int64)
    h, graph = line(0, 1, 2, 3, 10, 20), Adjacency.from_edges(torch.empty(2, 0).long(), 10)
    pool = SelectionPool(nodes, labels, h, torch.zeros(10, 1), graph, torch.Generator())
    selector = SELECTORS["cd-core"].make(0.3)
    # Of 2, 3 and 10 the mean distance is 16 / 3, the radius 1.6: 2 covers 3, then comes 10.
    assert selector.rank(pool, 0, 2).tolist() == [6, 8]
    assert selector.rank(pool, 0, 6).tolist() == [6, 8, 7, 5, 4, 9]
