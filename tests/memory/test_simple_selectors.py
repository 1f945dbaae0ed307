"""MF, random selection and CM."""

from __future__ import annotations

import dataclasses

import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.memory import SELECTORS, SelectionPool
from evergraph.memory.selectors import (
    CoverageMaximization,
    Importance,
    KMeansCenters,
    MeanFeature,
    Random,
)
from evergraph.stream import Adjacency, LabelledNodes
from evergraph.stream.features import Features, from_scipy_parts


def make_pool(nodes, labels, h, features: Features | None = None, seed: int = 0) -> SelectionPool:
    nodes = torch.tensor(nodes)
    n = int(nodes.max()) + 1
    return SelectionPool(
        nodes,
        torch.tensor(labels),
        torch.as_tensor(h, dtype=torch.float32),
        torch.zeros(n, 1) if features is None else features,
        Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), n),
        torch.Generator().manual_seed(seed),
    )


def sparse(x: torch.Tensor):
    matrix = scipy.sparse.csr_matrix(x.numpy())
    return from_scipy_parts(matrix.data, matrix.indices, matrix.indptr, x.shape[1])


def random_pool(seed: int, *, is_sparse: bool = False) -> SelectionPool:
    """Thirty training nodes of three classes among sixty."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(60, generator=generator)[:30].sort().values.tolist()
    labels = torch.randint(3, (30,), generator=generator).tolist()
    x = torch.rand(60, 7, generator=generator) * (torch.rand(60, 7, generator=generator) < 0.4)
    h = torch.randn(30, 4, generator=generator)
    return make_pool(nodes, labels, h, sparse(x) if is_sparse else x, seed)


# MF


def test_mean_feature_takes_the_nearest_to_the_mean():
    # Mean of 0, 4, 5, 11 is 5: distances 5, 1, 0, 6. The authors' code takes the farthest.
    pool = make_pool([2, 3, 7, 9], [0, 0, 0, 0], [[0], [4], [5], [11]])
    assert MeanFeature().rank(pool, 0, 4).tolist() == [7, 3, 2, 9]
    assert MeanFeature().rank(pool, 0, 1).tolist() == [7]


def test_mean_feature_means_over_the_class_alone():
    # Class 0: mean of 0, 1, 5 is 2, distances 2, 1, 3. Class 1 would pull it to 5.
    pool = make_pool([0, 1, 2, 3], [0, 0, 0, 1], [[0], [1], [5], [1000]])
    assert MeanFeature().rank(pool, 0, 3).tolist() == [1, 0, 2]


def test_mean_feature_ties_go_to_the_lowest_id():
    # Mean 0; four nodes at distance 1 and one at 0.
    h = [[1, 0], [0, -1], [0, 0], [-1, 0], [0, 1]]
    pool = make_pool([4, 6, 7, 9, 10], [0] * 5, h)
    assert MeanFeature().rank(pool, 0, 5).tolist() == [7, 4, 6, 9, 10]


def test_mean_feature_of_features_reads_rows_by_node_id():
    # The pool's own rows of h say the opposite, and rows 0 and 1 of the features are others'.
    features = torch.tensor([[50.0], [60.0], [0.0], [4.0], [5.0], [11.0]])
    pool = make_pool([2, 3, 4, 5], [0] * 4, [[5], [11], [0], [6]], features)
    assert MeanFeature(of_features=True).rank(pool, 0, 4).tolist() == [4, 3, 2, 5]


@given(st.integers(0, 200))
def test_mean_feature_equals_loop(seed):
    pool = random_pool(seed)
    assert isinstance(pool.features, torch.Tensor)
    for of_features in (False, True):
        for label in pool.labels.unique().tolist():
            rows = [i for i, y in enumerate(pool.labels.tolist()) if y == label]
            nodes = pool.nodes[rows].tolist()
            points = (pool.features[nodes] if of_features else pool.h[rows]).double()
            distance = (points - points.mean(dim=0)).norm(dim=1).tolist()
            expected = [node for _, node in sorted(zip(distance, nodes, strict=True))]
            chosen = MeanFeature(of_features).rank(pool, label, len(nodes))
            assert chosen.tolist() == expected


@given(st.integers(0, 200))
def test_mean_feature_sparse_equals_dense(seed):
    dense, rows = random_pool(seed), random_pool(seed, is_sparse=True)
    selector = MeanFeature(of_features=True)
    for label in dense.labels.unique().tolist():
        count = dense.rows_of(label).numel()
        assert torch.equal(selector.rank(dense, label, count), selector.rank(rows, label, count))


def test_mean_feature_sparse_with_empty_rows():
    # Mean (1, 2): squared distances 5, 5, 20, 10, 10; ties by id.
    x = torch.tensor([[0.0, 0.0], [2.0, 0.0], [3.0, 6.0], [0.0, 5.0], [0.0, -1.0]])
    pool = make_pool([0, 1, 2, 3, 4], [0] * 5, torch.zeros(5, 1), sparse(x))
    assert MeanFeature(of_features=True).rank(pool, 0, 5).tolist() == [0, 1, 3, 4, 2]


# Random


def test_random_returns_each_node_once():
    pool = random_pool(1)
    members = pool.nodes[pool.labels == 1].tolist()
    assert sorted(Random().rank(pool, 1, len(members)).tolist()) == members


@given(st.integers(0, 50), st.data())
def test_random_smaller_budget_is_a_prefix(seed, data):
    count = random_pool(seed).rows_of(0).numel()
    whole = Random().rank(random_pool(seed), 0, count)
    budget = data.draw(st.integers(0, count))
    assert torch.equal(Random().rank(random_pool(seed), 0, budget), whole[:budget])


def test_random_is_decided_by_the_generator_alone():
    nodes, labels, h = list(range(40)), [0] * 40, torch.zeros(40, 1)
    draws = []
    for seed, world in ((1, 10), (1, 20), (2, 10)):
        torch.manual_seed(world)
        draws.append(Random().rank(make_pool(nodes, labels, h, seed=seed), 0, 10).tolist())
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_random_is_uniform():
    nodes, labels, h = list(range(5)), [0] * 5, torch.zeros(5, 1)
    pool = make_pool(nodes, labels, h, seed=3)
    draws = [int(Random().rank(pool, 0, 1)) for _ in range(2000)]
    for node in range(5):  # expected 400, standard deviation 18
        assert abs(draws.count(node) - 400) < 90


# CM


def test_coverage_maximization_takes_the_fewest_foreign_first():
    # Embeddings 0, 1, 2, 4, 5, 9: mean distance 59/15 = 3.93, radius 1.97. Class 1 is at 2, 4
    # and 9: within reach of node 9 (at 5) is 4, of node 6 (at 1) is 2, of node 5 (at 0) none.
    pool = make_pool([5, 6, 7, 8, 9, 10], [0, 0, 1, 1, 0, 1], [[0], [1], [2], [4], [5], [9]])
    assert CoverageMaximization(0.5).rank(pool, 0, 3).tolist() == [5, 6, 9]
    # Radius 4.13: node 5 has two (2, 4), node 6 two (2, 4), node 9 all three.
    assert CoverageMaximization(1.05).rank(pool, 0, 3).tolist() == [5, 6, 9]
    # Class 1, radius 1.18: at 2 there is one (at 1), at 4 there is one (at 5), at 9 none.
    assert CoverageMaximization(0.3).rank(pool, 1, 3).tolist() == [10, 7, 8]
    assert CoverageMaximization(0.3).rank(pool, 1, 1).tolist() == [10]


def test_coverage_maximization_does_not_count_its_own_class():
    # Node 1 sits among its own; node 4 next to the only foreign one.
    pool = make_pool([1, 2, 3, 4, 5], [0, 0, 0, 0, 1], [[0], [0.1], [0.2], [8], [8.5]])
    assert CoverageMaximization(0.3).rank(pool, 0, 4).tolist() == [1, 2, 3, 4]


def test_coverage_maximization_counts_the_pool_alone():
    # Nodes of other tasks have features and are kept, but only the pool's embeddings count.
    pool = make_pool([0, 1, 2], [0, 0, 1], [[0], [1], [9]], torch.zeros(3, 1))
    kept = LabelledNodes(torch.tensor([3, 4]), torch.tensor([2, 2]))
    other = dataclasses.replace(pool, kept=kept, features=torch.zeros(5, 1))
    selector = CoverageMaximization(0.5)
    assert torch.equal(selector.rank(pool, 0, 2), selector.rank(other, 0, 2))


def test_coverage_maximization_of_a_single_class_falls_back_to_ids():
    pool = make_pool([3, 5, 8], [0, 0, 0], [[0], [7], [1]])
    assert CoverageMaximization(0.3).rank(pool, 0, 2).tolist() == [3, 5]


@given(st.integers(0, 200), st.sampled_from([0.0, 0.2, 0.6, 1.5]))
def test_coverage_maximization_equals_loop(seed, r):
    pool = random_pool(seed)
    distance = (pool.h[:, None].double() - pool.h[None].double()).norm(dim=2)
    radius = r * float(distance.sum()) / (30 * 29)
    for label in pool.labels.unique().tolist():
        foreign = {
            node: sum(distance[i, j] < radius for j in range(30) if int(pool.labels[j]) != label)
            for i, node in enumerate(pool.nodes.tolist())
            if int(pool.labels[i]) == label
        }
        expected = sorted(foreign, key=lambda node: (foreign[node], node))
        chosen = CoverageMaximization(r).rank(pool, label, len(expected))
        assert chosen.tolist() == expected


# Names


def test_selectors_by_name():
    assert SELECTORS["random"].make(0.3) == Random()
    assert SELECTORS["mf"].make(0.3) == MeanFeature()
    assert SELECTORS["cm"].make(0.4) == CoverageMaximization(0.4)
    assert SELECTORS["kmeans"].make(0.3) == KMeansCenters(5)
    assert SELECTORS["importance"].make(0.3) == Importance(1.0)
    assert SELECTORS["mf-feature"].make(0.3) == MeanFeature(of_features=True)
