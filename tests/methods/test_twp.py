"""TWP: importances by explicit autograd, and a gradient norm that has a gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from anchored import (
    MODEL,
    assert_same,
    context,
    head_of,
    in_double,
    move,
    plain_output,
    stream_of,
)
from evergraph.events import TaskDone
from evergraph.methods import TrainConfig, make_method
from evergraph.train import Learner, train


def slow_importances(ctx, over="current"):
    """Both importances by backward passes into ``.grad``, zeroed in between."""
    found = []
    for which in ("loss", "topology"):
        ctx.model.zero_grad()
        output = plain_output(ctx, ctx.view.train_nodes)
        if which == "loss":
            value = functional.cross_entropy(
                *head_of(ctx, output.logits, ctx.view.train_labels, over)
            )
        elif output.attention:
            first, second = output.attention
            value = (first * first).sum() + (second * second).sum()
        else:
            value = slow_topology(ctx)
        value.backward()
        found.append(
            {
                name: torch.zeros_like(p) if p.grad is None else p.grad**2
                for name, p in ctx.model.named_parameters()
            }
        )
    ctx.model.zero_grad()
    return found


def slow_topology(ctx):
    """Adds up ((W h_i) · tanh(W h_j))² edge by edge and layer by layer."""
    total, h, graph = 0.0, ctx.view.features, ctx.adjacency
    for layer in ctx.model.encoder.layers:
        for j, i in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
            total = total + ((h[i] @ layer.weight) @ torch.tanh(h[j] @ layer.weight)) ** 2
        h = torch.relu(layer(h, graph))
    return total


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_importance_of_topology_does_without_attention(make_graph, backbone):
    model = MODEL.model_copy(update={"backbone": backbone})
    ctx = context(stream_of(make_graph), 1, plain=True, model_config=model)
    by_loss, by_topology = make_method("twp").importances(ctx)
    loss, topology = slow_importances(ctx)
    assert_same(by_loss, loss)
    assert_same(by_topology, topology)
    assert by_topology["encoder.layers.1.weight"].max() > 0
    assert by_topology["head.weight"].max() == 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("over", ["current", "seen"])
@pytest.mark.parametrize("task", [0, 1])
def test_importances_are_squared_gradients_of_loss_and_attention(make_graph, sparse, task, over):
    ctx = context(stream_of(make_graph, sparse=sparse), task, plain=True)
    method = make_method("twp", {"lam_loss": 5.0, "lam_topology": 0.5, "loss_over": over})
    by_loss, by_topology = method.importances(ctx)
    loss, topology = slow_importances(ctx, over)
    assert_same(by_loss, loss)
    assert_same(by_topology, topology)
    assert by_topology["encoder.layers.0.weight"].max() > 0
    assert by_topology["head.weight"].max() == 0  # attention does not pass the head
    assert_same(method.importance(ctx), {n: 5 * loss[n] + topology[n] / 2 for n in loss})


def test_importance_of_loss_by_node_is_the_fisher(make_graph):
    ctx = context(stream_of(make_graph), 1, plain=True)
    by_loss, by_topology = make_method("twp", {"squares": "node"}).importances(ctx)
    assert_same(by_loss, make_method("ewc").importance(ctx))
    assert_same(by_topology, slow_importances(ctx)[1])


def test_importance_of_loss_in_sampled_batches_is_that_of_their_mean(make_graph):
    every = TrainConfig(epochs=1, fanout=100)
    ctx = context(stream_of(make_graph), training=every, batch_size=5, plain=True)
    by_loss, by_topology = make_method("twp").importances(ctx)
    assert_same(by_loss, slow_importances(ctx)[0])
    assert all(value.isfinite().all() for value in by_topology.values())


def numeric_gradient(ctx, method, value, index, eps=1e-6):
    """The central difference of the loss along one entry of one parameter."""
    ends = []
    for step in (eps, -eps):
        with torch.no_grad():
            value.view(-1)[index] += step
        ends.append(method.loss(ctx).item())
        with torch.no_grad():
            value.view(-1)[index] -= step
    return (ends[0] - ends[1]) / (2 * eps)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_loss_gradient_equals_finite_differences(make_graph, beta):
    ctx = in_double(context(stream_of(make_graph), 0, plain=True))
    ctx.model.eval()
    method = make_method("twp", {"beta": beta})
    grads = torch.autograd.grad(method.loss(ctx), list(ctx.model.parameters()))
    for value, grad in zip(ctx.model.parameters(), grads, strict=True):
        for index in range(0, value.numel(), 1 + value.numel() // 4):
            expected = numeric_gradient(ctx, method, value, index)
            assert float(grad.view(-1)[index]) == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_beta_adds_the_norm_of_the_gradient_and_changes_the_direction(make_graph):
    ctx = in_double(context(stream_of(make_graph), 0, plain=True))
    ctx.model.eval()
    values = list(ctx.model.parameters())
    losses = [make_method("twp", {"beta": beta}).loss(ctx) for beta in (0, 0.25)]
    without, within = (torch.autograd.grad(loss, values, retain_graph=True) for loss in losses)
    norm = sum(float(grad.abs().sum()) for grad in without)
    assert norm > 0
    assert (losses[1] - losses[0]).item() == pytest.approx(0.25 * norm, rel=1e-9)
    flat, bent = (torch.cat([g.flatten() for g in grads]) for grads in (without, within))
    # A detached norm would leave the gradient as it was.
    assert float((bent - flat).norm()) > 0.01 * float(flat.norm())


def test_loss_adds_a_penalty_for_every_earlier_task(make_graph):
    method = make_method("twp", {"beta": 0.0, "lam_loss": 10.0, "lam_topology": 1e-3})
    stream, ctx, expected = stream_of(make_graph), None, []
    for task in (0, 1):
        ctx = context(stream, task, model=ctx and ctx.model, plain=True)
        loss, topology = slow_importances(ctx)
        method.end_task(ctx)
        here = {n: p.detach().clone() for n, p in ctx.model.named_parameters()}
        expected.append((here, {n: 10.0 * loss[n] + 1e-3 * topology[n] for n in loss}))
        move(ctx.model, seed=task)
    ctx = context(stream, 2, model=ctx.model, plain=True)
    ctx.model.eval()
    logits = ctx.forward(ctx.view.train_nodes)
    ce = functional.cross_entropy(*head_of(ctx, logits, ctx.view.train_labels))
    away = sum(
        (importance[n] * (p[: len(here[n])] - here[n]) ** 2).sum()
        for here, importance in expected
        for n, p in ctx.model.named_parameters()
    )
    assert away.item() > 1e-3
    torch.testing.assert_close(method.loss(ctx), ce + away, rtol=1e-4, atol=0)
    method.penalty(ctx).backward()
    assert ctx.model.head.weight.grad[:4].abs().max() > 0
    assert ctx.model.head.weight.grad[4:].abs().max() == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_model_setting_of_attention_does_not_matter(make_graph, sparse):
    stream = stream_of(make_graph, sparse=sparse)
    ends = []
    for path in ("plain", "auto", "fused"):
        learner = Learner(make_method("twp"))
        model = MODEL.model_copy(update={"attention": path})
        events = train(learner, stream, model, TrainConfig(epochs=3), seed=0)
        rows = [event.row for event in events if isinstance(event, TaskDone)]
        assert len(rows) == 3
        ends.append([p.detach() for p in learner.model.parameters()])
    for other in ends[1:]:
        assert all(torch.equal(a, b) for a, b in zip(ends[0], other, strict=True))


def test_needs_are_declared(make_graph):
    method = make_method("twp")
    assert method.needs == {"double_backward"}
    assert (method.config.lam_loss, method.config.lam_topology) == (1e4, 1e4)
    assert method.config.beta == 0.01


def test_nothing_is_kept_after_the_last_task(make_graph):
    method = make_method("twp")
    method.end_task(context(stream_of(make_graph), 2, final=True, plain=True))
    assert method.anchors == []
