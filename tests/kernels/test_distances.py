"""Distances and covers: the CUDA kernels, interpreted where there is no GPU, and both searches."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evergraph.kernels import ops as distances
from evergraph.kernels.ops import count_within, mean_pairwise_distance
from evergraph.memory.coverage import coverage_diversity
from evergraph.structure import nearest_nodes
from support import seeded

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Tiles are made small for the interpreter; a GPU gets as many of them as large as they are.
SCALE = 16 if torch.cuda.is_available() else 1


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed)).to(DEVICE)


def grid(m: int, d: int, seed: int = 0) -> torch.Tensor:
    """Whole numbers, whose squared distances every order of adding gets exactly right."""
    return torch.randint(0, 4, (m, d), generator=seeded(seed)).float().to(DEVICE)


def by_torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


@pytest.fixture
def kernels(monkeypatch):
    """The Triton kernels, in small tiles so that a few rows make several."""
    pytest.importorskip("triton", reason="needs Triton")
    from evergraph.kernels import cuda

    if DEVICE == "cpu":
        monkeypatch.setattr(cuda, "LANES", 4)
        monkeypatch.setattr(cuda, "EACH", 2)
        monkeypatch.setattr(cuda, "SIDE", 8)
        monkeypatch.setattr(cuda, "PROGRAMS", 6)
    return cuda


@pytest.fixture
def through_kernels(kernels, monkeypatch):
    monkeypatch.setattr(distances, "_kernels", lambda h: kernels)


# Kernels


@pytest.mark.parametrize("sizes", [(1, 19), (4, 8), (19, 9), (8, 1)])
@pytest.mark.parametrize("d", [1, 4, 6])
def test_kernel_distances_equal_torch(kernels, sizes, d):
    n_a, n_b = (SCALE * size for size in sizes)
    a, b = randn(n_a, d), randn(n_b, d, seed=1)
    torch.testing.assert_close(kernels.distances(a, b), by_torch(a, b))
    a, b = grid(n_a, d), grid(n_b, d, seed=1)
    assert torch.equal(kernels.distances(a, b), by_torch(a, b))


def test_kernel_distances_have_the_same_bits_everywhere(kernels):
    h = randn(21 * SCALE, 5)
    whole = kernels.distances(h, h)
    assert torch.equal(whole, whole.T)
    assert whole.diagonal().eq(0).all()
    assert torch.equal(kernels.distances(h[3:5], h), whole[3:5])  # few rows: another tile
    assert torch.equal(kernels.distances(h[2:], h[7:9]), whole[2:, 7:9])
    # At a radius that is one of the distances, counts show the last bit.
    for radius in whole[0, 1:4]:
        assert torch.equal(kernels.reduce_distances(h, h, radius), (whole < radius).sum(dim=0))


@pytest.mark.parametrize("sizes", [(1, 19), (19, 3), (33, 9)])
def test_kernel_counts_and_sums_equal_torch(kernels, sizes):
    a, b = grid(SCALE * sizes[0], 3), grid(SCALE * sizes[1], 3, seed=1)
    expected = by_torch(a, b)
    for radius in (0.0, 1.0, 2.0, 2.5):
        scalar = torch.tensor(radius, dtype=torch.float64, device=DEVICE)
        found = kernels.reduce_distances(a, b, scalar)
        assert found.tolist() == (expected < radius).sum(dim=0).tolist()
    sums = kernels.reduce_distances(a, b)
    assert sums.dtype == torch.float64
    torch.testing.assert_close(sums, expected.double().sum(dim=0))


def test_kernels_of_nothing(kernels):
    none, some, radius = randn(0, 3), randn(2, 3), torch.ones((), device=DEVICE)
    assert kernels.distances(none, some).shape == (0, 2)
    assert kernels.distances(some, none).shape == (2, 0)
    assert kernels.reduce_distances(none, some, radius).tolist() == [0, 0]
    assert kernels.reduce_distances(some, none, radius).tolist() == []
    assert kernels.reduce_distances(none, some).tolist() == [0, 0]


def test_kernels_share_out_every_block_once(kernels):
    for n_a in (1, 8, 9, 100, 1000):
        for n_b in (1, 8, 30, 300):
            parts, span = kernels._spans(torch.empty(n_a, 1), torch.empty(n_b, 1))
            blocks = -(-n_a // kernels.SIDE)
            assert (parts - 1) * span < blocks <= parts * span


@pytest.mark.parametrize("entries", [1, 1 << 24])
def test_coverage_diversity_through_kernels_equals_torch(monkeypatch, kernels, entries):
    cases = [(grid(17, 2, seed=seed), 0.2 + 0.3 * seed) for seed in range(3)]
    expected = [coverage_diversity(h.cpu(), 17, r).tolist() for h, r in cases]
    monkeypatch.setattr(distances, "_kernels", lambda h: kernels)
    monkeypatch.setattr(distances, "BLOCK_ENTRIES", entries)
    assert [coverage_diversity(h, 17, r).tolist() for h, r in cases] == expected


@pytest.mark.usefixtures("through_kernels")
def test_nearest_nodes_through_kernels():
    line = torch.tensor([[0.0], [1.0], [3.0], [7.0], [15.0]], device=DEVICE)
    nodes = torch.tensor([2, 0, 4], device=DEVICE)
    assert nearest_nodes(line, nodes, 3).tolist() == [[1, 0, 3], [1, 2, 3], [3, 2, 1]]


# Both searches


points = st.integers(1, 14).flatmap(
    lambda m: st.integers(1, 3).flatmap(
        lambda d: st.lists(
            st.lists(st.integers(-2, 2).map(float), min_size=d, max_size=d), min_size=m, max_size=m
        )
    )
)


@given(points, st.one_of(st.floats(0, 2), st.sampled_from([0.25, 0.5, 0.75, 1.0])))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_computed_covers_equal_stored_ones_on_a_grid(monkeypatch, rows, r):
    h = torch.tensor(rows)
    with monkeypatch.context() as patch:
        stored = coverage_diversity(h, len(rows), r)
        patch.setattr(distances, "BLOCK_ENTRIES", 0)
        assert torch.equal(coverage_diversity(h, len(rows), r), stored)


@pytest.mark.parametrize("scale", [1.0, 1e-21, 1e-24, 3e18, 1e20])
def test_computed_covers_equal_stored_ones_at_any_scale(monkeypatch, scale):
    """Also where squares underflow or overflow, and triangles no longer close."""
    rng = random.Random("scale")
    for seed in range(10):
        h = scale * randn(60, 3, seed=seed) * (1 + 9 * (randn(60, 1, seed=seed + 50) > 1))
        r = rng.choice([0.01, 0.1, 0.3, 0.6, 1.0])
        with monkeypatch.context() as patch:
            stored = coverage_diversity(h, 60, r)
            patch.setattr(distances, "BLOCK_ENTRIES", 500)
            assert torch.equal(coverage_diversity(h, 60, r), stored)


def test_counts_and_mean_equal_the_whole_matrix(monkeypatch):
    h = grid(23, 3)
    whole = by_torch(h, h)
    radius = torch.tensor(2.0, dtype=torch.float64, device=DEVICE)
    for entries in (1, 40, 100, 10_000):
        monkeypatch.setattr(distances, "BLOCK_ENTRIES", entries)
        assert torch.equal(count_within(h, h, radius), (whole < 2).sum(dim=0))
        assert torch.equal(count_within(h[:5], h, radius), (whole[:5] < 2).sum(dim=0))
        torch.testing.assert_close(
            mean_pairwise_distance(h), whole.double().sum() / (23 * 22), check_dtype=False
        )


def test_computed_covers_hold_no_more_than_a_block(monkeypatch):
    """A budget of so many distances a row is kept, however the class grows."""
    largest = []
    compute = distances._distances

    def watched(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        largest.append(a.shape[0] * b.shape[0])
        return compute(a, b)

    monkeypatch.setattr(distances, "_distances", watched)
    for m in (50, 100, 200):
        monkeypatch.setattr(distances, "BLOCK_ENTRIES", 10 * m)
        largest.clear()
        coverage_diversity(randn(m, 2), 20, 0.3)
        assert max(largest) <= 10 * m


def test_computed_covers_look_only_within_reach(monkeypatch):
    """What one pick covers cannot matter to candidates more than two radii away."""
    asked = []
    count = distances.count_within

    def watched(a: torch.Tensor, b: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
        asked.append((a.flatten().tolist(), b.flatten().tolist()))
        return count(a, b, radius)

    monkeypatch.setattr(distances, "count_within", watched)
    monkeypatch.setattr(distances, "BLOCK_ENTRIES", 0)
    # Sum of distances 0..6 and 20 is 175 over 28 pairs: mean 6.25, radius 1.25, reach 2.5.
    h = torch.tensor([[0.0], [1], [2], [3], [4], [5], [6], [20]])
    assert coverage_diversity(h, 4, 0.2).tolist() == [1, 4, 6, 7]
    everyone = h.flatten().tolist()  # once, for what each of them covers
    assert asked == [(everyone, everyone), ([0, 1, 2], [3]), ([3, 4, 5], [6])]
