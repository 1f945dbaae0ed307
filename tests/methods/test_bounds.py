"""The bounds: fine-tuning keeps nothing, joint training reads old labels by grant alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional

import golden
from evergraph import ContinualNodeClassifier
from evergraph.closed_form.propagation import propagate
from evergraph.config import Variant, resolve
from evergraph.events import Epoch, TaskDone
from evergraph.methods import TaskContext, TrainConfig, make_method
from evergraph.methods.analytic_config import AnalyticConfig
from evergraph.methods.bounds import personalised_pagerank
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.stream.datasets.synthetic import SyntheticConfig, generate
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


def test_joint_counts_the_labels_that_the_next_task_asks_for(make_graph):
    learner, stream = Learner(make_method("joint")), stream_of(make_graph)
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            asked = stream.tasks[: min(event.task + 1, 2)]  # after the last task for none
            labels = sum(task.train_nodes.numel() for task in asked)
            assert learner.method.state_dict() == {"num_labels": labels}
            assert event.memory_bytes == 16 * labels
            assert (event.memory_bytes_without_graph > event.memory_bytes) == (event.task < 2)


def unit(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows, dim=1)


def direct_ridge(x: torch.Tensor, labels: torch.Tensor, strength: float) -> torch.Tensor:
    """Ridge regression of one-hot labels on rows, all alike, from its normal equations."""
    targets = torch.eye(int(labels.max()) + 1).double()[labels]
    gram = x.T @ x / len(x) + strength * torch.eye(x.shape[1], dtype=torch.float64)
    return torch.linalg.solve(gram, x.T @ targets / len(x))


def test_joint_analytic_is_ridge_on_all_rows_of_the_present_graph(make_graph):
    stream = TaskStream(make_graph(num_nodes=90, num_classes=6, homophily=0.9), Protocol())
    learner, judged = Learner(make_method("joint", {"learner": "analytic"})), 0
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if not isinstance(event, TaskDone):
            continue
        chosen, view = event.report, learner.context.view
        dense = torch.zeros(view.num_nodes, view.num_nodes, dtype=torch.float64)
        dense[view.adjacency.dst, view.adjacency.src] = 1
        looped = dense + torch.eye(view.num_nodes)
        root = looped.sum(dim=1).rsqrt()
        spread, hops = root[:, None] * looped * root, [unit(view.features.double())]
        for _ in range(3):
            hops.append(spread @ hops[-1])
        if "|" in chosen["hops"] or chosen["class_weight"] != "natural":
            continue
        taken = [unit(hops[int(hop)]) for hop in chosen["hops"].split("+")]
        rows = torch.stack(taken).mean(dim=0)
        nodes = torch.cat([task.train_nodes for task in stream.tasks[: event.task + 1]])
        weights = direct_ridge(rows[nodes], stream.labels[nodes], chosen["strength"])
        if not chosen["mean_field"]:
            expected = propagate(rows @ weights, view.adjacency, chosen["teleport"])
            shown = learner.method.predict_logits(learner.context)
            torch.testing.assert_close(shown.double(), expected, atol=1e-4, rtol=1e-3)
            judged += event.task > 0
    assert judged  # mean-field inference is no ridge regression


def test_joint_analytic_predicts_by_its_own_columns_in_a_time_stream(monkeypatch):
    small = partial(AnalyticConfig, memory=2_000)  # projects on directions, anew at every task
    monkeypatch.setattr("evergraph.methods.bounds.AnalyticConfig", small)
    graph = generate(SyntheticConfig(nodes=120, classes=5, steps=4, feature_dim=40))
    stream = TaskStream(graph, Protocol(stream="time"))
    learner = Learner(make_method("joint", {"learner": "analytic"}))
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            assert learner.method.analytic.selection.basis is not None
            fresh = replace(learner.context)  # nothing is prepared
            shown = learner.method.predict_logits(learner.context)
            assert torch.equal(shown, learner.method.predict_logits(fresh))


@pytest.mark.parametrize("backbone", ["gat", "gcn"])
def test_joint_appnp_is_an_mlp_and_the_steps_of_personalised_pagerank(make_graph, backbone):
    stream = stream_of(make_graph)
    settings = {"learner": "appnp", "teleport": 0.3, "propagation_steps": 4}
    model = MODEL.model_copy(update={"backbone": backbone})
    learner = Learner(make_method("joint", settings))
    for _ in train(learner, stream, model, TRAINING, seed=0):
        pass
    view, (first, second) = learner.context.view, learner.model.encoder.layers
    head = learner.model.head
    hidden = (view.features @ first.weight + first.bias).relu()
    logits = head((hidden @ second.weight + second.bias).relu())
    looped = torch.eye(view.num_nodes)
    looped[view.adjacency.dst, view.adjacency.src] = 1
    root = looped.sum(dim=1).rsqrt()
    spread, expected = root[:, None] * looped * root, logits
    for _ in range(4):
        expected = 0.7 * spread @ expected + 0.3 * logits
    shown = learner.method.predict_logits(learner.context)
    torch.testing.assert_close(shown, expected.detach(), atol=1e-5, rtol=1e-4)


def test_joint_appnp_learns_through_the_propagation(make_graph):
    stream, method = stream_of(make_graph), make_method("joint", {"learner": "appnp"})
    ctx = context(stream, 2, GRANT)
    method.begin_task(ctx)
    ctx.model.eval()
    nodes = torch.cat([task.train_nodes for task in stream.tasks])
    expected = functional.cross_entropy(method.predict_logits(ctx)[nodes], stream.labels[nodes])
    loss = method.loss(ctx)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(layer.weight.grad.any() for layer in (*ctx.model.encoder.layers, ctx.model.head))


def test_personalised_pagerank_has_the_right_gradient(make_graph):
    graph = stream_of(make_graph).view(0).adjacency
    logits = torch.randn(graph.num_nodes, 2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: personalised_pagerank(x, graph, 0.2, 3), [logits])


def test_joint_learners_differ_and_only_what_counts_is_hashed():
    def hashed(text: str) -> str:
        return resolve(Variant.parse_dataset("cora"), Variant.parse(text), 0).hash

    assert hashed("joint") == hashed("joint:learner=network") == hashed("joint:teleport=0.2")
    names = ("", ":learner=analytic", ":learner=appnp", ":learner=appnp,teleport=0.2")
    assert len({hashed(f"joint{name}") for name in names}) == 4


@pytest.mark.parametrize("learner", ["analytic", "appnp"])
def test_joint_learner_predicts_the_same_once_it_is_stored(tmp_path, learner):
    settings = {"learner": learner, "epochs": 3, "channels": 4, "heads": 2}
    clf = ContinualNodeClassifier("joint", settings=settings, seed=3, device="cpu")
    for kind, arguments in golden.changes():
        getattr(clf, kind)(**arguments)
    clf.save(tmp_path / "state")
    again = ContinualNodeClassifier.load(tmp_path / "state")
    assert again.predict_proba() == pytest.approx(clf.predict_proba(), abs=1e-6)
    assert again.history_[-1]["memory_bytes"] == clf.history_[-1]["memory_bytes"] > 0
