"""The replay buffer and how its size is shared."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.memory import SELECTORS, ReplayBuffer, SelectionPool
from evergraph.memory.buffer import class_budgets, neighbourhood_bytes
from evergraph.memory.coverage import CoverageDiversity
from evergraph.memory.selectors import Random
from evergraph.stream import Adjacency, SparseRows

# Budgets


@pytest.mark.parametrize(
    ("counts", "size", "budgets"),
    [
        # Shares 24.75, 25.75, 23.75, 25.75 of 100: 97 kept, the other 3 given to nobody.
        ([99, 103, 95, 103], 100, [24, 25, 23, 25]),
        ([10, 10, 10], 10, [3, 3, 3]),
        ([30, 10], 8, [6, 2]),
        # 2000 // 402 = 4 and at least one each are 6 for 5: the largest gives up one.
        ([400, 1, 1], 5, [3, 1, 1]),
        # Never more than there are.
        ([3, 5], 100, [3, 5]),
        ([1], 1, [1]),
        # 400 // 103 = 3 and three ones are 6 for 4: the largest gives up two.
        ([100, 1, 1, 1], 4, [1, 1, 1, 1]),
        # 250 // 102 = 2 twice and two ones are 6 for 5: the lowest class gives up one.
        ([50, 50, 1, 1], 5, [1, 2, 1, 1]),
        # Floors 3, 3 and four ones are 10 for 8: first class 0, then class 1.
        ([50, 50, 1, 1, 1, 1], 8, [2, 2, 1, 1, 1, 1]),
        ([], 5, []),
    ],
)
def test_class_budgets_by_hand(counts, size, budgets):
    assert class_budgets(dict(enumerate(counts)), size) == dict(enumerate(budgets))


def test_class_budgets_tie_goes_by_class_not_by_order_of_arrival():
    assert class_budgets({3: 1, 1: 50, 2: 1, 0: 50}, 5) == {0: 1, 1: 2, 2: 1, 3: 1}


def test_class_budgets_of_large_counts_are_exact():
    # 10^9 · (10^9 + 1) / (2·10^9 + 1): floating point would round the quotient.
    counts = {0: 10**9 + 1, 1: 10**9}
    assert class_budgets(counts, 2 * 10**9 + 1) == counts


def test_class_budgets_smaller_than_the_classes_is_an_error():
    message = r"Expected 'buffer_size' of at least the number of classes, 3 \(got 2\)"
    with pytest.raises(InputError, match=message):
        class_budgets({0: 5, 1: 5, 2: 5}, 2)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(0, 300))
def test_class_budgets_stay_within_size(counts, extra):
    size = len(counts) + extra
    budgets = class_budgets(dict(enumerate(counts)), size)
    assert sum(budgets.values()) <= size
    assert list(budgets) == list(range(len(counts)))
    for label, count in enumerate(counts):
        share = max(1, size * count // sum(counts))
        assert 1 <= budgets[label] <= min(count, share)
    if sum(min(c, max(1, size * c // sum(counts))) for c in counts) > size:
        assert sum(budgets.values()) == size  # trimmed no further than needed


# The buffer


@dataclass(frozen=True)
class HighestId:
    """A selector that is easy to follow: the highest ids first."""

    def rank(self, pool: SelectionPool, label: int, budget: int) -> torch.Tensor:
        assert budget <= int((pool.labels == label).sum())
        return pool.nodes[pool.labels == label].flip(0)[:budget]


def make_pool(members: dict[int, list[int]], seed: int = 0) -> SelectionPool:
    pairs = sorted((node, label) for label, nodes in members.items() for node in nodes)
    nodes = torch.tensor([node for node, _ in pairs])
    n = int(nodes.max()) + 1
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(n))
    num_classes = max(members) + 1
    return SelectionPool(
        nodes,
        torch.tensor([label for _, label in pairs]),
        x[nodes],
        x,
        Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), n),
        torch.Generator().manual_seed(seed),
        logits=x[nodes].repeat(1, num_classes)[:, :num_classes],
    )


def content(buffer: ReplayBuffer) -> dict[int, list[int]]:
    return {label: nodes.tolist() for label, nodes in buffer.picks.items()}


def test_buffer_begins_empty():
    buffer = ReplayBuffer(10)
    assert len(buffer) == 0
    assert buffer.nodes.tolist() == buffer.labels.tolist() == []
    assert buffer.nodes.dtype == buffer.labels.dtype == torch.int64
    assert buffer.memory_bytes() == 0


def test_buffer_shrinks_older_classes_to_a_prefix():
    buffer = ReplayBuffer(6)
    # Task 1: four and two nodes fit whole, best first.
    buffer.update(make_pool({0: [0, 1, 2, 3], 1: [4, 5]}), HighestId())
    assert content(buffer) == {0: [3, 2, 1, 0], 1: [5, 4]}
    # Task 2 adds six: shares 6·4/12 = 2, 6·2/12 = 1, 6·6/12 = 3.
    buffer.update(make_pool({2: [6, 7, 8, 9, 10, 11]}), HighestId())
    assert content(buffer) == {0: [3, 2], 1: [5], 2: [11, 10, 9]}
    assert buffer.nodes.tolist() == [3, 2, 5, 11, 10, 9]
    assert buffer.labels.tolist() == [0, 0, 1, 2, 2, 2]
    assert len(buffer) == 6
    assert buffer.train_counts == {0: 4, 1: 2, 2: 6}


def test_buffer_returning_class_selects_from_kept_and_new():
    buffer = ReplayBuffer(4)
    buffer.update(make_pool({0: [0, 1, 2, 3], 1: [4, 5, 6, 7]}), HighestId())
    assert content(buffer) == {0: [3, 2], 1: [7, 6]}
    # Class 0 comes again with 8 to 11; its kept 2 and 3 are in the pool, counted once.
    # Counts 8 and 4: shares ⌊4·8/12⌋ = 2 and 1.
    buffer.update(make_pool({0: [2, 3, 8, 9, 10, 11]}), HighestId())
    assert buffer.train_counts == {0: 8, 1: 4}
    assert content(buffer) == {0: [11, 10], 1: [7]}


def test_buffer_returning_class_may_keep_its_old_nodes():
    buffer = ReplayBuffer(4)
    buffer.update(make_pool({0: [10, 11, 12, 13], 1: [4, 5, 6, 7]}), HighestId())
    assert content(buffer)[0] == [13, 12]
    buffer.update(make_pool({0: [8, 9, 12, 13]}), HighestId())  # 8 and 9 are new, and lower
    assert buffer.train_counts == {0: 6, 1: 4}
    assert content(buffer) == {0: [13, 12], 1: [7]}


def test_buffer_returning_class_has_fewer_nodes_at_hand_than_budget():
    buffer = ReplayBuffer(6)
    buffer.update(make_pool({0: list(range(10)), 1: list(range(10, 20))}), HighestId())
    assert content(buffer)[0] == [9, 8, 7]
    buffer.update(make_pool({0: [7, 8, 9, 20]}), HighestId())  # ⌊6·11/21⌋ = 3 of 4 at hand
    assert content(buffer)[0] == [20, 9, 8]
    buffer.update(make_pool({0: [21]}), HighestId())  # the pool forgot the kept ones
    assert content(buffer)[0] == [21]


def test_buffer_too_small_is_an_error():
    buffer = ReplayBuffer(2)
    buffer.update(make_pool({0: [0, 1], 1: [2, 3]}), HighestId())
    with pytest.raises(InputError, match="buffer_size"):
        buffer.update(make_pool({2: [4, 5]}), HighestId())


def test_buffer_random_does_not_redraw_older_classes():
    buffer = ReplayBuffer(20)
    buffer.update(make_pool({0: list(range(30)), 1: list(range(30, 60))}, seed=1), Random())
    before = content(buffer)
    buffer.update(make_pool({2: list(range(60, 120))}, seed=2), Random())
    after = content(buffer)
    assert [len(after[label]) for label in (0, 1, 2)] == [5, 5, 10]
    for label in (0, 1):
        assert after[label] == before[label][:5]


tasks = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=3), min_size=1, max_size=4)


@given(tasks, st.integers(0, 40), st.sampled_from(sorted(SELECTORS)))
def test_buffer_over_a_stream(sizes, extra, name):
    """Never above its size, every class present, older picks a prefix, labels right."""
    size = sum(len(task) for task in sizes) + extra
    buffer, selector = ReplayBuffer(size), SELECTORS[name].make(0.3)
    owner: dict[int, int] = {}
    label = node = 0
    for index, task in enumerate(sizes):
        members = {}
        for count in task:
            members[label] = list(range(node, node + count))
            owner.update(dict.fromkeys(members[label], label))
            label, node = label + 1, node + count
        before = content(buffer)
        buffer.update(make_pool(members, seed=index), selector)
        after = content(buffer)
        assert len(buffer) == buffer.nodes.numel() <= size
        assert list(after) == list(range(label))
        budgets = class_budgets(buffer.train_counts, size)
        for old, picks in before.items():
            assert after[old] == picks[: budgets[old]]
        for new in members:
            assert len(after[new]) == budgets[new]
        assert [owner[n] for n in buffer.nodes.tolist()] == buffer.labels.tolist()
        assert len(set(buffer.nodes.tolist())) == len(buffer)
        assert all(after.values())


def test_buffer_state_round_trip():
    buffer = ReplayBuffer(30)
    buffer.update(make_pool({c: list(range(20 * c, 20 * c + 20)) for c in range(11)}), HighestId())
    restored = ReplayBuffer(30)
    restored.load_state_dict(copy.deepcopy(buffer.state_dict()))
    assert content(restored) == content(buffer)
    assert list(restored.picks) == list(buffer.picks)
    assert restored.train_counts == buffer.train_counts
    assert torch.equal(restored.nodes, buffer.nodes)
    assert torch.equal(restored.labels, buffer.labels)
    for each in (buffer, restored):  # and both go on alike
        each.update(make_pool({11: list(range(220, 260))}, seed=4), CoverageDiversity(0.3))
    assert content(restored) == content(buffer)


def test_buffer_state_does_not_change_with_the_buffer():
    buffer = ReplayBuffer(4)
    buffer.update(make_pool({0: [0, 1, 2, 3]}), HighestId())
    state = buffer.state_dict()
    buffer.update(make_pool({1: [4, 5, 6, 7]}), HighestId())
    assert state["picks"]["0"].tolist() == [3, 2, 1, 0]
    assert state["train_counts"] == {"0": 4}


def test_buffer_state_of_an_empty_buffer():
    restored = ReplayBuffer(4)
    restored.load_state_dict(ReplayBuffer(4).state_dict())
    assert len(restored) == 0


def test_buffer_memory_bytes():
    buffer = ReplayBuffer(6)
    buffer.update(make_pool({0: [0, 1, 2, 3], 1: [4, 5]}), HighestId())
    assert buffer.memory_bytes() == 6 * 2 * 8  # an id and a label, eight bytes each
    assert buffer.memory_bytes() == sum(t.numel() * 8 for t in (buffer.nodes, buffer.labels))


def test_nodes_and_labels_follow_the_picks():
    buffer = ReplayBuffer(4)
    buffer.picks = {0: torch.tensor([3, 5]), 1: torch.tensor([7])}
    assert (buffer.nodes.tolist(), buffer.labels.tolist()) == ([3, 5, 7], [0, 0, 1])
    buffer.trim(torch.tensor([False, True, True]))
    assert (buffer.nodes.tolist(), buffer.labels.tolist()) == ([5, 7], [0, 1])
    buffer.renumber(torch.tensor([-1, -1, -1, -1, -1, 2, -1, 0]))
    assert (buffer.nodes.tolist(), buffer.labels.tolist()) == ([2, 0], [0, 1])
    buffer.picks = {}
    assert (buffer.nodes.tolist(), buffer.labels.tolist(), len(buffer)) == ([], [], 0)


@pytest.mark.parametrize("sparse", [False, True])
def test_neighbourhood_bytes_of_a_path(sparse):
    # 0 - 1 - 2 - 3 - 4 with the features of node i having i + 1 columns, of 6
    ends = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    graph = Adjacency.from_edges(torch.cat([ends, ends.flip(0)], dim=1), 5)
    x = (torch.arange(6) <= torch.arange(5)[:, None]).float()
    if sparse:
        _, columns = torch.nonzero(x, as_tuple=True)
        starts = torch.tensor([0, 1, 3, 6, 10, 15])
        x = SparseRows(torch.ones(15), columns, starts, 6)

    def count(nodes: list[int], depth: int, *joined: int) -> int:
        near = [torch.tensor(joined)] if joined else []
        return neighbourhood_bytes(x, graph, torch.tensor(nodes), depth, near)

    def expected(nodes: list[int], edges: int) -> int:
        columns = sum(node + 1 for node in nodes)
        rows = 12 * columns + 8 * (len(nodes) + 1) if sparse else 4 * 6 * len(nodes)
        return rows + 8 * len(nodes) + 16 * edges

    assert count([0], 0) == expected([0], 0)
    assert count([0], 1) == expected([0, 1], 1)
    assert count([0], 2) == expected([0, 1, 2], 2)
    assert count([0, 1], 1) == expected([0, 1, 2], 2)  # the edge between them once
    assert count([0], 9) == expected([0, 1, 2, 3, 4], 4)
    assert count([0], 1, 4) == expected([0, 1, 4], 1)  # a neighbour to be: its features
    assert count([0], 2, 4) == expected([0, 1, 2, 3, 4], 3)  # and its neighbours
