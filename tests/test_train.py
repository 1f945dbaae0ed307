"""The training loop: what it tells and when, how it judges, and that it continues exactly."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch

from evergraph.errors import InputError
from evergraph.events import Epoch, TaskDone, TaskStarted
from evergraph.methods import MethodConfig, TrainConfig, make_method
from evergraph.methods.bounds import Finetune
from evergraph.nn import ModelConfig
from evergraph.stream import LabelledNodes, Protocol, TaskStream
from evergraph.stream.datasets import SyntheticConfig, generate
from evergraph.train import Learner, check_needs, evaluate, train

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=3)
DSLR = {"buffer_size": 10, "link_epochs": 2, "num_candidates": 8, "num_neighbors": 2}


def stream_of(make_graph, **kwargs) -> TaskStream:
    return TaskStream(make_graph(num_nodes=60, num_classes=5, **kwargs), Protocol())


def run(stream, method, seed=0):
    learner = Learner(method)
    return learner, list(train(learner, stream, MODEL, TRAINING, seed=seed))


# Events.


def test_train_tells_tasks_and_epochs_in_order(make_graph):
    stream = stream_of(make_graph)
    _, events = run(stream, make_method("dslr", DSLR))
    told = [
        (type(event), event.task, getattr(event, "stage", None), getattr(event, "epoch", None))
        for event in events
    ]
    expected = []
    for task in range(3):
        expected.append((TaskStarted, task, None, None))
        if task > 0:
            expected += [(Epoch, task, "structure", epoch) for epoch in range(2)]
        expected += [(Epoch, task, "classify", epoch) for epoch in range(3)]
        expected.append((TaskDone, task, None, None))
    assert told == expected


def test_train_events_say_what_they_count(make_graph):
    stream = stream_of(make_graph)
    learner, events = run(stream, make_method("replay", {"buffer_size": 10}))
    started = [event for event in events if isinstance(event, TaskStarted)]
    assert [event.num_tasks for event in started] == [3, 3, 3]
    assert [event.num_nodes for event in started] == [task.num_nodes for task in stream.tasks]
    assert [event.num_edges for event in started] == [task.num_edges for task in stream.tasks]
    assert [event.classes for event in started] == [(0, 1), (2, 3), (4,)]
    epochs = [event for event in events if isinstance(event, Epoch)]
    assert {event.num_epochs for event in epochs} == {3}
    assert all(event.loss.ndim == 0 and not event.loss.requires_grad for event in epochs)
    done = [event for event in events if isinstance(event, TaskDone)]
    assert [len(event.row) for event in done] == [1, 2, 3]
    assert [len(event.row_task_incremental) for event in done] == [1, 2, 3]
    assert [len(event.class_row) for event in done] == [2, 4, 5]
    assert all(0 <= value <= 100 for event in done for value in event.row + event.class_row)
    assert all(set(event.seconds) >= {"classify", "evaluate"} for event in done)
    assert done[-1].memory_bytes == learner.method.memory_bytes() > 0


def test_train_runs_lazily_and_leaves_a_whole_learner_after_each_task(make_graph):
    stream, learner = stream_of(make_graph), Learner(make_method("finetune"))
    events = train(learner, stream, MODEL, TRAINING, seed=0)
    assert learner.model is None
    for event in events:
        if isinstance(event, TaskDone):
            assert learner.next_task == event.task + 1
            assert learner.model is not None
            assert learner.model.head.num_classes == stream.tasks[event.task].classes[-1] + 1
            assert learner.context is not None
            assert learner.context.final == (event.task == 2)
            assert learner.context.model is learner.model


def test_train_reports_the_accuracy_of_the_methods_own_logits(make_graph):
    stream = stream_of(make_graph)
    learner, events = run(stream, make_method("finetune"))
    logits = learner.method.predict_logits(learner.context)
    row, within, by_class, _ = evaluate(logits, stream, 2)
    assert (events[-1].row, events[-1].row_task_incremental) == (row, within)
    assert events[-1].class_row == by_class


def test_train_judges_probabilities_after_the_last_task(make_graph):
    stream = TaskStream(make_graph(), Protocol(), seed=0)
    learner = Learner(make_method("analytic", {}))
    events = train(learner, stream, ModelConfig(channels=4, heads=2), TrainConfig(), seed=0)
    *before, last = [event for event in events if isinstance(event, TaskDone)]
    assert all(event.probability == {} for event in before)
    assert last.probability.keys() == {
        *("ece", "brier", "log_loss", "balanced_accuracy", "macro_f1", "reliability"),
        *("confusion", "temperature", "exponent", "calibrated_on"),
    }
    assert last.probability["calibrated_on"] == "left-out nodes"
    assert last.probability["balanced_accuracy"] == pytest.approx(
        sum(last.class_row) / len(last.class_row)
    )


def test_train_calibrates_networks_on_validation_nodes_alone(make_graph):
    def judged(**protocol):
        stream = TaskStream(make_graph(), Protocol(**protocol), seed=0)
        _, events = run(stream, make_method("finetune"))
        return events[-1].probability

    assert (plain := judged())["calibrated_on"] is None
    assert plain["temperature"] == 1
    found = judged(validation_fraction=0.3)
    assert found["calibrated_on"] == "validation nodes"
    assert found["temperature"] != 1
    # Validation nodes that judge themselves calibrate nothing.
    assert judged(validation_fraction=0.3, evaluate="validation")["calibrated_on"] is None
    assert sum(bin[0] for bin in found["reliability"]) == sum(map(sum, found["confusion"]))


def test_train_calls_the_method_in_the_order_of_its_contract(make_graph):
    calls = []

    class Traced(Finetune):
        def begin_task(self, ctx):
            calls.append("begin")
            super().begin_task(ctx)

        def loss(self, ctx):
            assert ctx.model.training
            calls.append("loss")
            return super().loss(ctx)

        def after_backward(self, ctx):
            assert all(p.grad is not None for p in ctx.model.parameters())
            calls.append("backward")

        def end_task(self, ctx):
            calls.append("end")

        def predict_logits(self, ctx):
            calls.append("predict")
            return super().predict_logits(ctx)

    run(stream_of(make_graph), Traced(MethodConfig()))
    task = ["begin", *["loss", "backward"] * 3, "end", "predict"]
    assert calls == task * 3


def test_train_learns(make_graph):
    stream = TaskStream(make_graph(num_nodes=80, homophily=0.9), Protocol())
    learner = Learner(make_method("joint"))
    training = TrainConfig(epochs=60, lr=0.02)
    model = ModelConfig(channels=8, heads=2, dropout=0.0)
    last = list(train(learner, stream, model, training, seed=0))[-1]
    assert min(last.row) > 60


# Evaluation, by hand. Classes 0 1 | 2 3; task 0 judges nodes 0 1 2, task 1 nodes 3 4.
#
#   node   label   logits              all classes   within the task
#   0      0       5 0 0 0             0  right      0  right
#   1      0       1 2 0 9             3  wrong      1  wrong
#   2      1       0 1 0 7             3  wrong      1  right
#   3      2       0 9 3 1             1  wrong      2  right
#   4      3       0 0 0 4             3  right      3  right

JUDGED = [
    LabelledNodes(torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])),
    LabelledNodes(torch.tensor([3, 4]), torch.tensor([2, 3])),
]
BY_HAND = SimpleNamespace(
    tasks=[
        SimpleNamespace(num_classes=2, train_nodes=torch.tensor([5, 6])),
        SimpleNamespace(num_classes=4, train_nodes=torch.tensor([7, 8])),
    ],
    labels=torch.tensor([0, 0, 1, 2, 3, 0, 1, 2, 3]),
    evaluation=lambda index: JUDGED[index],
)
LOGITS = torch.tensor(
    [
        [5.0, 0.0, 0.0, 0.0],
        [1.0, 2.0, 0.0, 9.0],
        [0.0, 1.0, 0.0, 7.0],
        [0.0, 9.0, 3.0, 1.0],
        [0.0, 0.0, 0.0, 4.0],
    ]
)


def test_evaluate_by_hand():
    row, within, by_class, seen = evaluate(LOGITS, BY_HAND, 1)
    assert row == pytest.approx([100 / 3, 50.0])
    assert within == pytest.approx([200 / 3, 100.0])
    assert by_class == [50.0, 0.0, 0.0, 100.0]
    assert seen == 40.0  # two of five nodes


def test_evaluate_first_task_is_over_its_own_classes():
    # Without the later columns node 1 is taken for class 1, and node 2 rightly so.
    row, within, by_class, _ = evaluate(LOGITS[:3, :2], BY_HAND, 0)
    assert row == within == pytest.approx([200 / 3])
    assert by_class == [50.0, 100.0]


def test_evaluate_counts_a_class_without_nodes_as_zero():
    judged = LabelledNodes(torch.tensor([0]), torch.tensor([0]))
    stream = SimpleNamespace(**vars(BY_HAND) | {"evaluation": lambda index: judged})
    assert evaluate(LOGITS, stream, 0) == ([100.0], [100.0], [100.0, 0.0], 100.0)


class SaysFirstClass(Finetune):
    """Predicts class 0 for all, and notes what it is asked on."""

    def __init__(self) -> None:
        super().__init__(MethodConfig())
        self.asked = []

    def predict_logits(self, ctx):
        view = ctx.view
        self.asked.append((view.task, view.num_nodes, view.num_classes, view.train_nodes.numel()))
        return torch.nn.functional.one_hot(torch.zeros(view.num_nodes).long(), view.num_classes)


def test_train_evaluates_a_time_step_before_it_is_learned():
    graph = generate(SyntheticConfig(nodes=90, classes=3, steps=3))
    stream = TaskStream(graph, Protocol(stream="time"))
    learner, events = run(stream, SaysFirstClass())
    done = [event for event in events if isinstance(event, TaskDone)]
    assert done[0].before is None
    for event in done[1:]:
        labels = stream.evaluation(event.task).labels
        assert event.before == event.row[-1] == 100 * float((labels == 0).double().mean())
    first, second, third = stream.tasks
    assert learner.method.asked == [
        (0, first.num_nodes, 1, first.train_nodes.numel()),
        (1, second.num_nodes, 1, 0),  # one class known, no label shown
        (1, second.num_nodes, 2, second.train_nodes.numel()),
        (2, third.num_nodes, 2, 0),
        (2, third.num_nodes, 3, third.train_nodes.numel()),
    ]


def test_train_asks_nothing_ahead_of_a_class_task(make_graph):
    learner, events = run(stream_of(make_graph), SaysFirstClass())
    assert len(learner.method.asked) == 3
    assert all(event.before is None for event in events if isinstance(event, TaskDone))


# Needs.


def test_check_needs_refuses_an_unknown_need_in_one_sentence(make_graph):
    class Greedy(Finetune):
        needs = frozenset({"attention", "test_labels"})

    method = Greedy(MethodConfig())
    with pytest.raises(InputError) as caught:
        check_needs(method)
    assert str(caught.value) == (
        "Expected 'needs' among arrival, attention, double_backward, gat, old_labels, unjudged, "
        "unlabelled, validation "
        "(got 'test_labels'); correct the declaration of Greedy."
    )
    with pytest.raises(InputError):
        next(train(Learner(method), stream_of(make_graph), MODEL, TRAINING, seed=0))


def test_check_needs_returns_what_is_known():
    assert check_needs(make_method("finetune")) == frozenset()
    assert check_needs(make_method("joint")) == {"old_labels"}


class Attentive(Finetune):
    needs = frozenset({"attention"})


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_train_refuses_a_backbone_without_the_attention_that_a_method_needs(make_graph, backbone):
    stream, model = stream_of(make_graph), MODEL.model_copy(update={"backbone": backbone})
    with pytest.raises(InputError) as caught:
        next(train(Learner(Attentive(MethodConfig())), stream, model, TRAINING, seed=0))
    assert str(caught.value) == (
        "Expected 'backbone' to be 'gat' for Attentive, which needs attention "
        f"(got '{backbone}'); change it or the method."
    )


@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage"])
def test_plain_path_shows_attention_where_the_backbone_has_any(make_graph, backbone):
    shown = []

    class Easy(Finetune):
        needs = frozenset({"double_backward"})

        def loss(self, ctx):
            logits, attention = ctx.forward(ctx.batch.nodes, attention=True)
            shown.append(len(attention))
            return ctx.cross_entropy(logits, ctx.batch.labels)

    model = MODEL.model_copy(update={"backbone": backbone})
    list(train(Learner(Easy(MethodConfig())), stream_of(make_graph), model, TRAINING, seed=0))
    assert set(shown) == {2 if backbone == "gat" else 0}


# Continuing.


def test_train_continues_to_the_same_bits(make_graph):
    stream = stream_of(make_graph)
    whole, events = run(stream, make_method("dslr", DSLR))
    losses = [event.loss for event in events if isinstance(event, Epoch) and event.task > 0]

    first = Learner(make_method("dslr", DSLR))
    for event in train(first, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            break
    method = make_method("dslr", DSLR)
    method.load_state_dict(copy.deepcopy(first.method.state_dict()))
    second = Learner(method, copy.deepcopy(first.model), next_task=1)
    rest = list(train(second, stream, MODEL, TRAINING, seed=0))

    assert (rest[0].task, second.next_task) == (1, 3)
    again = [event.loss for event in rest if isinstance(event, Epoch)]
    assert [loss.item() for loss in again] == [loss.item() for loss in losses]
    for one, other in zip(
        whole.model.state_dict().items(), second.model.state_dict().items(), strict=True
    ):
        assert one[0] == other[0]
        assert torch.equal(one[1], other[1])
    assert rest[-1].row == events[-1].row


def test_train_of_a_finished_learner_does_nothing(make_graph):
    stream = stream_of(make_graph)
    learner, _ = run(stream, make_method("finetune"))
    assert list(train(learner, stream, MODEL, TRAINING, seed=0)) == []


def test_train_leaves_global_randomness_alone(make_graph):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(stream_of(make_graph), make_method("dslr", DSLR))
    assert torch.equal(torch.rand(3), expected)
