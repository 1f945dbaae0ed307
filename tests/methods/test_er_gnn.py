"""ER-GNN: the direction of β by hand, and the paper's selectors."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from evergraph.events import TaskDone
from evergraph.memory import SELECTORS
from evergraph.methods import TaskContext, TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=2)


def stream_of(make_graph) -> TaskStream:
    return TaskStream(make_graph(num_nodes=70, num_classes=6), Protocol())


def context(stream: TaskStream, task: int) -> TaskContext:
    return TaskContext(
        stream.view(task),
        model=None,
        model_config=MODEL,
        training=TRAINING,
        seed=0,
        final=False,
    )


def test_er_gnn_weighs_current_nodes_by_the_buffers_share(make_graph):
    # Two kept nodes and |D| current ones: the current nodes weigh 2 / (2 + |D|), not the rest.
    method = make_method("er-gnn", {"buffer_size": 10})
    method.buffer.picks = {0: torch.tensor([0]), 1: torch.tensor([7])}
    ctx = context(stream_of(make_graph), 1)
    method.begin_task(ctx)
    ctx.model.eval()
    logits, view = ctx.forward(), ctx.view
    current = functional.cross_entropy(logits[view.train_nodes], view.train_labels)
    kept = functional.cross_entropy(logits[[0, 7]], torch.tensor([0, 1]))
    share = 2 / (2 + view.train_nodes.numel())
    assert share < 0.2
    torch.testing.assert_close(method.loss(ctx), share * current + (1 - share) * kept)


def test_er_gnn_beta_grows_with_the_buffer(make_graph):
    method, ctx = make_method("er-gnn"), context(stream_of(make_graph), 1)
    betas = []
    for count in (1, 5, 20):
        method.buffer.picks = {0: torch.arange(count)}
        betas.append(method.beta(ctx))
    assert betas == sorted(betas)
    assert all(0 < beta < 1 for beta in betas)


def test_er_gnn_is_replay_with_its_defaults(make_graph):
    stream, ends = stream_of(make_graph), []
    for name, settings in (("er-gnn", {}), ("replay", {"selector": "mf", "beta": "share"})):
        learner = Learner(make_method(name, settings | {"buffer_size": 12}))
        for _ in train(learner, stream, MODEL, TRAINING, seed=0):
            pass
        ends.append(learner.method.predict_logits(learner.context))
    assert torch.equal(*ends)


@pytest.mark.parametrize("selector", SELECTORS)
def test_er_gnn_takes_any_selector(make_graph, selector):
    learner = Learner(make_method("er-gnn", {"selector": selector, "buffer_size": 12}))
    events = list(train(learner, stream_of(make_graph), MODEL, TRAINING, seed=0))
    assert sum(isinstance(event, TaskDone) for event in events) == 3
    assert 0 < len(learner.method.buffer) <= 12
