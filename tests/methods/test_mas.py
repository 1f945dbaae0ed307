"""MAS: importances against gradients node by node, one anchor, no labels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from anchored import assert_same, context, head_of, move, slow_gradients, stream_of
from evergraph.methods import TrainConfig, make_method


def slow_omega(ctx, over="current"):
    """The mean over training nodes of |∂‖f(x)‖² / ∂θ|."""
    grads = list(slow_gradients(ctx, lambda z, y: head_of(ctx, z, y, over)[0].square().sum()))
    return {name: sum(g[name].abs() for g in grads) / len(grads) for name in grads[0]}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("over", ["current", "seen"])
@pytest.mark.parametrize("task", [0, 1])
def test_omega_is_the_mean_of_absolute_gradients(make_graph, sparse, task, over):
    ctx = context(stream_of(make_graph, sparse=sparse), task)
    method = make_method("mas", {"loss_over": over})
    assert_same(method.importance(ctx), slow_omega(ctx, over))


def test_omega_of_sampled_runs_is_taken_in_batches(make_graph):
    ctx = context(stream_of(make_graph), training=TrainConfig(epochs=1, fanout=100), batch_size=5)
    assert_same(make_method("mas").importance(ctx), slow_omega(ctx))


def test_omega_of_many_nodes_is_that_of_a_seeded_sample(make_graph):
    stream = stream_of(make_graph)
    method = make_method("mas", {"num_nodes": 5})
    samples = [method._nodes(context(stream, seed=seed)) for seed in (0, 0, 1)]
    view = stream.view(0)
    for sample in samples:
        assert sample.unique().numel() == 5
        assert torch.isin(sample, view.train_nodes).all()
    assert torch.equal(samples[0], samples[1])
    assert not torch.equal(samples[0], samples[2])
    ctx, sampled = context(stream), context(stream)
    labels = view.train_labels[torch.isin(view.train_nodes, samples[0])]
    sampled.view = replace(view, train_nodes=samples[0], train_labels=labels)
    assert_same(method.importance(ctx), slow_omega(sampled))


def test_omega_takes_all_nodes_up_to_the_limit(make_graph):
    ctx = context(stream_of(make_graph), count=5)
    method = make_method("mas", {"num_nodes": 5})
    assert torch.equal(method._nodes(ctx), ctx.view.train_nodes)


def test_labels_do_not_matter(make_graph):
    stream = stream_of(make_graph)
    ctx = context(stream)
    other = context(stream, labels=1 - ctx.view.train_labels)
    found, again = (make_method("mas").importance(c) for c in (ctx, other))
    assert_same(again, found, rtol=0, atol=0)


def test_one_anchor_moves_on_while_importances_add_up(make_graph):
    method, stream = make_method("mas", {"lam": 3.0}), stream_of(make_graph)
    ctx = context(stream, 0)
    first = method.importance(ctx)
    method.end_task(ctx)
    size = method.memory_bytes()
    move(ctx.model)
    ctx = context(stream, 1, model=ctx.model)
    second, here = method.importance(ctx), {n: p.clone() for n, p in ctx.model.named_parameters()}
    method.end_task(ctx)
    assert len(method.anchors) == 1
    assert method.memory_bytes() == size + 2 * 4 * 2 * 7  # two rows more, weights and bias
    anchor, omega = method.anchors[0]
    assert_same(anchor, here, rtol=0, atol=0)
    for name, value in first.items():
        second[name][: len(value)] += value
    assert_same(omega, second, rtol=1e-6, atol=0)

    move(ctx.model, seed=2)
    ctx = context(stream, 2, model=ctx.model)
    ctx.model.eval()
    logits = ctx.forward(ctx.view.train_nodes)
    ce = functional.cross_entropy(*head_of(ctx, logits, ctx.view.train_labels))
    away = sum(
        (omega[n] * (p[: len(here[n])] - here[n]) ** 2).sum()
        for n, p in ctx.model.named_parameters()
    )
    assert away.item() > 1e-3
    torch.testing.assert_close(method.loss(ctx), ce + 3.0 * away)


def test_nothing_is_kept_after_the_last_task(make_graph):
    method = make_method("mas")
    method.end_task(context(stream_of(make_graph), 2, final=True))
    assert method.anchors == []
    assert method.memory_bytes() == 0
