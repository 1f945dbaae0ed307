"""LwF: the loss is the formula, the teacher stands still."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.events import Epoch, TaskDone, TaskStarted
from evergraph.methods import TaskContext, TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import LabelledNodes, Protocol, TaskStream
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=3)


def stream_of(make_graph) -> TaskStream:
    return TaskStream(make_graph(num_nodes=70, num_classes=6), Protocol())


def after_first_task(
    stream: TaskStream, training: TrainConfig = TRAINING, tasks: int = 1, **settings
) -> Learner:
    learner = Learner(make_method("lwf", settings))
    for event in train(learner, stream, MODEL, training, seed=0):
        if isinstance(event, TaskDone) and event.task == tasks - 1:
            break
    return learner


def second_task(learner: Learner, stream: TaskStream, **options) -> TaskContext:
    """A context at the next task that has begun."""
    ctx = TaskContext(
        stream.view(learner.next_task),
        model=learner.model,
        model_config=MODEL,
        training=TRAINING,
        seed=0,
        final=False,
        **options,
    )
    learner.method.begin_task(ctx)
    return ctx


def answers(learner: Learner, stream: TaskStream) -> torch.Tensor:
    """What the network so far says of the next task's graph."""
    view = stream.view(learner.next_task)
    learner.model.eval()
    with torch.no_grad():
        return learner.model(view.features, view.adjacency).logits


@pytest.mark.parametrize("loss_over", ["current", "seen"])
@pytest.mark.parametrize("distill_over", ["task", "seen"])
@pytest.mark.parametrize(("lam", "temperature"), [(1.0, 2.0), (10.0, 20.0)])
def test_lwf_loss_is_the_formula(make_graph, lam, temperature, distill_over, loss_over):
    stream = stream_of(make_graph)
    settings = {"lam": lam, "temperature": temperature, "loss_over": loss_over}
    learner = after_first_task(stream, tasks=2, distill_over=distill_over, **settings)
    teacher = answers(learner, stream)
    ctx = second_task(learner, stream)
    with torch.no_grad():
        for parameter in ctx.model.parameters():
            parameter.add_(0.1)
    ctx.model.eval()
    logits, nodes = ctx.forward(), ctx.view.train_nodes
    distilled = torch.zeros(())
    heads = [[0, 1], [2, 3]] if distill_over == "task" else [[0, 1, 2, 3]]
    for node in nodes.tolist():
        for head in heads:
            target = torch.exp(teacher[node, head] / temperature)
            shown = torch.exp(logits[node, head] / temperature)
            distilled -= (target / target.sum() * torch.log(shown / shown.sum())).sum()
    first = 4 if loss_over == "current" else 0
    current = functional.cross_entropy(logits[nodes, first:], ctx.view.train_labels - first)
    expected = current + lam * distilled / nodes.numel()
    torch.testing.assert_close(learner.method.loss(ctx), expected)


def test_lwf_distillation_has_no_gradient_at_the_beginning(make_graph):
    # The network is its own teacher: only the cross-entropy moves it, whatever λ is.
    stream = stream_of(make_graph)
    gradients = []
    for lam in (0.0, 1000.0):
        learner = after_first_task(stream, lam=0.0)
        learner.method = make_method("lwf", {"lam": lam})
        ctx = second_task(learner, stream)
        ctx.model.eval()
        loss = learner.method.loss(ctx)
        gradients.append(torch.autograd.grad(loss, list(ctx.model.parameters())))
    for without, weighted in zip(*gradients, strict=True):
        torch.testing.assert_close(without, weighted, rtol=1e-3, atol=1e-3)


def test_lwf_teacher_does_not_move(make_graph):
    stream = stream_of(make_graph)
    learner = after_first_task(stream)
    expected = answers(learner, stream)
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, Epoch):
            assert torch.equal(learner.method._teacher, expected)
            assert not learner.method._teacher.requires_grad
        if isinstance(event, TaskDone):
            break
    ctx = learner.context
    assert not torch.equal(learner.method.predict_logits(ctx)[:, :2], expected)


def test_lwf_reads_the_teacher_by_node(make_graph):
    stream = stream_of(make_graph)
    learner = after_first_task(stream)
    ctx = second_task(learner, stream, batch_size=4)
    ctx.model.eval()  # whole neighbourhoods, so that losses can be compared
    order = torch.randperm(ctx.view.train_nodes.numel(), generator=torch.Generator().manual_seed(1))
    whole = learner.method.loss(ctx)
    ctx.batch = LabelledNodes(ctx.view.train_nodes[order], ctx.view.train_labels[order])
    torch.testing.assert_close(learner.method.loss(ctx), whole)


def test_lwf_is_finetuning_without_weight_and_at_the_first_task(make_graph):
    stream = stream_of(make_graph)

    def logits(name: str, **settings) -> list[torch.Tensor]:
        learner = Learner(make_method(name, settings))
        return [
            learner.method.predict_logits(learner.context)
            for event in train(learner, stream, MODEL, TRAINING, seed=0)
            if isinstance(event, TaskDone)
        ]

    finetune, off = logits("finetune"), logits("lwf", lam=0.0, loss_over="seen")
    on = logits("lwf", loss_over="seen")
    assert all(map(torch.equal, finetune, off))
    assert torch.equal(finetune[0], on[0])
    assert not torch.equal(finetune[1], on[1])


def test_lwf_keeps_answers_closer_than_finetuning(make_graph):
    stream, training = stream_of(make_graph), TrainConfig(epochs=40)
    distances = []
    for lam in (0.0, 10.0):
        learner = after_first_task(stream, training, lam=lam)
        nodes = stream.view(1).train_nodes
        before = answers(learner, stream)[nodes].softmax(dim=1)
        for event in train(learner, stream, MODEL, training, seed=0):
            if isinstance(event, TaskDone):
                break
        after = learner.method.predict_logits(learner.context)[nodes, :2].softmax(dim=1)
        distances.append((after - before).abs().mean())
    assert distances[1] < 0.8 * distances[0]


def test_lwf_keeps_nothing_beyond_the_network(make_graph):
    learner = Learner(make_method("lwf"))
    for event in train(learner, stream_of(make_graph), MODEL, TRAINING, seed=0):
        if not isinstance(event, TaskStarted | Epoch):
            assert learner.method.memory_bytes() == 0
            assert learner.method.state_dict() == {"heads": [2] * learner.next_task}
            assert learner.method._teacher is None


def test_lwf_joins_a_class_that_comes_alone_to_the_head_before(make_graph):
    method, stream = make_method("lwf"), TaskStream(make_graph(70, 6), Protocol(classes_per_task=1))
    for _ in train(Learner(method), stream, MODEL, TRAINING, seed=0):
        pass
    assert method.heads == [6]
    again = make_method("lwf")
    again.load_state_dict(method.state_dict())
    assert again.heads == [6]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lam": -1}, "Expected 'lam' of at least 0.*got -1"),
        ({"temperature": 0}, "Expected 'temperature' above 0.*got 0"),
    ],
    ids=["lam", "temperature"],
)
def test_lwf_refuses_bad_settings_in_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        make_method("lwf", settings)
