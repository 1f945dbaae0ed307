"""EWC: the Fisher against gradients node by node, the penalty against its formula."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from anchored import (
    MODEL,
    TRAINING,
    assert_same,
    context,
    head_of,
    move,
    slow_gradients,
    stream_of,
)
from evergraph.events import TaskDone
from evergraph.methods import TrainConfig, ewc, make_method
from evergraph.train import Learner, train


def slow_fisher(ctx, over="current"):
    """The mean over training nodes of squared gradients of −log p(true label)."""

    def surprise(logits, label):
        shown, label = head_of(ctx, logits, label, over)
        return -functional.log_softmax(shown, 0)[label]

    grads = list(slow_gradients(ctx, surprise))
    return {name: sum(g[name] ** 2 for g in grads) / len(grads) for name in grads[0]}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("over", ["current", "seen"])
@pytest.mark.parametrize("task", [0, 1])
def test_fisher_of_few_nodes_is_the_mean_of_squared_gradients(make_graph, sparse, task, over):
    ctx = context(stream_of(make_graph, sparse=sparse), task)
    assert 4 < ctx.view.train_nodes.numel() <= 64
    method = make_method("ewc", {"loss_over": over})
    assert_same(method.importance(ctx), slow_fisher(ctx, over))


def test_fisher_is_not_the_squared_mean_gradient(make_graph):
    ctx = context(stream_of(make_graph))
    ctx.model.eval()
    logits = ctx.forward(ctx.view.train_nodes)
    functional.cross_entropy(logits, ctx.view.train_labels).backward()
    bias = ctx.model.head.bias.grad.square()
    assert (make_method("ewc").importance(ctx)["head.bias"] > 1.1 * bias).all()


def test_fisher_by_signs_is_unbiased(make_graph, monkeypatch):
    # Over all 2^4 vectors of signs the estimate is its own expectation.
    ctx = context(stream_of(make_graph), count=4)
    method = make_method("ewc", {"exact_nodes": 3, "num_probes": 16})
    every = [torch.tensor(signs) for signs in itertools.product([-1.0, 1.0], repeat=4)]
    monkeypatch.setattr(ewc, "probes", lambda *_: every)
    assert_same(method.importance(ctx), slow_fisher(ctx))


def test_fisher_by_signs_comes_close_with_many_probes(make_graph):
    ctx = context(stream_of(make_graph))
    exact = slow_fisher(ctx)
    errors = []
    for probes in (20, 1000):
        method = make_method("ewc", {"exact_nodes": 0, "num_probes": probes})
        found = method.importance(ctx)
        off = sum(float((found[n] - exact[n]).abs().sum()) for n in exact)
        errors.append(off / sum(float(v.sum()) for v in exact.values()))
    assert errors[1] < 0.08  # √(2 / 1000) = 0.045 for one squared sum
    assert errors[1] < errors[0] / 2


def test_signs_are_fair_fresh_and_from_the_seed(make_graph):
    stream = stream_of(make_graph)
    losses = torch.zeros(50)
    drawn = [
        torch.stack(list(ewc.probes(losses, context(stream, seed=seed), 64))) for seed in (0, 0, 1)
    ]
    assert drawn[0].shape == (64, 50)
    assert set(drawn[0].unique().tolist()) == {-1, 1}
    assert abs(float(drawn[0].mean())) < 0.07  # four standard deviations
    assert drawn[0].unique(dim=0).shape[0] == 64
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_fisher_is_exact_up_to_the_configured_number_of_nodes(make_graph, monkeypatch):
    ctx = context(stream_of(make_graph), count=5)
    for limit, asked in ((5, False), (4, True)):
        method = make_method("ewc", {"exact_nodes": limit, "num_probes": 2})
        calls, probes = [], ewc.probes
        monkeypatch.setattr(
            ewc, "probes", lambda *a, calls=calls, probes=probes: calls.append(a) or probes(*a)
        )
        method.importance(ctx)
        assert bool(calls) == asked


def test_fisher_knows_true_labels_but_no_smoothing(make_graph):
    stream = stream_of(make_graph)
    ctx = context(stream)
    smooth = context(stream, training=TrainConfig(epochs=1, label_smoothing=0.3))
    other = context(stream, labels=1 - ctx.view.train_labels)
    plain, smoothed, flipped = (make_method("ewc").importance(c) for c in (ctx, smooth, other))
    assert_same(smoothed, plain, rtol=0, atol=0)
    assert not torch.allclose(flipped["head.weight"], plain["head.weight"])


def test_fisher_of_sampled_runs_is_taken_in_batches(make_graph):
    # With every neighbour drawn, a batch sees what the whole graph shows.
    stream = stream_of(make_graph)
    every = TrainConfig(epochs=1, fanout=100)
    ctx = context(stream, training=every, batch_size=5)
    assert ctx.view.train_nodes.numel() > 5
    assert_same(make_method("ewc").importance(ctx), slow_fisher(ctx))
    estimate = make_method("ewc", {"exact_nodes": 0, "num_probes": 500}).importance(ctx)
    expected = slow_fisher(ctx)
    total = sum(float(v.sum()) for v in expected.values())
    assert sum(float(v.sum()) for v in estimate.values()) == pytest.approx(total, rel=0.1)


def anchored(stream, method):
    """A network after two tasks, moved on from both anchors and grown for the third."""
    ctx = context(stream, 0)
    method.end_task(ctx)
    move(ctx.model, seed=1)
    ctx = context(stream, 1, model=ctx.model)
    method.end_task(ctx)
    move(ctx.model, seed=2)
    return context(stream, 2, model=ctx.model)


def test_loss_adds_a_penalty_for_every_earlier_task(make_graph):
    method = make_method("ewc", {"lam": 7.0})
    ctx = anchored(stream_of(make_graph), method)
    assert [a.parameters["head.bias"].numel() for a in method.anchors] == [2, 4]
    ctx.model.eval()
    logits = ctx.forward(ctx.view.train_nodes)
    current = functional.cross_entropy(*head_of(ctx, logits, ctx.view.train_labels))
    expected = current
    for parameters, fisher in method.anchors:
        for name, value in ctx.model.named_parameters():
            old = value[: len(parameters[name])]
            expected = expected + 7.0 * (fisher[name] * (old - parameters[name]) ** 2).sum()
    assert (expected - current).item() > 1e-3
    torch.testing.assert_close(method.loss(ctx), expected)


def test_penalty_leaves_grown_rows_alone(make_graph):
    method = make_method("ewc")
    ctx = anchored(stream_of(make_graph), method)
    method.penalty(ctx).backward()
    grad = ctx.model.head.weight.grad
    assert grad.shape[0] == 6
    assert grad[:4].abs().max() > 0
    assert grad[4:].abs().max() == 0


def test_later_training_does_not_move_an_anchor(make_graph):
    method = make_method("ewc")
    stream = stream_of(make_graph)
    ctx = context(stream)
    method.end_task(ctx)
    before = {n: v.clone() for n, v in method.anchors[0].parameters.items()}
    move(ctx.model)
    assert_same(method.anchors[0].parameters, before, rtol=0, atol=0)


def finished(stream, name, **settings):
    """A learner after all tasks, and its bytes of memory after each."""
    learner = Learner(make_method(name, settings))
    training = TRAINING.model_copy(update={"epochs": 15})
    sizes = [
        event.memory_bytes
        for event in train(learner, stream, MODEL, training, seed=0)
        if isinstance(event, TaskDone)
    ]
    return learner, sizes


def test_memory_is_two_networks_per_task_but_the_last(make_graph):
    learner, sizes = finished(stream_of(make_graph), "ewc")
    count = sum(p.numel() for p in learner.model.encoder.parameters())
    first, second = (2 * 4 * (count + rows * 7) for rows in (2, 4))  # 6 weights and a bias a row
    assert sizes == [first, first + second, first + second]
    assert len(learner.method.anchors) == 2


FREE = {"lam": 0, "loss_over": "seen"}


def test_lambda_zero_is_finetuning_and_a_large_one_holds(make_graph):
    stream = stream_of(make_graph)
    free, zero, held = (
        finished(stream, name, **settings)[0]
        for name, settings in (("finetune", {}), ("ewc", FREE), ("ewc", FREE | {"lam": 1e5}))
    )
    pairs = zip(free.model.parameters(), zero.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    drifts = []
    for learner in (zero, held):
        anchor, fisher = learner.method.anchors[0]
        now = {n: p.detach() for n, p in learner.model.named_parameters()}
        drifts.append(
            sum(float((f * (now[n][: len(f)] - anchor[n]) ** 2).sum()) for n, f in fisher.items())
        )
    assert drifts[1] < drifts[0] / 2
