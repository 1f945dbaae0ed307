"""k-means selection: clear clusters by hand, turns of the centres, bits by seed."""

from __future__ import annotations

import pytest
import torch

from evergraph.memory import SelectionPool
from evergraph.memory.selectors import KMeansCenters, cluster_centers, take_turns
from evergraph.stream import Adjacency


def make_pool(h: list[list[float]], labels: list[int] | None = None, seed: int = 0):
    m = len(h)
    return SelectionPool(
        torch.arange(m) * 2 + 1,  # ids 1, 3, 5, ...
        torch.tensor(labels or [0] * m),
        torch.tensor(h),
        torch.zeros(2 * m, 1),
        Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), 2 * m),
        torch.Generator().manual_seed(seed),
    )


# Rows 0-3 have the mean 0.2, rows 4-6 the mean 10.1, row 7 is on its own.
CLEAR = [[0.0], [0.1], [0.3], [0.4], [10.0], [10.05], [10.25], [100.0]]


@pytest.mark.parametrize("seed", range(5))
def test_kmeans_takes_the_nearest_to_each_centre_in_turns(seed):
    # Largest cluster first: 0.2 gives row 1 (0.1 away, as far as row 2), 10.1 gives row 5 (0.05),
    # 100 gives row 7; then row 2, row 4 (0.1), and to 100 row 6 is the nearest of the others.
    pool = make_pool(CLEAR, seed=seed)
    chosen = KMeansCenters(3).rank(pool, 0, 8)
    rows = ((chosen - 1) // 2).tolist()
    assert rows[1:3] == [5, 7]
    assert {rows[0], rows[3]} == {1, 2}
    assert rows[4:6] == [4, 6]
    assert set(rows[6:]) == {0, 3}


def test_kmeans_clusters_one_class_alone():
    # Class 1 sits between: were it clustered too, one of two centres would go there.
    h, labels = [*CLEAR, [50.0], [50.1], [50.2]], [0] * 8 + [1] * 3
    pool = make_pool(h, labels)
    rows = ((KMeansCenters(3).rank(pool, 0, 3) - 1) // 2).tolist()
    assert rows[1:] == [5, 7]
    assert KMeansCenters(1).rank(pool, 1, 1).tolist() == [19]  # the middle one of class 1


def test_kmeans_of_few_distinct_nodes():
    pool = make_pool([[1.0], [1.0], [4.0], [1.0]])
    assert KMeansCenters(5).rank(pool, 0, 4).tolist() == [1, 5, 3, 7]
    assert KMeansCenters(5).rank(make_pool([[2.0]]), 0, 1).tolist() == [1]
    assert KMeansCenters(5).rank(make_pool([[2.0]] * 3), 0, 3).tolist() == [1, 3, 5]


def test_take_turns_skips_what_is_taken():
    # Row 1 wants column 2 but row 0 took it; in its second turn row 0 finds 0 taken too.
    preferences = torch.tensor([[2, 0, 1, 3], [2, 0, 3, 1]])
    assert take_turns(preferences, 4).tolist() == [2, 0, 1, 3]
    assert take_turns(preferences, 3).tolist() == [2, 0, 1]
    assert take_turns(preferences, 0).tolist() == []


def test_kmeans_draws_from_the_pool_alone():
    h = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)).tolist()
    picks = []
    for seed, world in ((1, 10), (1, 20)):
        torch.manual_seed(world)
        picks.append(KMeansCenters().rank(make_pool(h, seed=seed), 0, 60).tolist())
    assert picks[0] == picks[1]


def test_cluster_centers_repeat_to_the_bit_and_leave_threads_alone():
    h = torch.randn(1500, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = torch.get_num_threads()
    assert torch.equal(cluster_centers(h, 5, 3), cluster_centers(h, 5, 3))
    assert torch.get_num_threads() == before
