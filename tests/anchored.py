"""What the tests of EWC, MAS and TWP share: one prepared task, and slow gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from evergraph.methods import TaskContext, TrainConfig
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.stream.tasks import LabelledNodes

MODEL = ModelConfig(channels=3, heads=2, head_init="default")
TRAINING = TrainConfig(epochs=2)


def stream_of(make_graph, num_nodes=48, **kwargs) -> TaskStream:
    """Three tasks of two classes."""
    return TaskStream(make_graph(num_nodes, 6, **kwargs), Protocol())


def context(
    stream, task=0, *, model=None, count=None, labels=None, prepare=True, **kwargs
) -> TaskContext:
    """One task with a network of random weights, of which ``count`` nodes train."""
    view = stream.view(task)
    if count is not None:
        view = replace(
            view, train_nodes=view.train_nodes[:count], train_labels=view.train_labels[:count]
        )
    if labels is not None:
        view = replace(view, train_labels=labels)
    settings = {"model_config": MODEL, "training": TRAINING, "seed": 0, "final": False}
    ctx = TaskContext(view, model=model, **(settings | kwargs))
    if prepare:
        ctx.prepare_model()
    return ctx


def in_double(ctx: TaskContext) -> TaskContext:
    """The same task and network in float64, so that finite differences mean something."""
    ctx.view = replace(ctx.view, features=ctx.view.features.double())
    ctx.model.double()
    ctx.batch = LabelledNodes(ctx.view.train_nodes, ctx.view.train_labels)
    return ctx


def plain_output(ctx: TaskContext, nodes: Tensor):
    """The network's answers by definition: whole graph, no dropout, no kernels."""
    return ctx.model(ctx.view.features, ctx.adjacency, nodes, None, True)


def head_of(ctx: TaskContext, logits: Tensor, labels: Tensor, over="current"):
    """The columns of a task's loss and its labels among them, by definition."""
    first = ctx.view.new_classes[0] if over == "current" else 0
    return logits[..., first:], labels - first


def slow_gradients(ctx: TaskContext, value_of) -> Iterator[dict[str, Tensor]]:
    """Gradients of one training node after another, each from a forward pass of its own."""
    for node, label in zip(ctx.view.train_nodes, ctx.view.train_labels, strict=True):
        ctx.model.zero_grad()
        value_of(plain_output(ctx, node[None]).logits[0], label).backward()
        yield {name: p.grad.clone() for name, p in ctx.model.named_parameters()}
    ctx.model.zero_grad()


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], **tolerance) -> None:
    """Compares parameter by parameter, to float32 of the largest entry unless told."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        top = value.detach().abs().max().item()
        allowed = tolerance or {"rtol": 1e-4, "atol": 1e-5 * top}
        torch.testing.assert_close(found[name], value, **allowed, msg=lambda m, n=name: f"{n}: {m}")


def move(model, seed=1, scale=0.1) -> None:
    """Shifts every parameter a little."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn(value.shape, generator=generator), alpha=scale)
