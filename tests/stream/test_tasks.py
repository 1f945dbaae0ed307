"""TaskStream: all that is seen is a prefix, and a view holds nothing that is not seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.stream import (
    Adjacency,
    Graph,
    GraphView,
    LabelledNodes,
    Protocol,
    SparseRows,
    TaskStream,
)

CANARY = 1_000_000_007  # no node, key or pointer of a small graph is this large


def dense(features) -> torch.Tensor:
    return features.dense() if isinstance(features, SparseRows) else features


def tensors(thing: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Walks everything reachable from an object and yields its tensors with their paths."""
    if isinstance(thing, torch.Tensor):
        yield "", thing
        return
    if isinstance(thing, Mapping):
        children = {f"[{key}]": value for key, value in thing.items()}
    elif isinstance(thing, list | tuple | set | frozenset):
        children = {f"[{i}]": value for i, value in enumerate(thing)}
    elif thing is None or isinstance(thing, int | float | str):
        return
    else:
        # A view may be made of these and nothing else: above all not of the stream.
        assert isinstance(thing, GraphView | Adjacency | SparseRows | LabelledNodes), type(thing)
        children = {f".{key}": value for key, value in vars(thing).items()}
    for path, value in children.items():
        for rest, tensor in tensors(value):
            yield path + rest, tensor


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All the memory behind a tensor, also what lies outside of its slice."""
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


# By hand: twelve nodes, classes C A B (labels 0 1 2), one class to a task, order alphabetical.
#
#   node       0  1  2  3  4  5  6  7  8  9 10 11
#   label      0  1  2  0  1  2  0  1  2  0  1  2

BY_HAND = Graph.build(
    "by-hand",
    torch.arange(12, dtype=torch.float32)[:, None],
    torch.tensor([[0, 0, 1, 2, 4, 5], [3, 1, 4, 5, 11, 6]]),
    torch.arange(12) % 3,
    ("C", "A", "B"),
)
STREAM = TaskStream(
    BY_HAND, Protocol(classes_per_task=1, order="alphabetical", test_share=0.25), seed=0
)


def test_stream_orders_nodes_by_task_then_original_id_by_hand():
    assert STREAM.original_ids.tolist() == [1, 4, 7, 10, 2, 5, 8, 11, 0, 3, 6, 9]
    assert STREAM.class_names == ("A", "B", "C")
    assert STREAM.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert STREAM.features.flatten().tolist() == STREAM.original_ids.tolist()
    assert [task.num_nodes for task in STREAM.tasks] == [4, 8, 12]


def test_stream_orders_edges_by_their_later_end_by_hand():
    # Renamed: 0-3 is 8-9, 0-1 is 8-0, 1-4 is 0-1, 2-5 is 4-5, 4-11 is 1-7, 5-6 is 5-10.
    assert STREAM.edges.T.tolist() == [[0, 1], [4, 5], [1, 7], [0, 8], [8, 9], [5, 10]]
    assert [task.num_edges for task in STREAM.tasks] == [1, 3, 6]


def test_stream_view_by_hand():
    view = STREAM.view(1)
    assert (view.task, view.num_nodes, view.num_features) == (1, 8, 1)
    assert (view.num_classes, view.new_classes) == (2, (1,))
    edges = sorted(zip(view.adjacency.src.tolist(), view.adjacency.dst.tolist(), strict=True))
    assert edges == [(0, 1), (1, 0), (1, 7), (4, 5), (5, 4), (7, 1)]
    assert set(view.train_nodes.tolist()) < {4, 5, 6, 7}
    assert view.train_labels.tolist() == [1, 1, 1]


# Order.


@pytest.mark.parametrize("order", ["label", "alphabetical", "random:3"])
@pytest.mark.parametrize("sparse", [False, True])
def test_stream_orders_nodes_by_task_then_original_id(make_graph, order, sparse):
    graph = make_graph(num_classes=5, sparse=sparse)
    stream = TaskStream(graph, Protocol(order=order))
    tasks = (stream.labels // 2).tolist()
    keys = list(zip(tasks, stream.original_ids.tolist(), strict=True))
    assert keys == sorted(keys)
    assert sorted(stream.original_ids.tolist()) == list(range(graph.num_nodes))
    assert torch.equal(dense(stream.features), dense(graph.x)[stream.original_ids])


@pytest.mark.parametrize("order", ["label", "alphabetical", "random:3"])
def test_stream_numbers_classes_by_arrival_with_their_names(make_graph, order):
    graph = make_graph(num_classes=5)
    stream = TaskStream(graph, Protocol(order=order))
    original = [graph.class_names[label] for label in graph.y[stream.original_ids]]
    assert [stream.class_names[label] for label in stream.labels] == original
    assert [c for task in stream.tasks for c in task.classes] == list(range(5))
    assert stream.num_classes == 5
    if order == "alphabetical":
        assert stream.class_names == tuple(sorted(graph.class_names))


def test_stream_leaves_out_dropped_classes_with_their_edges(make_graph):
    graph = make_graph(num_nodes=42, num_classes=4)  # classes of 11, 11, 10 and 10
    stream = TaskStream(graph, Protocol(min_class_size=10))
    assert stream.class_names == graph.class_names[:2]
    kept = set(torch.nonzero(graph.y < 2).flatten().tolist())
    assert set(stream.original_ids.tolist()) == kept
    expected = {(a, b) for a, b in graph.edges.T.tolist() if a in kept and b in kept}
    found = stream.original_ids[stream.edges].sort(dim=0).values.T.tolist()
    assert {tuple(edge) for edge in found} == expected


@pytest.mark.parametrize(
    ("num_classes", "per_task", "expected"),
    [
        (5, 2, [(0, 1), (2, 3), (4,)]),
        (4, 3, [(0, 1, 2), (3,)]),
        (3, 3, [(0, 1, 2)]),
        (2, 9, [(0, 1)]),
    ],
)
def test_stream_last_smaller_task_takes_the_remainder(make_graph, num_classes, per_task, expected):
    stream = TaskStream(make_graph(num_classes=num_classes), Protocol(classes_per_task=per_task))
    assert [task.classes for task in stream.tasks] == expected
    assert stream.num_tasks == len(expected)
    assert [task.index for task in stream.tasks] == list(range(len(expected)))
    last = stream.view(stream.num_tasks - 1)
    assert (last.num_classes, last.new_classes) == (num_classes, expected[-1])


@pytest.mark.parametrize("sparse", [False, True])
def test_stream_normalises_features_by_row_sum(make_graph, sparse):
    graph = make_graph(sparse=sparse)
    stream = TaskStream(graph, Protocol(features="row-sum"))
    sums = dense(stream.features).sum(dim=1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_stream_leaves_the_graph_alone(make_graph):
    graph = make_graph()
    before = {name: getattr(graph, name).clone() for name in ("x", "y", "edges")}
    TaskStream(graph, Protocol(features="row-sum", order="random:1"))
    assert all(torch.equal(getattr(graph, name), tensor) for name, tensor in before.items())
    assert TaskStream(graph, Protocol()).fingerprint == graph.fingerprint


# What is seen is a prefix.


@pytest.mark.parametrize("sparse", [False, True])
def test_view_features_are_a_prefix_that_shares_memory(make_graph, sparse):
    stream = TaskStream(make_graph(sparse=sparse), Protocol())
    for index, task in enumerate(stream.tasks):
        view = stream.view(index)
        assert torch.equal(dense(view.features), dense(stream.features)[: task.num_nodes])
        mine, whole = (f.values if sparse else f for f in (view.features, stream.features))
        assert mine.data_ptr() == whole.data_ptr()


def test_stream_nodes_of_a_task_arrive_in_its_block(make_graph):
    stream = TaskStream(make_graph(num_classes=5), Protocol(validation_fraction=0.1))
    start = 0
    for task in stream.tasks:
        parts = torch.cat([task.train_nodes, task.validation_nodes, task.test_nodes])
        assert sorted(parts.tolist()) == list(range(start, task.num_nodes))
        assert set(stream.labels[parts].tolist()) == set(task.classes)
        start = task.num_nodes
    assert start == stream.labels.numel()


@given(
    seed=st.integers(0, 1000),
    num_classes=st.integers(1, 5),
    per_task=st.integers(1, 3),
    average_degree=st.sampled_from([0.0, 2.0, 8.0]),
    order=st.sampled_from(["label", "alphabetical", "random:3"]),
)
def test_view_edges_are_exactly_those_among_seen_nodes(
    make_graph, *, seed, num_classes, per_task, average_degree, order
):
    graph = make_graph(
        num_nodes=25, num_classes=num_classes, average_degree=average_degree, seed=seed
    )
    stream = TaskStream(graph, Protocol(classes_per_task=per_task, order=order))
    ids = stream.original_ids.tolist()
    for index, task in enumerate(stream.tasks):
        seen = {
            node
            for node in range(graph.num_nodes)
            if graph.class_names[graph.y[node]] in stream.class_names[: task.classes[-1] + 1]
        }
        expected = {
            pair
            for a, b in graph.edges.T.tolist()
            if a in seen and b in seen
            for pair in ((a, b), (b, a))
        }
        view = stream.view(index)
        assert view.num_nodes == len(seen)
        assert set(ids[: view.num_nodes]) == seen
        found = [
            (ids[a], ids[b])
            for a, b in zip(view.adjacency.src.tolist(), view.adjacency.dst.tolist(), strict=True)
        ]
        assert len(found) == len(set(found))
        assert set(found) == expected


# What is not seen is not in the object.


def poisoned_view(graph: Graph, index: int, needs: frozenset[str], readable) -> GraphView:
    """A view whose stream holds the canary as label of every node that may not be read."""
    stream = TaskStream(graph, Protocol(validation_fraction=0.2))
    nodes = readable(stream)
    hidden = torch.ones(stream.labels.numel(), dtype=torch.bool)
    hidden[nodes] = False
    stream.labels[hidden] = CANARY
    view = stream.view(index, needs)
    adjacency = view.adjacency
    _ = adjacency.degree, adjacency.keys, adjacency.by_source, adjacency.with_self_loops.keys
    return view


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("sparse", [False, True])
def test_view_holds_no_label_but_those_of_current_training_nodes(make_graph, index, sparse):
    graph = make_graph(sparse=sparse)
    view = poisoned_view(graph, index, frozenset(), lambda s: s.tasks[index].train_nodes)
    found = dict(tensors(view))
    assert {".train_nodes", ".train_labels", ".adjacency.src"} <= set(found)
    for path, tensor in found.items():
        assert not (whole_storage(tensor) == CANARY).any(), path
    assert set(view.train_labels.tolist()) == set(view.new_classes)


def test_view_label_walk_catches_a_planted_leak(make_graph):
    stream = TaskStream(make_graph(), Protocol())
    stream.labels[stream.tasks[0].test_nodes] = CANARY
    leaks = [
        # A granted test set, and a slice whose memory goes on to forbidden labels.
        dataclasses.replace(stream.view(0), grants={"test": stream.evaluation(0)}),
        dataclasses.replace(stream.view(0), train_labels=stream.labels[:1]),
    ]
    for view in leaks:
        assert any((whole_storage(tensor) == CANARY).any() for _, tensor in tensors(view))
    with pytest.raises(AssertionError):
        list(tensors(dataclasses.replace(stream.view(0), grants={"all": stream})))


def test_view_with_old_labels_holds_no_other_label(make_graph):
    needs = frozenset({"old_labels"})
    view = poisoned_view(
        make_graph(), 1, needs, lambda s: torch.cat([task.train_nodes for task in s.tasks[:2]])
    )
    for path, tensor in tensors(view):
        assert not (whole_storage(tensor) == CANARY).any(), path


def test_view_with_validation_holds_no_other_label(make_graph):
    view = poisoned_view(
        make_graph(),
        1,
        frozenset({"validation"}),
        lambda s: torch.cat([s.tasks[1].train_nodes, s.tasks[1].validation_nodes]),
    )
    for path, tensor in tensors(view):
        assert not (whole_storage(tensor) == CANARY).any(), path


def test_view_names_no_node_that_has_not_come(make_graph):
    stream = TaskStream(make_graph(), Protocol())
    view = stream.view(0)
    for tensor in (view.adjacency.src, view.adjacency.dst, view.train_nodes):
        assert int(whole_storage(tensor).max()) < view.num_nodes


def test_view_does_not_change_with_later_nodes(make_graph):
    graph = make_graph()
    stream = TaskStream(graph, Protocol())
    later = stream.original_ids[stream.tasks[0].num_nodes :]
    x = graph.x.clone()
    x[later] = 99.0
    touches = torch.isin(graph.edges, later).any(dim=0)
    changed = TaskStream(
        dataclasses.replace(graph, x=x, edges=graph.edges[:, ~touches]), Protocol()
    )
    first, second = (dict(tensors(s.view(0))) for s in (stream, changed))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[path], second[path]) for path in first)


# Grants.


@pytest.mark.parametrize("name", ["granted_labels", "granted_nodes", "validation"])
def test_view_grants_are_absent_unless_granted(make_graph, name):
    stream = TaskStream(make_graph(), Protocol(validation_fraction=0.1))
    for index in range(stream.num_tasks):
        assert not hasattr(stream.view(index), name)
        assert not hasattr(stream.view(index, frozenset({"attention"})), name)


def test_view_grants_only_what_was_asked(make_graph):
    stream = TaskStream(make_graph(), Protocol(validation_fraction=0.1))
    old = stream.view(1, frozenset({"old_labels"}))
    assert hasattr(old, "granted_labels")
    assert not hasattr(old, "validation")
    validation = stream.view(1, frozenset({"validation"}))
    assert hasattr(validation, "validation")
    assert not hasattr(validation, "granted_labels")


def test_view_granted_labels_are_exactly_those_of_earlier_training_nodes(make_graph):
    graph = make_graph(num_classes=6)
    stream = TaskStream(graph, Protocol(validation_fraction=0.2))
    needs = frozenset({"old_labels"})
    for index in range(stream.num_tasks):
        view = stream.view(index, needs)
        expected = [node for task in stream.tasks[:index] for node in task.train_nodes.tolist()]
        assert sorted(view.granted_nodes.tolist()) == sorted(expected)
        assert torch.equal(view.granted_labels, stream.labels[view.granted_nodes])
        assert view.granted_labels.dtype == torch.int64
        assert not set(view.granted_nodes.tolist()) & set(view.train_nodes.tolist())


def test_view_validation_is_the_current_tasks(make_graph):
    stream = TaskStream(make_graph(), Protocol(validation_fraction=0.2))
    granted = stream.view(1, frozenset({"validation"})).validation
    assert torch.equal(granted.nodes, stream.tasks[1].validation_nodes)
    assert torch.equal(granted.labels, stream.labels[granted.nodes])


def test_view_to_a_device_keeps_everything(make_graph):
    stream = TaskStream(make_graph(sparse=True), Protocol())
    view = stream.view(1, frozenset({"old_labels"}))
    moved = view.to("cpu")
    first, second = dict(tensors(view)), dict(tensors(moved))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[path], second[path]) for path in first)
    assert (moved.task, moved.num_classes, moved.new_classes) == (1, 4, (2, 3))


# Evaluation.


@given(seed=st.integers(0, 100), pooled=st.booleans())
def test_evaluation_sets_are_disjoint_from_training(make_graph, seed, pooled):
    protocol = Protocol(validation_fraction=0.2, pooled=pooled)
    stream = TaskStream(make_graph(num_nodes=60), protocol, seed)
    training = {node for task in stream.tasks for node in task.train_nodes.tolist()}
    tests = [set(stream.evaluation(index).nodes.tolist()) for index in range(stream.num_tasks)]
    assert not training & set().union(*tests)
    assert sum(map(len, tests)) == len(set().union(*tests))
    tuning = TaskStream(
        make_graph(num_nodes=60), protocol.model_copy(update={"evaluate": "validation"}), seed
    )
    for index, task in enumerate(tuning.tasks):
        judged = tuning.evaluation(index)
        assert torch.equal(judged.nodes, task.validation_nodes)
        assert not set(judged.nodes.tolist()) & (training | tests[index])


def test_evaluation_has_the_labels_of_its_task(make_graph):
    stream = TaskStream(make_graph(num_classes=5), Protocol())
    for index, task in enumerate(stream.tasks):
        judged = stream.evaluation(index)
        assert torch.equal(judged.nodes, task.test_nodes)
        assert torch.equal(judged.labels, stream.labels[task.test_nodes])
        assert set(judged.labels.tolist()) == set(task.classes)
