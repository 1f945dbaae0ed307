"""ContinualGNN: detection by hand and by dense matrices, the loss as its formula."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from evergraph.events import TaskDone
from evergraph.methods import TaskContext, TrainConfig, make_method
from evergraph.methods.continual_gnn import detect, diffuse, logit_change, may_change, prefix_graph
from evergraph.nn import ModelConfig, NodeClassifier
from evergraph.stream import Adjacency, Protocol, TaskStream
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=2)
KEPT, KEPT_LABELS = torch.tensor([0, 2, 5, 7]), torch.tensor([0, 0, 0, 1])


def adjacency(n: int, pairs) -> Adjacency:
    edges = torch.tensor([*pairs, *((b, a) for a, b in pairs)]).reshape(-1, 2).T
    return Adjacency.from_edges(edges, n)


# Old nodes 0 to 4 and new ones 5, 6: 0 - 1 - 2 - 3 - 4, with 5 at 0 and 6 at 5.
PATH = adjacency(7, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 5), (5, 6)])


def stream_of(make_graph, **kwargs) -> TaskStream:
    return TaskStream(make_graph(num_nodes=70, num_classes=6, **kwargs), Protocol())


def context(stream: TaskStream, task: int, model=None, **kwargs) -> TaskContext:
    settings = {"model_config": MODEL, "training": TRAINING, "seed": 0, "final": False}
    return TaskContext(stream.view(task), model=model, **(settings | kwargs))


def begun(stream: TaskStream, **settings):
    """The method at the start of task 1, with a planted buffer and a random network."""
    method = make_method("continual-gnn", {"buffer_size": 10, **settings})
    method.buffer.picks = {0: KEPT[:3], 1: KEPT[3:]}
    ctx = context(stream, 1, old_model(stream))
    method.begin_task(ctx)
    ctx.model.eval()
    return method, ctx


def old_model(stream: TaskStream, config: ModelConfig = MODEL):
    return NodeClassifier(config, stream.view(0).num_features, 2, torch.Generator().manual_seed(3))


def slow_detection(stream: TaskStream, share: float, steps: int) -> tuple[list[int], int]:
    """Detects with the previous task's own view, a dense matrix and Python's sort."""
    model, before, now = old_model(stream), stream.view(0), stream.view(1)
    n = before.num_nodes
    with torch.no_grad():
        then = model(before.features, before.adjacency).logits
        change = (model(now.features, now.adjacency).logits[:n] - then).abs().sum(dim=1)
    change[change < 1e-5] = 0  # rounding
    matrix = torch.eye(now.num_nodes, dtype=torch.float64)
    matrix[now.adjacency.dst, now.adjacency.src] = 1
    matrix /= matrix.sum(dim=1, keepdim=True)
    values = torch.cat([change.double(), torch.zeros(now.num_nodes - n).double()])
    for _ in range(steps):
        values = matrix @ values
    reached = [u for u in range(n) if values[u] > 0]
    ranked = sorted(reached, key=lambda u: -float(values[u]))
    return sorted(ranked[: round(share * len(ranked))]), len(reached)


# Detection.


def test_diffuse_by_hand():
    # 0 - 1 - 2 and 3 alone: (D+I)⁻¹(A+I) averages a node with its neighbours.
    graph = adjacency(4, [(0, 1), (1, 2)])
    values = torch.tensor([6.0, 0.0, 0.0, 5.0])
    torch.testing.assert_close(diffuse(values, graph, 1), torch.tensor([3.0, 2.0, 0.0, 5.0]))
    torch.testing.assert_close(diffuse(values, graph, 2), torch.tensor([2.5, 5 / 3, 1.0, 5.0]))
    assert torch.equal(diffuse(values, graph, 0), values)


def test_detect_takes_a_share_of_what_was_reached_ties_to_the_lowest_node():
    values = torch.tensor([0.0, 3.0, 1.0, 0.0, 2.0, 2.0, 2.0])
    assert detect(values, 0.8).tolist() == [1, 4, 5, 6]  # 4 of 5: the lowest is left out
    assert detect(values, 0.6).tolist() == [1, 4, 5]
    assert detect(values, 1.0).tolist() == [1, 2, 4, 5, 6]
    assert detect(values, 0.0).tolist() == []
    assert detect(torch.zeros(3), 0.8).tolist() == []


def test_may_change_counts_hops_from_nodes_with_new_neighbours():
    assert may_change(PATH, 5, 0).tolist() == [True, False, False, False, False]
    assert may_change(PATH, 5, 1).tolist() == [True, True, False, False, False]
    assert may_change(PATH, 5, 3).tolist() == [True, True, True, True, False]


def test_prefix_graph_is_the_previous_view(make_graph):
    stream = stream_of(make_graph)
    before = stream.view(0).adjacency
    again = prefix_graph(stream.view(1).adjacency, before.num_nodes)
    assert torch.equal(again.keys, before.keys)
    assert again.num_nodes == before.num_nodes


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("backbone", "hops"), [("gat", 2), ("gcn", 3), ("sage", 2)])
def test_logit_change_is_zero_outside_and_not_inside_reach(make_graph, sparse, backbone, hops):
    # Two layers hear two hops far; GCN one further, by the degrees of those it hears.
    stream = stream_of(make_graph, sparse=sparse, average_degree=2.0)
    # Wide enough that no node's change dies in the ReLU.
    config = ModelConfig(backbone=backbone, channels=32, heads=2)
    num_old = stream.tasks[0].num_nodes
    ctx = context(stream, 1, old_model(stream, config).eval(), model_config=config)
    change = logit_change(ctx, num_old)
    graph = torch.eye(ctx.view.num_nodes)
    graph[ctx.adjacency.dst, ctx.adjacency.src] = 1
    near = (torch.linalg.matrix_power(graph, hops)[:num_old, num_old:] > 0).any(dim=1)
    assert 0 < int(near.sum()) < num_old
    assert (change[:num_old][near] > 0).all()
    assert (change[:num_old][~near] == 0).all()
    assert (change[num_old:] == 0).all()
    before = stream.view(0)
    with torch.no_grad():  # the mask hides rounding alone
        then = ctx.model(before.features, before.adjacency).logits
        exact = (ctx.forward()[:num_old] - then).abs().sum(dim=1)
    torch.testing.assert_close(change[:num_old], exact)


def test_logit_change_is_not_fooled_by_rounding(make_graph, monkeypatch):
    stream = stream_of(make_graph, average_degree=2.0)
    num_old = stream.tasks[0].num_nodes
    ctx = context(stream, 1, old_model(stream).eval())
    observe = ctx.observe

    def rounded(*arguments):
        output = observe(*arguments)
        return output if arguments else output._replace(logits=output.logits + 1e-6)

    monkeypatch.setattr(ctx, "observe", rounded)
    change = logit_change(ctx, num_old)[:num_old]
    assert torch.equal(change > 0, may_change(ctx.adjacency, num_old, 1))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("share", "steps"), [(0.8, 2), (0.5, 2), (0.8, 0), (1.0, 1)])
def test_detection_equals_a_slow_one(make_graph, sparse, share, steps):
    stream = stream_of(make_graph, sparse=sparse, average_degree=2.5)
    method, _ = begun(stream, detected_share=share, diffusion_steps=steps)
    expected, reached = slow_detection(stream, share, steps)
    assert method.detected.tolist() == expected != []
    assert method.num_reached == reached < stream.tasks[0].num_nodes
    twice = [1 + (node in expected) for node in KEPT.tolist()]
    assert method.weight.tolist() == twice
    assert method.total_weight == sum(twice)


def test_detection_finds_nothing_when_new_nodes_touch_no_old_one(make_graph):
    stream = stream_of(make_graph, average_degree=0.0)
    method, _ = begun(stream)
    assert method.detected.numel() == method.num_reached == 0
    assert method.weight.tolist() == [1, 1, 1, 1]


# Importance and loss.


def test_importance_is_the_squared_gradient_of_the_mean_memory_loss(make_graph):
    stream = stream_of(make_graph)
    method, ctx = begun(stream)
    old = old_model(stream)
    logits = old(ctx.view.features, ctx.view.adjacency).logits[KEPT]
    assert logits.shape == (4, 2)  # before the head has grown
    functional.cross_entropy(logits, KEPT_LABELS).backward()
    assert set(method.importance) == set(method.anchor) == {n for n, _ in old.named_parameters()}
    for name, value in old.named_parameters():
        torch.testing.assert_close(method.importance[name], value.grad.square())
        assert torch.equal(method.anchor[name], value)


def test_importance_of_parts_adds_up_to_the_whole(make_graph):
    stream = stream_of(make_graph)
    method, _ = begun(stream)
    whole = method.importance
    wide = TRAINING.model_copy(update={"fanout": 70})  # samples every neighbour
    parts = context(stream, 1, old_model(stream), training=wide, batch_size=3)
    method.begin_task(parts)
    for name, value in whole.items():
        torch.testing.assert_close(method.importance[name], value, atol=1e-7, rtol=1e-4)


def test_loss_weighs_detected_nodes_twice_and_anchors_old_weights(make_graph):
    stream = stream_of(make_graph, average_degree=2.5)
    method, ctx = begun(stream, lam=5.0, detected_share=0.5)
    assert set(method.weight.tolist()) == {1.0, 2.0}
    with torch.no_grad():
        for value in ctx.model.parameters():
            value.add_(0.3)
    logits, view = ctx.forward(), ctx.view
    each = functional.cross_entropy(
        logits[torch.cat([view.train_nodes, KEPT])],
        torch.cat([view.train_labels, KEPT_LABELS]),
        reduction="none",
    )
    weights = torch.cat([torch.ones(view.train_nodes.numel()), method.weight])
    # Only rows of the head that existed are held: all of them moved by 0.3.
    penalty = sum(0.09 * float(value.sum()) for value in method.importance.values())
    expected = (weights * each).sum() / weights.sum() + 2.5 * penalty
    assert penalty > 0
    torch.testing.assert_close(method.loss(ctx), expected)


def test_loss_of_the_first_task_is_plain_cross_entropy(make_graph):
    method = make_method("continual-gnn")
    ctx = context(stream_of(make_graph), 0)
    method.begin_task(ctx)
    ctx.model.eval()
    expected = functional.cross_entropy(ctx.forward()[ctx.view.train_nodes], ctx.view.train_labels)
    torch.testing.assert_close(method.loss(ctx), expected)


def test_penalty_holds_weights_where_they_were(make_graph):
    stream, moved = stream_of(make_graph), []
    for lam in (0.0, 1e6):
        learner = Learner(make_method("continual-gnn", {"lam": lam, "buffer_size": 20}))
        training = TrainConfig(epochs=30, weight_decay=0)
        done = (
            event
            for event in train(learner, stream, MODEL, training, seed=0)
            if isinstance(event, TaskDone)
        )
        next(done)
        before = learner.model.encoder.layers[0].weight.detach().clone()
        next(done)
        after = learner.model.encoder.layers[0].weight.detach()
        moved.append(float((after - before).norm()))
    assert moved[1] < 0.7 * moved[0]


def test_nothing_but_the_buffer_is_kept_after_a_task(make_graph):
    stream = stream_of(make_graph)
    learner = Learner(make_method("continual-gnn", {"buffer_size": 20}))
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            method = learner.method
            assert method.memory_bytes() == method.buffer.memory_bytes()
            assert (method.importance, method.anchor, method.weight) == ({}, {}, None)
            assert learner.num_seen == stream.tasks[event.task].num_nodes
            assert ("detection" in event.report) == (event.task > 0)


def test_report_counts_what_was_detected(make_graph):
    stream = stream_of(make_graph)
    learner = Learner(make_method("continual-gnn", {"buffer_size": 6}))
    reports = [
        event.report
        for event in train(learner, stream, MODEL, TRAINING, seed=0)
        if isinstance(event, TaskDone)
    ]
    assert reports[0] == {}
    detection = reports[1]["detection"]
    assert detection["detected"] == round(0.8 * detection["reached"]) > 0
    assert 0 <= detection["detected_in_buffer"] <= 6
