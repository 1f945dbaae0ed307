"""Diagnostics by hand: planted embeddings, a planted buffer, a graph before and after."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import pytest
import torch

from evergraph.events import TaskDone
from evergraph.lab.diagnostics import Diagnostics, node_homophily
from evergraph.methods import TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Adjacency, LabelledNodes, Protocol, TaskStream
from evergraph.train import Learner, train

# Nodes 0 1 2 3 train and 4 tests class 0, in task 0; 5 6 train, 7 8 test class 1, in task 1.
#
#   before: 0-1, 1-4, 1-5, 5-7, 6-7      after: 1-5 is gone, 2-3 and 3-6 are new
#   buffer: nodes 3 and 1 of class 0

LABELS = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1])
TASKS = [
    SimpleNamespace(index=0, classes=(0,), train_nodes=torch.tensor([0, 1, 2, 3])),
    SimpleNamespace(index=1, classes=(1,), train_nodes=torch.tensor([5, 6])),
]
JUDGED = [torch.tensor([4]), torch.tensor([7, 8])]
STREAM = SimpleNamespace(
    tasks=TASKS,
    num_tasks=2,
    labels=LABELS,
    original_ids=torch.arange(9),
    evaluation=lambda task: LabelledNodes(JUDGED[task], LABELS[JUDGED[task]]),
)
FIRST_H = torch.tensor([[0.0], [1.0], [2.0], [10.0], [7.0]])  # of task 0's model
LAST_H = torch.tensor([[0.0], [0.0], [0.0], [0.0], [5.0], [0.0], [2.0], [4.0], [2.0]])
PREDICTED = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 0])  # node 8 is taken for class 0


def graph(*pairs: tuple[int, int]) -> Adjacency:
    edges = torch.tensor(pairs).T
    return Adjacency.from_edges(torch.cat([edges, edges.flip(0)], dim=1), 9)


BEFORE = graph((0, 1), (1, 4), (1, 5), (5, 7), (6, 7))
AFTER = graph((0, 1), (1, 4), (5, 7), (6, 7), (2, 3), (3, 6))


def learner_at(task: int, *, buffer: bool = True, predicted=PREDICTED) -> Learner:
    """A learner just after a task, with everything planted."""
    h = (FIRST_H, LAST_H)[task]
    train = TASKS[task].train_nodes
    view = SimpleNamespace(task=task, adjacency=BEFORE, train_nodes=train, shard=None)
    context = SimpleNamespace(
        view=view,
        adjacency=AFTER,
        final=task == 1,
        model="planted",
        embed=lambda nodes=None: h if nodes is None else h[nodes],
    )
    method = SimpleNamespace(
        buffer=SimpleNamespace(picks={0: torch.tensor([3, 1])}) if buffer else None,
        predict_logits=lambda ctx: torch.eye(2)[predicted],
    )
    return Learner(method, context=context)


def describe(**kwargs) -> dict:
    diagnostics = Diagnostics(STREAM)
    for task in range(2):
        diagnostics.after_task(learner_at(task, **kwargs))
    return diagnostics.result


def test_node_homophily_by_hand():
    nodes = torch.tensor([1, 3, 7, 0])
    assert node_homophily(BEFORE, nodes, LABELS).tolist() == pytest.approx([2 / 3, 0, 1, 1])
    assert node_homophily(AFTER, nodes, LABELS).tolist() == [1, 0.5, 1, 1]


def test_node_homophily_of_no_nodes_is_empty():
    assert node_homophily(BEFORE, torch.empty(0).long(), LABELS).numel() == 0


def test_buffer_diversity_by_hand():
    # Train 0 1 2 10 are 31/6 apart on average; the kept, 1 and 10, are 9 apart.
    found = describe()["buffer_diversity"]
    assert found["by_class"] == {"0": pytest.approx(9 / (31 / 6))}
    assert found["mean"] == pytest.approx(54 / 31)


def test_distance_from_centre_by_hand():
    # The centre is 13/4; the kept are 9/4 and 27/4 away, 4.5 on average.
    found = describe()["distance_from_centre"]
    assert found["by_class"] == {"0": pytest.approx(4.5 / (31 / 6))}
    assert found["mean"] == pytest.approx(27 / 31)


def test_buffer_is_seen_through_the_model_that_selected_it():
    # In the last model's eyes all of class 0 is one point, and there would be no ratio.
    assert describe()["buffer_diversity"]["mean"] is not None


def test_buffer_of_one_point_has_no_diversity(monkeypatch):
    monkeypatch.setitem(globals(), "FIRST_H", torch.zeros(5, 1))
    found = describe()
    for key in ("buffer_diversity", "distance_from_centre"):
        assert found[key] == {"mean": None, "by_class": {"0": None}}


def test_buffer_homophily_before_and_after_by_hand():
    found = describe()["buffer_homophily"]
    assert found["before"]["mean"] == pytest.approx(1 / 3)
    assert found["after"]["mean"] == pytest.approx(3 / 4)
    assert found["after"]["by_class"] == {"0": pytest.approx(3 / 4)}


def test_buffer_degrees_and_isolated_nodes_before_and_after_by_hand():
    found = describe()
    assert found["isolated_buffer_nodes"] == {"before": 1, "after": 0}
    assert found["buffer_degree"] == {"before": 1.5, "after": 2.0}
    assert found["buffer_sizes"] == {"0": 2}


def test_accuracy_by_degree_by_hand():
    # Before, test nodes 4 7 8 have degrees 1 2 0: the median is 1, only 7 lies above.
    assert describe()["degree_accuracy"] == {"low": 50.0, "high": 100.0}


def test_accuracy_by_degree_of_equal_degrees_has_no_high_half(monkeypatch):
    monkeypatch.setitem(globals(), "BEFORE", graph((4, 7), (5, 8)))
    found = describe()["degree_accuracy"]
    assert found == {"low": pytest.approx(200 / 3), "high": None}


def test_correct_diversity_by_hand():
    # Class 0: centre 0, node 4 is 5 away and right. Class 1: centre 1; nodes 7 and 8 are 3 and
    # 1 away, 2 on average, and only 7 is right.
    found = describe()["correct_diversity"]
    assert found["by_class"] == {"0": pytest.approx(1.0), "1": pytest.approx(1.5)}
    assert found["mean"] == pytest.approx(1.25)


def test_correct_diversity_of_a_class_never_right_is_left_out_of_the_mean():
    found = describe(predicted=torch.zeros(9).long())["correct_diversity"]
    assert found == {"mean": pytest.approx(1.0), "by_class": {"0": pytest.approx(1.0), "1": None}}


def test_diagnostics_without_buffer_say_nothing_of_it():
    found = describe(buffer=False)
    assert set(found) == {"degree_accuracy", "correct_diversity", "embedding_sample"}
    assert "b" not in found["embedding_sample"]["roles"]


def test_diagnostics_hold_samples_of_the_last_model_and_of_edits():
    found = describe()
    assert found["embedding_sample"]["roles"].startswith("bb")
    assert found["embedding_sample"]["nodes"].startswith("3 1 ")
    # Node 3 gained 2 and 6; node 1 lost 5, which is one edit only.
    assert found["edit_sample"][0]["node"] == 3
    assert found["edit_sample"][0]["states"] == "++"


# A whole run.

SETTINGS = {"buffer_size": 10, "link_epochs": 2, "num_candidates": 8, "num_neighbors": 2}
STAGES = (ModelConfig(channels=4, heads=2), TrainConfig(epochs=2))


def test_diagnostics_of_a_run_describe_the_buffer_and_the_edited_graph(make_graph):
    stream = TaskStream(make_graph(num_nodes=60, num_classes=6), Protocol())
    learner, diagnostics = Learner(make_method("dslr", SETTINGS)), Diagnostics(stream)
    for event in train(learner, stream, *STAGES, seed=0):
        if isinstance(event, TaskDone):
            diagnostics.after_task(learner)
    found, buffer = diagnostics.result, learner.method.buffer
    assert json.loads(json.dumps(found)) == found
    assert set(found["buffer_diversity"]["by_class"]) == {"0", "1", "2", "3"}
    assert sum(found["buffer_sizes"].values()) == len(buffer)
    ctx = learner.context
    for name, adjacency in (("before", ctx.view.adjacency), ("after", ctx.adjacency)):
        expected = adjacency.degree[buffer.nodes].float().mean().item()
        assert found["buffer_degree"][name] == pytest.approx(expected)


def test_diagnostics_continue_from_what_they_returned(make_graph):
    stream = TaskStream(make_graph(num_nodes=60, num_classes=6), Protocol())
    learner = Learner(make_method("replay", {"buffer_size": 10}))
    whole, resumed = Diagnostics(stream), Diagnostics(stream)
    for event in train(learner, stream, *STAGES, seed=0):
        if isinstance(event, TaskDone):
            remembered = whole.after_task(learner)
            if event.task < 2:
                resumed.restore(copy.deepcopy(remembered))
            else:
                resumed.after_task(learner)
    assert resumed.result == whole.result


def test_diagnostics_change_nothing_in_the_run(make_graph):
    stream = TaskStream(make_graph(num_nodes=60, num_classes=6), Protocol())
    ends = []
    for watched in (False, True):
        learner, diagnostics = Learner(make_method("dslr", SETTINGS)), Diagnostics(stream)
        for event in train(learner, stream, *STAGES, seed=0):
            if watched and isinstance(event, TaskDone):
                diagnostics.after_task(learner)
        ends.append(learner.method.predict_logits(learner.context))
    assert torch.equal(*ends)
