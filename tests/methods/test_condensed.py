"""Condensed memories: budgets, classes that come again, what CaT, PUMA and DeLoMe match."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.events import TaskDone
from evergraph.memory.synthetic import SyntheticNodes
from evergraph.methods import METHODS, TaskContext, TrainConfig, make_method
from evergraph.methods.condensed import CondensedConfig, Condensing, class_means
from evergraph.nn import ModelConfig
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.train import Learner, train
from support import seeded

CONDENSED = [name for name, cls in METHODS.items() if issubclass(cls, Condensing)]
MODEL, TRAINING = ModelConfig(channels=4, heads=2), TrainConfig(epochs=2)


def test_condensed_methods_are_these():
    assert CONDENSED == ["cat", "puma", "delome"]


def test_synthetic_nodes_share_the_budget_and_begin_where_nodes_are():
    memory, x = SyntheticNodes(6), torch.arange(12.0)[:, None]
    memory.admit(x[:8], torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]), seeded())
    assert memory.labels.tolist() == [0, 0, 0, 0, 1]  # 6 · 6/8 and 6 · 2/8, rounded down
    assert set(memory.rows[:4, 0].tolist()) <= set(range(6))
    first = memory.rows[:3]
    memory.admit(x[8:], torch.tensor([2, 2, 2, 2]), seeded())
    assert memory.counts == {0: 6, 1: 2, 2: 4}
    assert memory.labels.tolist() == [0, 0, 0, 1, 2, 2]
    assert torch.equal(memory.rows[:3], first)  # the first of those it had
    assert set(memory.rows[4:, 0].tolist()) <= {8.0, 9.0, 10.0, 11.0}


def test_no_class_has_more_synthetic_nodes_than_allowed():
    memory = SyntheticNodes(50, most=3)
    memory.admit(torch.rand(20, 2, generator=seeded()), torch.arange(20) % 2, seeded())
    assert memory.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_fewer_synthetic_nodes_than_classes_are_refused_in_a_sentence():
    memory = SyntheticNodes(1)
    with pytest.raises(InputError, match="'buffer_size' of at least the number of classes, 2"):
        memory.admit(torch.rand(2, 2, generator=seeded()), torch.tensor([0, 1]), seeded())
    assert len(memory) == 0
    assert memory.counts == {}


def test_class_means_average_the_rows_of_each_class():
    rows = torch.tensor([[1.0], [3.0], [5.0]])
    assert (class_means(torch.tensor([2, 0, 2]), 4) @ rows).tolist() == [[3], [0], [3], [0]]


def learner_of(graph: Graph, name: str, tasks: int, **settings: Any) -> Learner:
    learner = Learner(make_method(name, {"buffer_size": 12, **settings}))
    stream = TaskStream(graph, Protocol(), 0)
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone) and event.task == tasks - 1:
            break
    return learner


@pytest.mark.parametrize("name", CONDENSED)
def test_condensation_brings_statistics_closer(make_graph: Callable[..., Graph], name: str):
    found, learner = [], Learner(make_method(name, {"buffer_size": 6, "condense_lr": 0.03}))
    stream = TaskStream(make_graph(80, 4), Protocol(), 0)
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if getattr(event, "stage", None) == "condense":
            found.append(float(event.loss))
        if isinstance(event, TaskDone):
            break
    assert len(found) == 300
    assert sum(found[-30:]) < 0.7 * sum(found[:30])


@pytest.mark.parametrize("name", CONDENSED)
def test_what_gets_nothing_new_and_keeps_its_share_stays(make_graph: Any, name: str):
    learner = Learner(make_method(name, {"buffer_size": 60, "condense_steps": 5}))
    learner.method.memory.most, seen = 2, []  # rows of every class, however many come
    events = train(learner, TaskStream(make_graph(60, 6), Protocol(), 0), MODEL, TRAINING, seed=0)
    for event in events:
        if isinstance(event, TaskDone) and event.task < 2:
            seen.append(learner.method.memory.rows.clone())
    assert [len(rows) for rows in seen] == [4, 8]
    assert torch.equal(seen[1][:4], seen[0])


class Means(Condensing[CondensedConfig]):
    """Matches the plain means of rows: no network."""

    def redraw(self, ctx: TaskContext) -> None:
        """Draws nothing."""

    def statistics(self, ctx: TaskContext, rows: torch.Tensor, labels: torch.Tensor):
        """Averages rows."""
        return class_means(labels, ctx.view.num_classes) @ rows


@pytest.mark.parametrize("batch_size", [None, 3])
def test_class_that_comes_again_is_matched_with_what_it_was(make_graph: Any, batch_size):
    _, ctx = context(make_graph(60, 6), "puma")
    ctx.batch_size = batch_size
    method, zeros = Means(CondensedConfig(buffer_size=2, condense_lr=0.05)), torch.zeros(6).long()
    list(method.condense(ctx, torch.ones(6, 3), zeros))
    assert torch.equal(method.memory.rows, torch.ones(2, 3))
    list(method.condense(ctx, torch.full((2, 3), 5.0), zeros[:2]))
    # Six nodes of 1 and two of 5 have the mean 2.
    torch.testing.assert_close(
        method.memory.rows.mean(dim=0), torch.full((3,), 2.0), atol=0.2, rtol=0
    )
    list(method.condense(ctx, torch.full((8, 3), -1.0), zeros[:1].repeat(8) + 1))
    # Now a class has one row each; that of the first class stands for the mean of what it had.
    assert method.memory.labels.tolist() == [0, 1]
    torch.testing.assert_close(method.memory.rows[0], torch.full((3,), 2.0), atol=0.2, rtol=0)


def context(graph: Graph, name: str) -> tuple[Any, TaskContext]:
    learner = learner_of(graph, name, 1, condense_steps=2)
    assert learner.context is not None
    return learner.method, learner.context


def test_delome_matches_the_gradient_of_a_linear_softmax(make_graph: Callable[..., Graph]):
    method, ctx = context(make_graph(60, 6), "delome")
    rows = torch.randn(9, 5, generator=seeded())
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0, 0, 1])
    weight = torch.randn(5, 2, generator=seeded(1)).requires_grad_()
    method.weight = weight.detach()
    found = method.statistics(ctx, rows, labels)
    for label in (0, 1):
        some = labels == label
        loss = functional.cross_entropy(rows[some] @ weight, labels[some])
        (expected,) = torch.autograd.grad(loss, weight)
        torch.testing.assert_close(found[label], expected)


def test_delome_raises_logits_by_how_often_a_class_is_there(make_graph: Callable[..., Graph]):
    method, ctx = context(make_graph(60, 6), "delome")
    labels = torch.cat([ctx.view.train_labels, method.memory.labels])
    method.begin_task(ctx)
    frequency = torch.bincount(labels).double() / labels.numel()
    torch.testing.assert_close(method._prior, frequency.log().float())


def test_cat_matches_the_encoder_on_the_graph(make_graph: Callable[..., Graph]):
    # On a graph without edges, nodes and their copies have the same means.
    method, ctx = context(make_graph(60, 6, average_degree=0.0), "cat")
    steps = method.fit_task(ctx)
    next(steps)  # inside of the condensation
    x, labels = ctx.view.features[ctx.view.train_nodes], ctx.view.train_labels
    on_graph, _ = method.node_statistics(ctx, x, labels)
    torch.testing.assert_close(on_graph, method.statistics(ctx, x, labels))
    before = on_graph.clone()
    with torch.no_grad():
        method.redraw(ctx)
    assert not torch.allclose(method.statistics(ctx, x, labels), before)


def test_puma_labels_no_node_that_is_judged(make_graph: Callable[..., Graph]):
    graph = make_graph(60, 6)
    stream = TaskStream(graph, Protocol(validation_fraction=0.2), 0)
    for task in range(stream.num_tasks):
        assert stream.view(task, METHODS["puma"].needs).unjudged.numel() == 0
        assert stream.view(task).unjudged.numel() == 0
    assert "pseudo_labelled" not in learner_of(graph, "puma", 2, condense_steps=2).context.report


def test_puma_labels_nodes_that_nobody_judges(make_graph: Callable[..., Graph]):
    stream = TaskStream(make_graph(60, 6), Protocol(), 0)
    free, judged = stream.tasks[0].test_nodes.split([2, stream.tasks[0].test_nodes.numel() - 2])
    first = dataclasses.replace(stream.tasks[0], test_nodes=judged)
    stream.tasks = (first, *stream.tasks[1:])
    assert stream.view(0, METHODS["puma"].needs).unjudged.tolist() == free.tolist()
    assert stream.view(0).unjudged.numel() == 0  # for who does not declare it
    learner = Learner(make_method("puma", {"condense_steps": 2, "confidence": 0.0}))
    stages = set()
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        stages.add(getattr(event, "stage", None))
        if isinstance(event, TaskDone):
            break
    assert event.report == {"pseudo_labelled": 2}
    assert "pseudo-labels" in stages
    assert sum(learner.method.memory.counts.values()) == first.train_nodes.numel() + 2
