"""Splits: which classes, in which order, and which nodes train, validate and test."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.stream import Graph, Protocol, TaskStream, protocol_for
from evergraph.stream.protocol import Split, choose_classes, split_nodes


def graph_of(sizes, names=None) -> Graph:
    """A graph without edges, ``sizes[c]`` nodes in class ``c``, ids scattered over classes."""
    y = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    y = y[torch.randperm(y.numel(), generator=torch.Generator().manual_seed(5))]
    edges = torch.empty(2, 0, dtype=torch.int64)
    return Graph.build("sized", torch.ones(y.numel(), 1), edges, y, names)


def split_of(sizes, protocol: Protocol, seed: int = 0) -> tuple[Split, torch.Tensor]:
    """Splits nodes in plain label order; returns the split and the labels."""
    labels = graph_of(sizes).y
    ids = torch.arange(labels.numel())
    generator = make_generator(seed, "split")
    return split_nodes(labels, ids, list(range(len(sizes))), protocol, generator), labels


def sizes_in(part: torch.Tensor, labels: torch.Tensor, num_classes: int) -> list[int]:
    return torch.bincount(labels[part], minlength=num_classes).tolist()


def parts_by_original_id(stream: TaskStream) -> dict[str, set[int]]:
    """The whole split in original ids."""
    return {
        name: {
            int(node)
            for task in stream.tasks
            for node in stream.original_ids[getattr(task, f"{name}_nodes")]
        }
        for name in ("train", "validation", "test")
    }


# Which classes, in which order.


def test_choose_classes_keeps_those_with_more_nodes_than_the_minimum():
    assert choose_classes(graph_of([5, 6, 7]), Protocol(min_class_size=5)) == [1, 2]


def test_choose_classes_drops_classes_without_nodes():
    assert choose_classes(graph_of([5, 0, 7]), Protocol()) == [0, 2]


def test_choose_classes_keeps_the_largest_in_label_order_ties_to_the_lowest():
    graph = graph_of([5, 9, 5, 7])
    assert choose_classes(graph, Protocol(max_classes=3)) == [0, 1, 3]


def test_choose_classes_alphabetical_sorts_by_bytes():
    # As in Citeseer: capitals come before small letters.
    graph = graph_of([3, 3, 3], ("Agents", "DB", "AI"))
    assert choose_classes(graph, Protocol(order="alphabetical")) == [2, 0, 1]


def test_choose_classes_random_is_fixed_by_its_own_seed():
    graph = graph_of([3] * 12)
    orders = [choose_classes(graph, Protocol(order=f"random:{seed}")) for seed in (0, 0, 1)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == list(range(12))


def test_choose_classes_refuses_to_keep_none():
    with pytest.raises(InputError) as caught:
        choose_classes(graph_of([5, 6]), Protocol(min_class_size=6))
    assert str(caught.value) == (
        "Expected 'min_class_size' to leave a class of 'sized' (got 6, largest class 6); lower it."
    )


# Shares.


def test_split_nodes_share_is_exact_in_each_class():
    split, labels = split_of([10, 20, 40], Protocol(test_share=(0.3, 0.75, 0.9)))
    assert sizes_in(split.test, labels, 3) == [3, 15, 36]
    assert sizes_in(split.train, labels, 3) == [7, 5, 4]
    assert split.validation.numel() == 0


def test_split_nodes_shares_belong_to_labels_not_to_arrival():
    graph = graph_of([10, 20, 40], ("c", "b", "a"))
    shares = (0.3, 0.75, 0.9)
    for order in ("label", "alphabetical", "random:3"):
        stream = TaskStream(graph, Protocol(test_share=shares, order=order))
        test = torch.cat([task.test_nodes for task in stream.tasks])
        found = torch.bincount(graph.y[stream.original_ids[test]]).tolist()
        assert found == [3, 15, 36]


def test_split_nodes_pooled_share_is_exact_over_the_pool():
    # Citeseer: 0.15 of the 249 of class 0, and 0.6 of the 3,063 of the other five at once.
    protocol = protocol_for("citeseer")
    sizes = [249, 596, 701, 508, 668, 590]
    split, labels = split_of(sizes, protocol)
    tests = sizes_in(split.test, labels, 6)
    assert tests[0] == 37  # 37.35
    assert sum(tests[1:]) == 1838  # 1,837.8
    assert tests[1:] != [round(0.6 * size) for size in sizes[1:]]


def test_split_nodes_pooled_with_one_share_pools_all_classes():
    # Cora: 30 % of the 2,528 nodes kept.
    split, labels = split_of([298, 418, 818, 426, 217, 351], protocol_for("cora"))
    tests = sizes_in(split.test, labels, 6)
    assert sum(tests) == 758  # 758.4
    assert tests != [89, 125, 245, 128, 65, 105]  # what a draw per class would give


def test_split_nodes_pools_vary_with_the_seed_within_the_pool_only():
    protocol = Protocol(test_share=(0.5, 0.2, 0.2), pooled=True)
    counts = [
        sizes_in(split_of([40, 40, 40], protocol, seed)[0].test, graph_of([40] * 3).y, 3)
        for seed in range(10)
    ]
    assert all(count[0] == 20 and count[1] + count[2] == 16 for count in counts)
    assert len({tuple(count) for count in counts}) > 1


def test_split_nodes_refuses_another_number_of_shares_than_classes():
    with pytest.raises(InputError) as caught:
        split_of([10, 10, 10], Protocol(test_share=(0.3, 0.4)))
    assert str(caught.value) == (
        "Expected 'test_share' as one number or 3, one per kept class (got 2); correct the list."
    )


def test_split_nodes_refuses_an_empty_list_of_shares():
    with pytest.raises(InputError, match=r"one per kept class \(got 0\)"):
        split_of([10, 10], Protocol(test_share=()))


# Validation.


def test_split_nodes_validation_is_a_tenth_of_each_class_and_at_least_one():
    protocol = Protocol(test_share=0.5, validation_fraction=0.1)
    split, labels = split_of([6, 40, 100], protocol)  # 3, 20, 50 nodes to train on
    assert sizes_in(split.validation, labels, 3) == [1, 2, 5]
    assert sizes_in(split.train, labels, 3) == [2, 18, 45]


def test_split_nodes_validation_leaves_the_test_nodes_alone():
    without, _ = split_of([20, 30], Protocol())
    cut, _ = split_of([20, 30], Protocol(validation_fraction=0.2))
    assert torch.equal(without.test, cut.test)
    assert set(cut.train.tolist()) | set(cut.validation.tolist()) == set(without.train.tolist())


# Properties.

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=5)


@given(
    sizes=SIZES,
    share=st.sampled_from([0.15, 0.3, 0.5, 0.9]),
    fraction=st.sampled_from([0.0, 0.1, 0.5]),
    pooled=st.booleans(),
    seed=st.integers(0, 100),
)
def test_split_nodes_parts_are_a_partition_each_ascending(sizes, share, fraction, pooled, seed):
    protocol = Protocol(test_share=share, validation_fraction=fraction, pooled=pooled)
    split, labels = split_of(sizes, protocol, seed)
    together = torch.cat(list(split)).tolist()
    assert sorted(together) == list(range(sum(sizes)))
    assert all(part.tolist() == sorted(part.tolist()) for part in split)
    tests = sizes_in(split.test, labels, len(sizes))
    if pooled:
        assert sum(tests) == round(share * sum(sizes))
    else:
        assert tests == [round(share * size) for size in sizes]
    for size, test, validation in zip(
        sizes, tests, sizes_in(split.validation, labels, len(sizes)), strict=True
    ):
        rest = size - test
        expected = min(rest, max(1, round(fraction * rest))) if fraction else 0
        assert validation == expected


@given(
    order=st.integers(0, 50).map(lambda seed: f"random:{seed}"),
    pooled=st.booleans(),
    shares=st.sampled_from([0.3, (0.3, 0.6, 0.6, 0.5)]),
    seed=st.integers(0, 5),
)
def test_split_does_not_depend_on_class_order(make_graph, order, pooled, shares, seed):
    graph = make_graph(num_nodes=60)
    common = {"pooled": pooled, "test_share": shares, "validation_fraction": 0.2}
    by_label = TaskStream(graph, Protocol(order="label", **common), seed)
    shuffled = TaskStream(graph, Protocol(order=order, **common), seed)
    assert parts_by_original_id(by_label) == parts_by_original_id(shuffled)


def test_split_does_not_depend_on_class_order_by_example(make_graph):
    graph = make_graph()
    by_label = TaskStream(graph, Protocol(order="label"))
    shuffled = TaskStream(graph, Protocol(order="random:3"))
    assert by_label.class_names != shuffled.class_names
    assert parts_by_original_id(by_label)["test"] == parts_by_original_id(shuffled)["test"]


def test_split_does_not_depend_on_classes_per_task(make_graph):
    graph = make_graph()
    splits = [
        parts_by_original_id(TaskStream(graph, Protocol(classes_per_task=c))) for c in (1, 2, 3, 4)
    ]
    assert all(split == splits[0] for split in splits)


def test_split_seed_fixes_the_split_across_seeds(make_graph):
    graph = make_graph()
    fixed = [
        parts_by_original_id(TaskStream(graph, Protocol(split_seed=7), seed)) for seed in range(3)
    ]
    assert fixed[0] == fixed[1] == fixed[2]
    assert fixed[0] == parts_by_original_id(TaskStream(graph, Protocol(), seed=7))


def test_split_differs_between_seeds_and_repeats_for_one(make_graph):
    graph = make_graph()
    tests = [
        frozenset(parts_by_original_id(TaskStream(graph, Protocol(), seed))["test"])
        for seed in (0, 1, 2, 0)
    ]
    assert len(set(tests)) == 3
    assert tests[0] == tests[3]


# What a stream refuses.


@pytest.mark.parametrize(("size", "left"), [(1, 1), (2, 1)])
def test_stream_refuses_a_class_with_fewer_than_two_training_nodes(size, left):
    graph = graph_of([10, size], ("big", "small"))
    with pytest.raises(InputError) as caught:
        TaskStream(graph, Protocol())
    assert str(caught.value) == (
        f"Expected class 'small' of 'sized' to have at least 2 training nodes (got {left}); "
        "add nodes, drop the class with min_class_size, or lower test_share."
    )


def test_stream_counts_training_nodes_after_validation():
    # 3 nodes, 1 tests, 1 validates: a single one is left.
    graph = graph_of([10, 3])
    TaskStream(graph, Protocol())
    with pytest.raises(InputError, match=r"at least 2 training nodes \(got 1\)"):
        TaskStream(graph, Protocol(validation_fraction=0.1))


def test_stream_refuses_a_task_without_test_nodes():
    # 10 % of 4 nodes rounds to none: the accuracy of that task would not be a number.
    with pytest.raises(InputError, match="test"):
        TaskStream(graph_of([20, 20, 4]), Protocol(test_share=0.1))
