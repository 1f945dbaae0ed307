"""What every selector must do: this suite runs on each entry of SELECTORS."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from evergraph.memory import SELECTORS, SelectionPool
from evergraph.stream import Adjacency, LabelledNodes, SparseRows

pytestmark = pytest.mark.parametrize("name", SELECTORS)


def to_sparse(x: torch.Tensor) -> SparseRows:
    rows, columns = torch.nonzero(x, as_tuple=True)
    counts = torch.bincount(rows, minlength=x.shape[0])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(counts, 0)])
    return SparseRows(x[rows, columns], columns, indptr, x.shape[1])


def make_pool(seed: int = 0, *, sparse: bool = False, draw: int | None = None) -> SelectionPool:
    """Thirty training nodes of classes 2, 3 and 4 among sixty, with a buffer of old ones.

    Class 4 has a single node. ``seed`` decides everything but the generator, if ``draw`` does.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(60, generator=generator)
    nodes, old = order[:30].sort().values, order[30:34]
    labels = torch.randint(2, 4, (30,), generator=generator)
    labels[7] = 4
    x = torch.rand(60, 7, generator=generator) * (torch.rand(60, 7, generator=generator) < 0.4)
    h = torch.randn(30, 4, generator=generator)
    head = torch.randn(5, 4, generator=generator)
    ends = torch.randint(60, (2, 120), generator=generator)
    graph = Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), 60)
    return SelectionPool(
        nodes,
        labels,
        h,
        to_sparse(x) if sparse else x,
        graph.edit(add=ends, remove=ends[:, :0]),
        torch.Generator().manual_seed(seed if draw is None else draw),
        logits=h.relu() @ head.T,
        kept=LabelledNodes(old, torch.tensor([0, 0, 1, 1])),
    )


def rank(name: str, pool: SelectionPool, label: int, budget: int) -> torch.Tensor:
    return SELECTORS[name].make(0.3).rank(pool, label, budget)


def members_of(pool: SelectionPool, label: int) -> list[int]:
    return pool.nodes[pool.labels == label].tolist()


def test_selector_introduces_itself(name):
    summary = SELECTORS[name].summary
    assert summary.strip() == summary != ""
    assert "\n" not in summary


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("label", [2, 3, 4])
def test_selector_returns_as_many_of_the_class_as_asked(name, label, sparse):
    members = members_of(make_pool(), label)
    for budget in range(len(members) + 1):
        picks = rank(name, make_pool(sparse=sparse), label, budget)
        assert picks.dtype == torch.int64
        assert picks.numel() == budget == picks.unique().numel()
        assert set(picks.tolist()) <= set(members)


@pytest.mark.parametrize("label", [2, 4])
def test_selector_returns_the_whole_class_for_more_than_it_has(name, label):
    members = members_of(make_pool(), label)
    for excess in (0, 1, 50):
        picks = rank(name, make_pool(), label, len(members) + excess)
        assert sorted(picks.tolist()) == members


@pytest.mark.parametrize("seed", range(5))
def test_selector_smaller_budget_is_a_prefix_where_claimed(name, seed):
    for label in (2, 3):
        count = len(members_of(make_pool(seed), label))
        whole = rank(name, make_pool(seed), label, count).tolist()
        parts = [rank(name, make_pool(seed), label, budget).tolist() for budget in range(count)]
        assert all(part == whole[: len(part)] for part in parts) == SELECTORS[name].prefix


@pytest.mark.parametrize("sparse", [False, True])
def test_selector_is_deterministic_by_seed(name, sparse):
    picks = []
    for world in (1, 2):
        torch.manual_seed(world)
        pool = make_pool(sparse=sparse)
        picks.append([rank(name, pool, label, 5).tolist() for label in (2, 3)])
    assert picks[0] == picks[1]


def test_selector_does_not_hang_on_how_features_are_stored(name):
    for seed in range(3):
        dense, rows = make_pool(seed), make_pool(seed, sparse=True)
        assert torch.equal(rank(name, dense, 2, 6), rank(name, rows, 2, 6))


def test_selector_draws_only_if_it_says_so(name):
    picks = {tuple(rank(name, make_pool(draw=draw), 2, 6).tolist()) for draw in range(8)}
    if name in {"random", "importance", "tem"}:
        assert len(picks) > 1
    elif name != "kmeans":  # its clusters may or may not hang on where they start
        assert len(picks) == 1


def test_selector_works_on_the_first_task(name):
    pool = dataclasses.replace(make_pool(), kept=None)
    assert rank(name, pool, 2, 4).numel() == 4


def test_selector_survives_equal_embeddings(name):
    pool = make_pool()
    pool = dataclasses.replace(
        pool,
        h=torch.ones_like(pool.h),
        logits=torch.zeros_like(pool.logits),
        features=torch.ones(60, 7),
    )
    picks = rank(name, pool, 3, 4)
    assert picks.unique().numel() == 4
    if name not in {"random", "importance", "tem"}:
        assert picks.tolist() == members_of(pool, 3)[:4]


def test_selector_changes_nothing_that_it_is_shown(name):
    pool, same = make_pool(), make_pool()
    for label in (2, 3, 4):
        rank(name, pool, label, 1)
    for field in ("nodes", "labels", "h", "features", "logits"):
        assert torch.equal(getattr(pool, field), getattr(same, field))
    assert torch.equal(pool.adjacency.keys, same.adjacency.keys)
