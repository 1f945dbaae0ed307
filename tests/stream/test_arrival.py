"""Streams in which known classes come again: blurred borders, batches, parts of the graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.stream.arrival import blurred, by_neighbours, drifting
from evergraph.stream.datasets import SyntheticConfig, generate
from support import seeded

GRAPH = generate(SyntheticConfig(nodes=240, classes=6, feature_dim=8, mean_degree=4))
NEW = ("blurry:0.3", "task-free:40", "domain:4")


def held_out(stream: TaskStream) -> set[int]:
    """Original ids of all test nodes."""
    return {int(i) for t in stream.tasks for i in stream.original_ids[t.test_nodes]}


def test_blurred_by_hand():
    labels = torch.tensor([0] * 10 + [1] * 4)
    home = torch.tensor([0] * 10 + [1] * 4)
    come = blurred(labels, home, 3, 0.5, seeded())
    # Half of ten nodes leave task 0, three and two of them to the others; two leave task 1.
    assert sorted(torch.bincount(come[:10]).tolist()) == [2, 3, 5]
    assert int((come[:10] == 0).sum()) == 5
    assert torch.bincount(come[10:], minlength=3).tolist() == [1, 2, 1]
    assert torch.equal(blurred(labels, home, 3, 0.0, seeded()), home)
    assert torch.equal(blurred(labels, home * 0, 1, 0.5, seeded()), home * 0)


def test_drifting_keeps_classes_in_order_and_lets_them_overlap():
    labels = torch.arange(4).repeat_interleave(500)
    place = drifting(labels, 4, seeded())
    middles = [float(place[labels == label].mean()) for label in range(4)]
    assert middles == pytest.approx([250, 750, 1250, 1750], abs=40)
    assert float(place[labels == 0].max()) > float(place[labels == 1].min())
    assert float(place[labels == 0].max()) < float(place[labels == 3].quantile(0.5))


def test_by_neighbours_walks_along_a_path():
    # A path through nodes in a shuffled order: neighbours come one after the other.
    path = torch.randperm(20, generator=seeded(1))
    graph = Graph.build(
        "path", torch.zeros(20, 1), torch.stack([path[:-1], path[1:]]), torch.zeros(20).long()
    )
    place = by_neighbours(graph, torch.arange(20))
    assert sorted(place[path].tolist()) in (place[path].tolist(), place[path].flip(0).tolist())


@pytest.mark.parametrize("kind", NEW)
def test_stream_splits_as_a_class_stream_does(kind):
    mine, plain = (
        TaskStream(GRAPH, Protocol(stream=stream, validation_fraction=0.1), 3)
        for stream in (kind, "class")
    )
    assert held_out(mine) == held_out(plain)
    assert sorted(mine.original_ids.tolist()) == sorted(plain.original_ids.tolist())
    assert mine.edges.shape == plain.edges.shape
    names = {
        int(i): mine.class_names[k] for i, k in zip(mine.original_ids, mine.labels, strict=True)
    }
    for node, label in zip(plain.original_ids.tolist(), plain.labels.tolist(), strict=True):
        assert names[node] == plain.class_names[label]


@pytest.mark.parametrize("kind", NEW)
@pytest.mark.parametrize("seeds", [(0, 0), (0, 1)])
def test_stream_hangs_on_the_seed_alone(kind, seeds):
    protocol = Protocol(stream=kind)
    first, second = (TaskStream(GRAPH, protocol, seed) for seed in seeds)
    same = torch.equal(first.original_ids, second.original_ids)
    assert held_out(first) == held_out(second) if seeds == (0, 0) else not same
    assert same == (seeds == (0, 0))
    fixed = [TaskStream(GRAPH, Protocol(stream=kind, split_seed=5), seed) for seed in seeds]
    assert torch.equal(fixed[0].original_ids, fixed[1].original_ids)


def test_blurry_stream_without_strays_is_the_class_stream():
    mine, plain = (TaskStream(GRAPH, Protocol(stream=s), 1) for s in ("blurry:0", "class"))
    for name in ("original_ids", "labels", "features", "edges"):
        assert torch.equal(getattr(mine, name), getattr(plain, name)), name
    assert mine.class_names == plain.class_names
    for one, other in zip(mine.tasks, plain.tasks, strict=True):
        for key, value in vars(one).items():
            there = getattr(other, key)
            same = torch.equal(value, there) if isinstance(value, torch.Tensor) else value == there
            assert same, key


def test_blurry_stream_sends_a_share_of_every_class_to_every_other_task():
    stream = TaskStream(GRAPH, Protocol(stream="blurry:0.3"))
    assert stream.tasks[0].num_classes == 6  # strays of every class
    assert stream.tasks[1].classes == ()
    ends = [0, *(task.num_nodes for task in stream.tasks)]
    for label in range(6):
        counts = [int((stream.labels[a:b] == label).sum()) for a, b in pairwise(ends)]
        away, home = sorted(counts)[:2], max(counts)
        assert home / sum(counts) == pytest.approx(0.7, abs=0.03)
        assert abs(away[0] - away[1]) <= 2
        assert counts.index(home) == label // 2


def test_task_free_stream_has_batches_of_about_the_size():
    stream = TaskStream(GRAPH, Protocol(stream="task-free:40"))
    ends = [0, *(task.num_nodes for task in stream.tasks)]
    sizes = [b - a for a, b in pairwise(ends)]
    assert len(sizes) == 6
    assert all(30 <= size <= 50 for size in sizes)
    assert stream.step_names == tuple(f"batch {i}" for i in range(1, 7))
    assert any(task.classes == () for task in stream.tasks)


def test_domain_stream_parts_the_graph_and_not_the_classes():
    graph = generate(SyntheticConfig(nodes=400, classes=2, mean_degree=3, homophily=0.5))
    stream = TaskStream(graph, Protocol(stream="domain:4"))
    assert [task.classes for task in stream.tasks] == [(0, 1), (), (), ()]
    task_of = torch.bucketize(
        torch.arange(400), torch.tensor([task.num_nodes for task in stream.tasks]), right=True
    )
    inside = (task_of[stream.edges[0]] == task_of[stream.edges[1]]).float().mean()
    assert float(inside) > 0.3  # a quarter by chance


@given(
    kind=st.sampled_from([*NEW, "blurry:0.9", "task-free:60"]),
    validation=st.sampled_from([0.0, 0.3]),
    order=st.sampled_from(["label", "random:1"]),
    seed=st.integers(0, 20),
)
def test_stream_is_prefixes_and_judges_no_unknown_class(kind, validation, order, seed):
    protocol = Protocol(stream=kind, validation_fraction=validation, order=order)
    stream = TaskStream(GRAPH, protocol, seed)
    begin, known = 0, 0
    assert stream.num_tasks == len(stream.step_names)
    for task in stream.tasks:
        parts = torch.cat([task.train_nodes, task.validation_nodes, task.test_nodes])
        assert parts.sort().values.tolist() == list(range(begin, task.num_nodes))
        ids = stream.original_ids[begin : task.num_nodes]
        assert torch.equal(ids, ids.sort().values)
        assert task.classes == tuple(range(known, task.num_classes))
        learned = stream.labels[torch.cat([t.train_nodes for t in stream.tasks[: task.index + 1]])]
        assert learned.unique().tolist() == list(range(task.num_classes))
        assert int(stream.labels[begin : task.num_nodes].max()) < task.num_classes
        later = stream.edges[:, : task.num_edges].max(dim=0).values
        assert bool((later < task.num_nodes).all())
        begin, known = task.num_nodes, task.num_classes
    assert known == 6
    assert begin == 240


@pytest.mark.parametrize(
    "text",
    [
        *("blurry", "blurry:1.5", "blurry:1", "blurry:-0.1", "blurry:nan", "blurry:"),
        *("task-free:0", "task-free:1e3", "task-free:", "domain:1", "domain:0", "domain:x"),
        *("time:3", "clas", ""),
    ],
)
def test_protocol_refuses_a_wrong_stream_in_one_sentence(text):
    with pytest.raises(ValueError, match=r"Expected 'stream' class, time, blurry:P") as told:
        Protocol(stream=text)
    assert f"(got '{text}')" in str(told.value)


def test_streams_that_are_too_small_are_refused_in_one_sentence():
    with pytest.raises(InputError, match=r"at most 240 parts for .*\(got 'domain:500'\)"):
        TaskStream(GRAPH, Protocol(stream="domain:500"))
    with pytest.raises(InputError, match=r"to have a (test|train) node.*take larger batches"):
        TaskStream(GRAPH, Protocol(stream="task-free:1"))
    with pytest.raises(InputError, match=r"to have a (test|train) node.*take fewer parts"):
        TaskStream(GRAPH, Protocol(stream="domain:200"))


def test_protocol_writes_equal_streams_alike():
    assert Protocol(stream="blurry:.30") == Protocol(stream="blurry:0.3")
    assert Protocol(stream="task-free") == Protocol(stream="task-free:100")
    assert Protocol(stream="domain").hash == Protocol(stream="domain:5").hash
    texts = ["class", "time", "blurry:0.3", "blurry:0.2", "task-free", "domain"]
    assert len({Protocol(stream=text).hash for text in texts}) == 6
    back = Protocol.model_validate_json(Protocol(stream="blurry:0.3").model_dump_json())
    assert (back.kind, back.amount) == ("blurry", 0.3)
    assert Protocol(stream="domain").unused == {"classes_per_task"}
    assert Protocol(stream="blurry:0.3").unused == frozenset()
