"""Time streams: nodes and edges come when they came, and all that is seen is a prefix."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.stream.datasets import SyntheticConfig, generate, read_plain, write_plain

# By hand: ten nodes, three steps. An edge is stored twice, with two times; one is a self-loop;
# 1-5 and 4-7 come later than both their ends.
#
#   node       0  1  2  3  4  5  6  7  8  9
#   time       1  0  0  2  1  0  2  0  1  2
#   label      2  1  1  0  2  1  0  1  1  2

TIME = torch.tensor([1, 0, 0, 2, 1, 0, 2, 0, 1, 2])
LABELS = torch.tensor([2, 1, 1, 0, 2, 1, 0, 1, 1, 2])
EDGES = torch.tensor([[1, 1, 2, 0, 4, 3, 5], [2, 5, 1, 1, 7, 9, 5]])
EDGE_TIME = torch.tensor([0, 2, 1, 1, 2, 2, 0])
NUMBERS = torch.arange(10.0)[:, None]


def by_hand(**changes) -> Graph:
    given = {"time": TIME, "edge_time": EDGE_TIME, "times": ("a", "b", "c")} | changes
    return Graph.build("by-hand", NUMBERS, EDGES, LABELS, ("p", "q", "r"), **given)


STREAM = TaskStream(by_hand(), Protocol(stream="time"))


def test_graph_dates_an_edge_by_its_first_time():
    graph = by_hand()
    assert graph.edges.T.tolist() == [[0, 1], [1, 2], [1, 5], [3, 9], [4, 7]]
    assert graph.edge_time.tolist() == [1, 0, 2, 2, 2]


def test_graph_without_edge_times_dates_edges_by_their_later_end():
    assert by_hand(edge_time=None).edge_time.tolist() == [1, 0, 0, 2, 1]
    assert by_hand(times=()).times == ("0", "1", "2")


def test_graph_takes_any_numbers_as_times():
    years = {"time": 2016 + 3 * TIME, "edge_time": 2016 + 3 * EDGE_TIME, "times": ()}
    graph = by_hand(**years)
    assert graph.times == ("2016", "2019", "2022")
    assert torch.equal(graph.time, TIME)
    assert torch.equal(graph.edge_time, by_hand().edge_time)
    # A year without nodes is no step: an edge of 2020 comes with the nodes of 2022.
    between = by_hand(
        **years
        | {"edge_time": torch.tensor([2016, 2020, 2019, 2020, 2022, 2022, 0]).clamp(min=2016)}
    )
    assert between.edge_time.tolist() == [2, 0, 2, 2, 2]


def test_stream_orders_nodes_by_time_then_original_id_by_hand():
    assert STREAM.original_ids.tolist() == [1, 2, 5, 7, 0, 4, 8, 3, 6, 9]
    assert STREAM.features.flatten().tolist() == STREAM.original_ids.tolist()
    assert STREAM.class_names == ("q", "r", "p")
    assert STREAM.step_names == ("a", "b", "c")
    assert STREAM.labels.tolist() == [0, 0, 0, 0, 1, 1, 0, 2, 2, 1]
    assert [task.num_nodes for task in STREAM.tasks] == [4, 7, 10]
    assert [task.classes for task in STREAM.tasks] == [(0,), (1,), (2,)]
    assert [task.num_classes for task in STREAM.tasks] == [1, 2, 3]


def test_stream_orders_edges_by_when_they_come_by_hand():
    assert STREAM.edges.T.tolist() == [[0, 1], [0, 4], [0, 2], [3, 5], [7, 9]]
    assert [task.num_edges for task in STREAM.tasks] == [1, 2, 5]


def test_stream_splits_every_class_in_every_step_by_hand():
    # 30 % of 4, 2, 1, 2 and 1 nodes are 1, 1, 0, 1 and 0: a single node is learned.
    tested = [STREAM.labels[task.test_nodes].tolist() for task in STREAM.tasks]
    learned = [STREAM.labels[task.train_nodes].tolist() for task in STREAM.tasks]
    assert tested == [[0], [1], [2]]
    assert learned == [[0, 0, 0], [1, 0], [2, 1]]


def test_stream_split_hangs_on_the_seed():
    graph = generate(SyntheticConfig(nodes=200, steps=3))
    splits = [TaskStream(graph, Protocol(stream="time"), seed) for seed in (0, 0, 1)]
    first, again, other = (torch.cat([task.test_nodes for task in s.tasks]) for s in splits)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_stream_view_by_hand():
    view = STREAM.view(1, frozenset({"old_labels"}))
    assert (view.num_nodes, view.num_old, view.num_classes, view.new_classes) == (7, 4, 2, (1,))
    edges = sorted(zip(view.adjacency.src.tolist(), view.adjacency.dst.tolist(), strict=True))
    assert edges == [(0, 1), (0, 4), (1, 0), (4, 0)]
    assert sorted(view.train_labels.tolist()) == [0, 1]
    assert view.granted_labels.tolist() == [0, 0, 0]


def test_unlabelled_view_keeps_the_graph_alone():
    view = STREAM.view(2, frozenset({"old_labels"})).unlabelled(2)
    assert (view.num_nodes, view.num_classes, view.new_classes) == (10, 2, ())
    assert view.train_nodes.numel() == view.train_labels.numel() == 0
    assert not view.grants


@given(
    steps=st.integers(2, 6),
    classes=st.integers(2, 6),
    validation=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 20),
)
def test_stream_in_time_is_prefixes(steps, classes, validation, seed):
    config = SyntheticConfig(nodes=120, classes=classes, steps=steps, mean_degree=4, seed=seed)
    graph = generate(config)
    stream = TaskStream(graph, Protocol(stream="time", validation_fraction=validation), seed)
    time = graph.time[stream.original_ids]
    assert torch.equal(time, time.sort().values)
    pairs = map(tuple, graph.edges.T.tolist())
    dates = dict(zip(pairs, graph.edge_time.tolist(), strict=True))
    come = [dates[tuple(sorted(stream.original_ids[edge].tolist()))] for edge in stream.edges.T]
    assert come == sorted(come)
    assert len(come) == graph.num_edges
    for task in stream.tasks:
        assert task.num_nodes == int((time <= task.index).sum())
        assert task.num_edges == sum(step <= task.index for step in come)
        assert bool((stream.edges[:, : task.num_edges] < task.num_nodes).all())
        parts = torch.cat([task.train_nodes, task.validation_nodes, task.test_nodes])
        mine = torch.nonzero(time == task.index).flatten()
        assert torch.equal(parts.sort().values, mine)
        # Every class of the step is learned in it, so that no unknown class is judged.
        learned = set(stream.labels[task.train_nodes].tolist())
        assert learned == set(stream.labels[mine].tolist())
        assert max(learned) < task.num_classes


def test_class_stream_of_a_dated_graph_takes_no_notice():
    graph, plain = generate(SyntheticConfig(steps=3)), generate(SyntheticConfig())
    assert torch.equal(graph.edges, plain.edges)
    assert graph.fingerprint != plain.fingerprint
    first, second = (TaskStream(g, Protocol()) for g in (graph, plain))
    assert torch.equal(first.edges, second.edges)
    assert torch.equal(first.original_ids, second.original_ids)
    assert first.step_names == ()


def test_plain_file_keeps_times_and_names(tmp_path):
    graph = by_hand(node_names=tuple("abcdefghij"))
    write_plain(graph, tmp_path / "dated.npz")
    back = read_plain(tmp_path / "dated.npz")
    assert back.fingerprint == graph.fingerprint
    assert (back.times, back.node_names) == (graph.times, graph.node_names)
    assert torch.equal(back.time, graph.time)
    assert torch.equal(back.edge_time, graph.edge_time)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"time": TIME[:9]}, r"Expected 'time' with one value per node, 10 \(got 9\)"),
        ({"time": TIME - 1}, r"Expected 'time' in \[0, 2\].*\(got -1 to 1\)"),
        ({"edge_time": EDGE_TIME[:3]}, r"one time per stored edge, 7 \(got 3\)"),
        ({"edge_time": EDGE_TIME * 0}, r"no earlier than both its ends \(got 3 that do\)"),
        ({"edge_time": EDGE_TIME + 1}, r"Expected 'edge_time' in \[0, 2\].*1 to 3"),
        ({"times": ("a", "b")}, r"Expected 'time' in \[0, 1\].*\(got 0 to 2\)"),
        ({"node_names": ("a",)}, r"Expected 'names' with one value per node, 10 \(got 1\)"),
    ],
)
def test_graph_refuses_wrong_times(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        by_hand(**changes)


def test_stream_in_time_refuses_what_it_cannot_do(make_graph):
    with pytest.raises(InputError, match=r"Expected 'time' in 'tiny' for a time stream"):
        TaskStream(make_graph(), Protocol(stream="time"))
    with pytest.raises(InputError, match=r"task 3 of 'by-hand' to have a test node.*leave that"):
        TaskStream(by_hand(times=("a", "b", "c", "d")), Protocol(stream="time"))
    with pytest.raises(ValueError, match="Expected 'pooled' false in a time stream"):
        Protocol(stream="time", pooled=True)


def test_protocol_of_classes_keeps_the_hash_it_had():
    assert Protocol().hash == "5aad0d42b931e057"
    assert Protocol(stream="time").hash != Protocol().hash
    assert Protocol.model_validate_json(Protocol(stream="time").model_dump_json()).stream == "time"
