"""The bounds: fine-tuning keeps nothing, joint training reads old labels by grant alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from evergraph.events import Epoch
from evergraph.methods import TaskContext, TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=3)
GRANT = frozenset({"old_labels"})


def stream_of(make_graph) -> TaskStream:
    return TaskStream(make_graph(num_nodes=60, num_classes=6), Protocol())


def context(stream, task, needs=frozenset(), model=None) -> TaskContext:
    return TaskContext(
        stream.view(task, needs),
        model=model,
        model_config=MODEL,
        training=TRAINING,
        seed=0,
        final=False,
    )


def first_losses(method, stream) -> list[float]:
    """The loss of the first epoch of each task."""
    events = train(Learner(method), stream, MODEL, TRAINING, seed=0)
    return [e.loss.item() for e in events if isinstance(e, Epoch) and e.epoch == 0]


def test_finetune_loss_is_cross_entropy_on_current_nodes(make_graph):
    stream, method = stream_of(make_graph), make_method("finetune")
    ctx = context(stream, 1)
    method.begin_task(ctx)
    ctx.model.eval()
    logits = ctx.forward()[ctx.view.train_nodes]
    torch.testing.assert_close(
        method.loss(ctx), functional.cross_entropy(logits, ctx.view.train_labels)
    )


def test_finetune_keeps_nothing(make_graph):
    learner = Learner(make_method("finetune"))
    assert learner.method.needs == frozenset()
    for _ in train(learner, stream_of(make_graph), MODEL, TRAINING, seed=0):
        assert learner.method.buffer is None
        assert learner.method.state_dict() == {}
        assert learner.method.memory_bytes() == 0
        assert set(vars(learner.method)) == {"config"}


def test_finetune_continues_from_the_last_tasks_weights(make_graph):
    stream, method = stream_of(make_graph), make_method("finetune")
    ctx = context(stream, 0)
    method.begin_task(ctx)
    model = ctx.model
    before = {key: value.clone() for key, value in model.state_dict().items()}
    later = context(stream, 1, model=model)
    method.begin_task(later)
    assert later.model is model
    for key, value in later.model.state_dict().items():
        assert torch.equal(value[: before[key].shape[0]], before[key])
    assert model.head.num_classes == 4


def test_joint_loss_is_cross_entropy_on_all_training_nodes_so_far(make_graph):
    stream, method = stream_of(make_graph), make_method("joint")
    ctx = context(stream, 2, GRANT)
    method.begin_task(ctx)
    ctx.model.eval()
    nodes = torch.cat([task.train_nodes for task in stream.tasks])
    expected = functional.cross_entropy(ctx.forward()[nodes], stream.labels[nodes])
    torch.testing.assert_close(method.loss(ctx), expected)


def test_joint_reads_old_labels_only_by_grant(make_graph):
    stream, method = stream_of(make_graph), make_method("joint")
    assert method.needs == GRANT
    ctx = context(stream, 1)
    method.begin_task(ctx)
    with pytest.raises(AttributeError, match="'old_labels' was not granted"):
        method.loss(ctx)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("finetune", {}), ("replay", {}), ("dslr", {"link_epochs": 1}), ("joint", {})],
)
def test_only_joint_is_granted_old_labels(make_graph, name, settings):
    learner = Learner(make_method(name, settings))
    for _ in train(learner, stream_of(make_graph), MODEL, TRAINING, seed=0):
        pass
    assert set(learner.context.view.grants) == (GRANT if name == "joint" else set())


def test_joint_first_task_is_fine_tuning(make_graph):
    stream = stream_of(make_graph)
    joint, tuned = (first_losses(make_method(name), stream) for name in ("joint", "finetune"))
    assert joint[0] == tuned[0]
    assert joint[1] != tuned[1]


def test_joint_starts_anew_unless_told_to_continue(make_graph):
    stream = stream_of(make_graph)
    first = context(stream, 0, GRANT)
    make_method("joint").begin_task(first)
    for warm in (False, True):
        ctx = context(stream, 1, GRANT, model=first.model)
        old = first.model.encoder.layers[0].weight.detach().clone()
        make_method("joint", {"warm_start": warm}).begin_task(ctx)
        assert (ctx.model is first.model) == warm
        assert torch.equal(ctx.model.encoder.layers[0].weight, old) == warm
        assert ctx.model.head.num_classes == 4


def test_joint_keeps_nothing_itself(make_graph):
    learner = Learner(make_method("joint"))
    for _ in train(learner, stream_of(make_graph), MODEL, TRAINING, seed=0):
        assert learner.method.state_dict() == {}
        assert learner.method.memory_bytes() == 0
