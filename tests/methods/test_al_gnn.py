"""AL-GNN: the statistics give what recursive least squares gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from evergraph.events import Epoch, TaskDone
from evergraph.methods import TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.train import Learner, train

GAMMA, WIDTH = 0.5, 12


@pytest.mark.parametrize("encoder", ["random", "first-task"])
def test_weights_are_those_of_recursive_least_squares(
    make_graph: Callable[..., Graph], encoder: str
):
    stream = TaskStream(make_graph(80, 6), Protocol(), 0)
    settings = {"encoder": encoder, "expansion": WIDTH, "gamma": GAMMA}
    learner, stages = Learner(make_method("al-gnn", settings)), []
    model, training = ModelConfig(channels=4, heads=2), TrainConfig(epochs=2)
    inverse = torch.eye(WIDTH, dtype=torch.float64) / GAMMA  # R_0
    weights = torch.zeros(WIDTH, 6, dtype=torch.float64)
    for event in train(learner, stream, model, training, seed=0):
        if isinstance(event, Epoch):
            stages.append((event.task, event.stage))
        if not isinstance(event, TaskDone):
            continue
        method, ctx = learner.method, learner.context
        phi = method._expand(ctx, ctx.view.train_nodes).double()
        target = torch.nn.functional.one_hot(ctx.view.train_labels, 6).double()
        gain = torch.eye(phi.shape[0], dtype=torch.float64) + phi @ inverse @ phi.t()
        inverse = inverse - inverse @ phi.t() @ torch.linalg.solve(gain, phi @ inverse)
        weights = weights + inverse @ phi.t() @ (target - phi @ weights)
        everyone = method._expand(ctx).double() @ weights
        known = ctx.view.num_classes
        shown = method.predict_logits(ctx).double()
        torch.testing.assert_close(shown, everyone[:, :known], atol=1e-4, rtol=0)
    trained = [task for task, stage in stages if stage == "classify"]
    assert trained == ([0, 0] if encoder == "first-task" else [])


def test_network_stays_as_it_was_drawn(make_graph: Callable[..., Graph]):
    stream = TaskStream(make_graph(60, 4), Protocol(), 0)
    learner, seen = Learner(make_method("al-gnn", {"expansion": 8})), []
    for event in train(learner, stream, ModelConfig(channels=4), TrainConfig(), seed=0):
        if isinstance(event, TaskDone):
            seen.append(learner.model.encoder.layers[0].weight.clone())
    assert torch.equal(*seen)
    assert "epochs" in learner.method.config.unused()
