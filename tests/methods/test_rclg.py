"""RCLG: the loss is the formula, the best child stays, stored logits are those of their time."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.events import Epoch, TaskDone
from evergraph.methods import Method, TaskContext, TrainConfig, make_method
from evergraph.methods.rclg import RCLG
from evergraph.methods.rclg_controller import Proposal
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.train import Learner, plan_for, train

MODEL = ModelConfig(channels=6, heads=2)
TRAINING = TrainConfig(epochs=5)
NEEDS = frozenset({"validation"})
SMALL = {"buffer_size": 12, "additions": [2, 3], "deletions": [0, 1]}


def stream_of(make_graph, **protocol) -> TaskStream:
    options = {"validation_fraction": 0.2, **protocol}
    return TaskStream(make_graph(num_nodes=70, num_classes=6), Protocol(**options))


def context(stream: TaskStream, task: int, **options) -> TaskContext:
    return TaskContext(
        stream.view(task, NEEDS),
        **{"model": None, "model_config": MODEL, "training": TRAINING, "seed": 0, "final": False},
        **options,
    )


def after_tasks(stream: TaskStream, num_tasks: int, **settings) -> tuple[Learner, list[TaskDone]]:
    learner, done = Learner(make_method("rclg", SMALL | settings)), []
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            done.append(event)
            if len(done) == num_tasks:
                break
    return learner, done


# The loss.

KEPT = {0: torch.tensor([0, 2, 5]), 1: torch.tensor([7])}


def planted(method: Method) -> None:
    """Keeps four nodes: two stored when one class existed, two when there were two."""
    method.buffer.picks = KEPT
    method.buffer.rows["logits"] = torch.tensor(
        [[1.0, 99.0], [-2.0, 99.0], [0.5, 0.25], [3.0, -1.0]]
    )
    method.buffer.rows["widths"] = torch.tensor([1, 1, 2, 2])


@pytest.mark.parametrize(("logit_weight", "label_weight"), [(0.5, 0.5), (2.0, 0.0), (0.0, 0.3)])
def test_rclg_loss_is_the_formula(make_graph, logit_weight, label_weight):
    settings = {"logit_weight": logit_weight, "label_weight": label_weight}
    method = make_method("rclg", SMALL | settings)
    planted(method)
    ctx = context(stream_of(make_graph), 1)
    method.begin_task(ctx)
    ctx.model.eval()
    logits, view = ctx.forward(), ctx.view
    current = functional.cross_entropy(logits[view.train_nodes], view.train_labels)
    pairs = [(0, 0, 1.0), (2, 0, -2.0), (5, 0, 0.5), (5, 1, 0.25), (7, 0, 3.0), (7, 1, -1.0)]
    squares = sum((logits[node, column] - stored) ** 2 for node, column, stored in pairs) / 6
    kept = functional.cross_entropy(logits[[0, 2, 5, 7]], torch.tensor([0, 0, 0, 1]))
    expected = current + logit_weight * squares + label_weight * kept
    torch.testing.assert_close(method.loss(ctx), expected)


def test_rclg_loss_of_a_sampled_step_takes_rows_that_belong_together(make_graph, monkeypatch):
    method = make_method("rclg", SMALL)
    planted(method)
    ctx = context(stream_of(make_graph), 1, batch_size=2)
    method.begin_task(ctx)
    ctx.model.eval()  # whole neighbourhoods, so that losses can be compared
    monkeypatch.setattr(ctx, "draw", lambda *columns: [column[[3, 1]] for column in columns])
    logits, view = ctx.forward(), ctx.view
    current = functional.cross_entropy(logits[view.train_nodes], view.train_labels)
    pairs = [(7, 0, 3.0), (7, 1, -1.0), (2, 0, -2.0)]
    squares = sum((logits[node, column] - stored) ** 2 for node, column, stored in pairs) / 3
    kept = functional.cross_entropy(logits[[7, 2]], torch.tensor([1, 0]))
    torch.testing.assert_close(method.loss(ctx), current + 0.5 * squares + 0.5 * kept)


def test_rclg_first_task_is_finetuning(make_graph):
    stream = stream_of(make_graph)
    learner, done = after_tasks(stream, 1)
    plain = Learner(make_method("finetune"))
    next(e for e in train(plain, stream, MODEL, TRAINING, seed=0) if isinstance(e, TaskDone))
    networks = (learner.model.parameters(), plain.context.model.parameters())
    for ours, theirs in zip(*networks, strict=True):
        assert torch.equal(ours, theirs)
    assert learner.method.controller is None
    assert done[0].report == {}


# The search.


def test_rclg_makes_a_child_as_proposed(make_graph):
    method = make_method("rclg", {"additions": [4, 0], "deletions": [9, 1]})
    ctx = context(stream_of(make_graph), 0)
    method.begin_task(ctx)
    before = {name: value.clone() for name, value in ctx.model.state_dict().items()}
    proposal = Proposal([(0, 1), (1, 0)], torch.zeros(()), 0.0)
    child = method.make_child(ctx.model, proposal, torch.Generator().manual_seed(0))
    assert child.encoder.channels == [9, 1]  # 6 − 1 + 4; all but one of 6
    assert all(torch.equal(before[name], value) for name, value in ctx.model.state_dict().items())


def test_rclg_reward_is_percent_less_entropy(make_graph, monkeypatch):
    method = make_method("rclg", {"entropy_weight": 0.5})
    ctx = context(stream_of(make_graph), 0)
    held = ctx.view.validation
    assert held.nodes.numel() == 4
    answers = torch.zeros(ctx.view.num_nodes, 2)
    answers[held.nodes, held.labels] = 1.0
    wrong = held.nodes[0]
    answers[wrong] = answers[wrong].flip(0)  # one of four is wrong
    monkeypatch.setattr(method, "predict_logits", lambda ctx: answers)
    assert method.reward(ctx, Proposal([], torch.zeros(()), 3.0)) == pytest.approx(75 - 1.5)


def test_rclg_keeps_the_child_of_the_best_reward(make_graph, monkeypatch):
    stream = stream_of(make_graph)
    learner, _ = after_tasks(stream, 1)
    judged, rewards = [], iter([10.0, 30.0, 30.0, 20.0])

    def reward(self, ctx, proposal):
        judged.append((ctx.model, [p.detach().clone() for p in ctx.model.parameters()]))
        return next(rewards)

    monkeypatch.setattr(RCLG, "reward", reward)
    epochs = {"search": 0, "classify": 0}
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, Epoch):
            if event.stage == "classify" and event.epoch == 0:
                last = learner.method.controller.baseline
            epochs[event.stage] += 1
        if isinstance(event, TaskDone):
            break
    assert len({id(model) for model, _ in judged}) == 4
    assert learner.model is judged[1][0]  # the first of the best
    trained_on = zip(learner.model.parameters(), judged[1][1], strict=True)
    assert not any(torch.equal(*pair) for pair in trained_on)
    assert epochs == {"search": 4 * 1, "classify": 5}  # children: a fifth of five epochs each
    # 10, then 0.95 of itself and 0.05 of each reward that comes.
    assert last == pytest.approx(((10 * 0.95 + 1.5) * 0.95 + 1.5) * 0.95 + 1.0)
    assert event.report["rewards"] == [10, 30, 30, 20]
    assert event.report["channels"] == learner.model.encoder.channels


def test_rclg_children_take_the_epochs_they_are_given(make_graph):
    learner, _ = after_tasks(stream_of(make_graph), 1, child_epochs=2, controller_steps=3)
    events = []
    for event in train(learner, stream_of(make_graph), MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            break
        events.append(event)
    search = [event for event in events if isinstance(event, Epoch) and event.stage == "search"]
    assert [event.epoch for event in search] == list(range(6))
    assert {event.num_epochs for event in search} == {6}
    assert learner.context.training == TRAINING


def test_rclg_optimises_the_network_that_it_adopted(make_graph):
    learner, done = after_tasks(stream_of(make_graph), 2, additions=[3], deletions=[1])
    assert learner.model.encoder.channels == [8, 8]
    assert len(done[1].report["rewards"]) == 4
    optimised = learner.context.optimizer.parameters
    for optimised_one, parameter in zip(optimised, learner.model.parameters(), strict=True):
        assert optimised_one is parameter


def test_rclg_controller_lives_from_task_to_task(make_graph):
    stream = stream_of(make_graph)
    learner, _ = after_tasks(stream, 2)
    reinforce = learner.method.controller
    steps = {int(group["step"]) for group in reinforce.optimizer.state.values()}
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            break
    assert learner.method.controller is reinforce
    assert steps == {4}
    assert {int(group["step"]) for group in reinforce.optimizer.state.values()} == {8}


# What is kept.


def test_rclg_stores_logits_of_the_time_a_node_was_kept(make_graph):
    stream = stream_of(make_graph)
    learner, _ = after_tasks(stream, 1)
    method = learner.method
    first = dict(zip(method.buffer.nodes.tolist(), method.buffer.rows["logits"], strict=True))
    shown = method.predict_logits(learner.context)
    torch.testing.assert_close(method.buffer.rows["logits"], shown[method.buffer.nodes])
    assert method.buffer.rows["widths"].tolist() == [2] * len(method.buffer)
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            break
    shown = method.predict_logits(learner.context)
    assert method.buffer.rows["logits"].shape == (len(method.buffer), 4)
    for node, label, row, width in zip(
        method.buffer.nodes.tolist(),
        method.buffer.labels.tolist(),
        method.buffer.rows["logits"],
        method.buffer.rows["widths"].tolist(),
        strict=True,
    ):
        assert width == (2 if label < 2 else 4)
        assert torch.equal(row[:width], first[node] if label < 2 else shown[node])


def test_rclg_memory_is_buffer_logits_and_controller(make_graph):
    learner, _ = after_tasks(stream_of(make_graph), 1)
    method = learner.method
    size = len(method.buffer)
    assert method.memory_bytes() == size * (16 + 2 * 4 + 8)  # id, label, two logits, a width
    learner, _ = after_tasks(stream_of(make_graph), 2)
    method = learner.method
    size = len(method.buffer)
    controller = method.controller.memory_bytes()
    assert method.memory_bytes() == size * (16 + 4 * 4 + 8) + controller
    assert controller > 4 * 80_000


def test_rclg_refuses_to_run_without_validation_nodes(make_graph):
    with pytest.raises(InputError, match=r"Expected validation nodes.*got 0.*validation_fraction"):
        after_tasks(stream_of(make_graph, validation_fraction=0.0), 1)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"additions": [3, -1]}, r"Expected 'additions\[1\]'.*got -1"),
        ({"deletions": []}, "Expected 'deletions'"),
        ({"controller_steps": 0}, "Expected 'controller_steps' as an integer of at least 1.*got 0"),
        ({"child_epochs": 0}, "Expected 'child_epochs' as an integer of at least 1.*got 0"),
        ({"baseline_decay": 1}, r"Expected 'baseline_decay' in \[0.*, 1.*got 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_rclg_refuses_bad_settings_in_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        make_method("rclg", settings)


def test_memory_plan_follows_the_network_as_it_grows(make_graph):
    method = make_method("rclg", SMALL | {"additions": [3], "deletions": [1]})
    stream = TaskStream(make_graph(60, 6), Protocol(validation_fraction=0.2))
    learner, config, plans = Learner(method), ModelConfig(channels=4, heads=2), []

    def plan():
        sizes, cpu = (10**8, 10**9), torch.device("cpu")
        return plan_for(learner, sizes, stream.features, config, TrainConfig(), device=cpu)

    for event in train(learner, stream, config, TrainConfig(epochs=1), seed=0):
        if isinstance(event, TaskDone):
            plans.append(plan().reason)
    # Two tasks after the first, each adding three and deleting one.
    assert learner.model.encoder.channels == [8, 8]
    assert len(set(plans)) == 3
