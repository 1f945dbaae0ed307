"""DSLR+: the loss is the formula, and the last network is asked about the declared nodes alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from batches import batches, quick
from evergraph.errors import InputError
from evergraph.estimator import step
from evergraph.events import Epoch, TaskDone
from evergraph.methods import METHODS, TaskContext, TrainConfig, dslr_plus, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2, dropout=0.0)
TRAINING = TrainConfig(epochs=3)
SMALL = {"buffer_size": 12, "link_epochs": 2, "num_candidates": 8, "num_neighbors": 2, "tau": 0.6}
DISTILLED = ["older", "training", "all"]


@pytest.fixture(scope="module")
def stream(make_graph) -> TaskStream:
    return TaskStream(make_graph(num_nodes=80, num_classes=6), Protocol(validation_fraction=0.1))


def plus(**settings) -> dslr_plus.DSLRPlus:
    return make_method("dslr+", SMALL | settings)


def learn(stream: TaskStream, method, training: TrainConfig = TRAINING):
    """Yields the learner after each task."""
    learner = Learner(method)
    for event in train(learner, stream, MODEL, training, seed=0):
        if isinstance(event, TaskDone):
            yield learner


def final_logits(stream: TaskStream, method, training: TrainConfig = TRAINING) -> torch.Tensor:
    *_, learner = learn(stream, method, training)
    return learner.method.predict_logits(learner.context)


def next_task(stream: TaskStream, method, **options) -> tuple[Learner, torch.Tensor, TaskContext]:
    """The learner after the first task, what it says of the next graph, and a context there."""
    learner = next(learn(stream, method))
    view = stream.view(1)
    with torch.no_grad():
        teacher = learner.model.eval()(view.features, view.adjacency).logits
    shape = {"model_config": MODEL, "training": TRAINING, "seed": 0, "final": False}
    ctx = TaskContext(view, model=learner.model, **shape, **options)
    learner.method.begin_task(ctx)
    return learner, teacher, ctx


def nodes_of(stream: TaskStream, distill_on: str) -> list[int]:
    """The nodes that the second task distils."""
    first = stream.tasks[0]
    counts = {"older": first.num_nodes, "all": stream.tasks[1].num_nodes}
    return first.train_nodes.tolist() if distill_on == "training" else [*range(counts[distill_on])]


@pytest.mark.parametrize("distill_on", DISTILLED)
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_dslr_plus_loss_is_the_formula(stream, distill_on, temperature):
    settings = {"beta": 0.7, "gamma": 0.3, "temperature": temperature, "structure": "none"}
    learner, teacher, ctx = next_task(stream, plus(distill_on=distill_on, **settings))
    with torch.no_grad():
        for parameter in ctx.model.parameters():
            parameter.add_(0.1 * torch.arange(parameter.numel()).view_as(parameter).sin())
    ctx.model.eval()
    logits, buffer = ctx.forward(), learner.method.buffer
    expected = 0.7 * torch.nn.functional.cross_entropy(
        logits[ctx.view.train_nodes], ctx.view.train_labels
    )
    expected = expected + 0.3 * torch.nn.functional.cross_entropy(
        logits[buffer.nodes], buffer.labels
    )
    nodes, distilled = nodes_of(stream, distill_on), torch.zeros(())
    columns = 2 if distill_on == "all" else 4  # old ones alone, or all: new ones are not theirs
    for node in nodes:
        target = torch.exp(teacher[node] / temperature)
        shown = torch.exp(logits[node, :columns] / temperature)
        shares = torch.log(shown / shown.sum())
        distilled -= (target / target.sum() * shares[:2]).sum()
    expected = expected + 0.3 * distilled / len(nodes)
    torch.testing.assert_close(learner.method.loss(ctx), expected)
    assert ctx.report["distillation"] == {"nodes": len(nodes)}


@pytest.mark.parametrize("distill_on", DISTILLED)
def test_dslr_plus_learns_from_no_other_node(stream, distill_on):
    # Where no loss reads a node's logits their gradient is 0: nothing is said of its class.
    learner, _, ctx = next_task(stream, plus(distill_on=distill_on, structure="none"))
    shown = torch.zeros(ctx.view.num_nodes, 4, requires_grad=True)
    ctx.forward = lambda nodes: shown[nodes]
    (gradient,) = torch.autograd.grad(learner.method.loss(ctx), shown)
    read = set(torch.nonzero(gradient.abs().sum(dim=1)).flatten().tolist())
    train_nodes, buffer = ctx.view.train_nodes.tolist(), learner.method.buffer.nodes.tolist()
    assert read == {*train_nodes, *buffer, *nodes_of(stream, distill_on)}


def test_dslr_plus_declares_what_it_learns_from():
    assert METHODS["dslr+"].needs == plus().needs == {"arrival", "unlabelled"}
    assert plus(distill_on="all").needs == {"unlabelled"}
    assert plus(distill_on="training").needs == plus(distill_on="none").needs == set()


def test_dslr_plus_without_distillation_is_dslr(stream):
    expected = final_logits(stream, make_method("dslr", SMALL | {"beta": 0.5}))
    assert torch.equal(final_logits(stream, plus(distill_on="none")), expected)
    torch.testing.assert_close(final_logits(stream, plus(gamma=0.0)), expected)


@pytest.mark.parametrize(
    "change",
    [
        {"distill_on": "training"},
        {"distill_on": "all"},
        {"distill_on": "none"},
        {"gamma": 2.0},
        {"temperature": 2.0},
        {"beta": 0.1},
        {"structure": "none"},
        {"selector": "random"},
        {"addition": "nearest"},
    ],
    ids=lambda change: "-".join(map(str, *change.items())),
)
def test_dslr_plus_has_a_switch_for_every_part(stream, change):
    assert not torch.equal(final_logits(stream, plus(**change)), final_logits(stream, plus()))


@pytest.mark.parametrize("distill_on", DISTILLED)
def test_dslr_plus_in_one_batch_with_all_neighbours_is_the_whole(stream, distill_on):
    settings = {"distill_on": distill_on, "structure": "none"}
    sampled = TRAINING.model_copy(update={"batch_size": 100, "fanout": 100})
    whole, batch = (final_logits(stream, plus(**settings), t) for t in (TRAINING, sampled))
    torch.testing.assert_close(batch, whole, rtol=1e-3, atol=1e-4)


def test_dslr_plus_distils_no_more_than_a_batch_at_a_step(stream):
    learner, _, ctx = next_task(stream, plus(structure="none"), batch_size=5)
    asked = []
    forward = ctx.forward
    ctx.forward = lambda nodes: asked.append(nodes) or forward(nodes)
    ctx.begin_step(next(iter(ctx.batches())))
    first, second = learner.method.loss(ctx), learner.method.loss(ctx)
    assert [nodes.numel() for nodes in asked] == [15, 15]
    assert not torch.equal(asked[0][10:], asked[1][10:])
    assert first.isfinite()
    assert second.isfinite()


def test_dslr_plus_teacher_stands_still_and_goes(stream):
    learner, seen = Learner(plus()), []
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, Epoch) and event.task == 1:
            seen.append(learner.method._taught[1].clone())
        elif isinstance(event, TaskDone):
            assert learner.method._taught is None
    assert all(torch.equal(seen[0], later) for later in seen)


def test_dslr_plus_keeps_and_counts_the_ids_of_training_nodes(stream):
    for learner, other in zip(
        learn(stream, plus(distill_on="training")), learn(stream, plus()), strict=True
    ):
        done = min(learner.next_task, stream.num_tasks - 1)
        known = torch.cat([task.train_nodes for task in stream.tasks[:done]])
        method = learner.method
        assert method.buffer.unlabelled.tolist() == sorted(known.tolist())
        assert method.memory_bytes() == other.method.memory_bytes() + known.nbytes
        graph, whole = (one.method.graph_bytes(one.context) for one in (learner, other))
        assert graph <= whole
        again = plus(distill_on="training")
        again.load_state_dict(method.state_dict())
        assert torch.equal(again.buffer.unlabelled, method.buffer.unlabelled)


def test_dslr_plus_keeps_a_bounded_sample_of_all_tasks(stream, monkeypatch):
    monkeypatch.setattr(dslr_plus, "KEPT", 16)
    for learner in learn(stream, plus(distill_on="training")):
        kept = learner.method.buffer.unlabelled
        assert kept.numel() == kept.unique().numel() == 16
    first = int((kept < stream.tasks[0].num_nodes).sum())
    assert 0 < first < 16


@pytest.mark.parametrize("distill_on", DISTILLED)
def test_dslr_plus_of_a_large_graph_reads_what_is_around_a_sample(stream, distill_on, monkeypatch):
    monkeypatch.setattr(dslr_plus, "SAMPLED", 8)
    settings = {"distill_on": distill_on, "structure": "none", "dropout": 0.0, "buffer_size": 6}
    settings |= {"attention": "plain", "num_layers": 1}
    shown: list[int] = []
    monkeypatch.setattr(step, "started", lambda view, *_: shown.append(view.num_nodes))
    monkeypatch.setattr(step, "LARGE", 5)

    def learned(part: bool) -> Any:
        clf = quick("dslr+", validation_fraction=0, settings=settings)
        with monkeypatch.context() as patch:
            if not part:
                patch.setattr(dslr_plus.DSLRPlus, "local", False)
            for batch in batches(stream):
                few = dict(list(batch["labels"].items())[:4])
                clf.learn(**{**batch, "labels": few}, on_event=lambda event: None)
        return clf

    near, whole = learned(part=True), learned(part=False)
    assert shown[2] < shown[5] == 80
    told = [clf.history_[-1]["report"]["distillation"]["nodes"] for clf in (near, whole)]
    assert 4 < told[0] == told[1] <= 8
    assert np.allclose(near.predict_proba(), whole.predict_proba(), atol=1e-4)
    kept = [clf._now().learner.method.buffer.unlabelled.tolist() for clf in (near, whole)]
    assert kept[0] == kept[1]


def test_dslr_plus_lets_go_of_removed_training_nodes(stream):
    clf = quick("dslr+", validation_fraction=0, settings={"distill_on": "training"})
    first, second, _ = batches(stream)
    clf.learn(**first)
    kept = clf._now().learner.method.buffer.unlabelled.tolist()
    clf.remove(kept[:2])
    assert clf._now().learner.method.buffer.unlabelled.tolist() == [row - 2 for row in kept[2:]]
    gone = set(kept[:2])
    edges = [pair for pair in second["edges"] if not gone & set(pair)]
    clf.learn(**{**second, "edges": edges})
    assert np.isfinite(clf.predict_proba()).all()


def test_dslr_plus_does_not_distil_a_node_that_has_a_label_now(stream):
    view = stream.view(1)
    learner = next(learn(stream, plus()))
    late = torch.cat([view.train_nodes, torch.tensor([0, 3])])
    labels = torch.cat([view.train_labels, torch.tensor([2, 3])])
    view = replace(view, train_nodes=late, train_labels=labels)
    shape = {"model_config": MODEL, "training": TRAINING, "seed": 0, "final": False}
    learner.method.begin_task(TaskContext(view, model=learner.model, **shape))
    nodes, _ = learner.method._taught
    assert nodes.tolist() == [row for row in range(view.num_old) if row not in (0, 3)]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gamma": -1}, "Expected 'gamma' of at least 0.*got -1"),
        ({"temperature": 0}, "Expected 'temperature' above 0.*got 0"),
        ({"distill_on": "new"}, "Expected 'distill_on'.*got 'new'"),
        ({"addition": "nearest", "candidates": "entire"}, "Expected 'addition'.*got 'nearest'"),
    ],
    ids=["gamma", "temperature", "distill_on", "nearest"],
)
def test_dslr_plus_refuses_bad_settings_in_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        make_method("dslr+", settings)


def test_dslr_plus_names_settings_without_effect():
    assert {"gamma", "temperature"} <= plus(distill_on="none").config.unused()
    assert not {"gamma", "temperature"} & plus().config.unused()


def test_dslr_plus_distils_without_a_buffer(stream):
    learner, _, ctx = next_task(stream, plus(structure="none", distill_on="training"))
    method, nodes = learner.method, stream.tasks[0].train_nodes
    with_buffer = method.loss(ctx)
    method.buffer.picks = {}  # all that was kept has been removed
    alone = method.loss(ctx)
    assert alone.isfinite()
    assert not torch.equal(alone, with_buffer)
    assert torch.equal(method._taught[0], nodes.sort().values)
