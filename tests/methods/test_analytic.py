"""The analytic learner: joint ridge regression in every order, whatever is kept is counted."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from evergraph.closed_form.cross_validation import TEMPERATURES
from evergraph.closed_form.selection import STRENGTHS, TELEPORTS
from evergraph.config import RunConfig, Variant, resolve
from evergraph.errors import InputError
from evergraph.estimator.config import read_config
from evergraph.events import TaskDone
from evergraph.files import unpack
from evergraph.methods import TaskContext, TrainConfig, analytic_config, make_method
from evergraph.methods.analytic_config import AnalyticConfig
from evergraph.nn import ModelConfig
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.testing import find_leaks
from evergraph.train import Learner, train

MODEL, TRAINING = ModelConfig(channels=4, heads=2), TrainConfig(epochs=3)
# Rows that do not change while the graph grows, each node predicted by itself.
FIXED = {
    "hops": "0",
    "strength": 0.01,
    "teleport": 1,
    "mean_field": False,
    "class_weight": "natural",
    "precision": "double",
}
ARRIVED = FIXED | {"hops": "2", "statistics": "arrival"}


def learn(stream: TaskStream, **settings):
    """Learns a whole stream; returns the method and its logits."""
    learner = Learner(make_method("analytic", settings))
    list(train(learner, stream, MODEL, TRAINING, seed=0))
    return learner.method, learner.method.predict_logits(learner.context)


def smoothed(stream: TaskStream, task: int, hops: int) -> torch.Tensor:
    """Rows of all nodes seen at a task, by dense matrices."""
    view = stream.view(task)
    n = view.num_nodes
    a = torch.eye(n, dtype=torch.float64)
    a[view.adjacency.dst, view.adjacency.src] = 1
    root = a.sum(dim=1).rsqrt()
    s = root[:, None] * a * root
    features = view.features.double()
    x = torch.linalg.matrix_power(s, hops) @ (features / features.norm(dim=1, keepdim=True))
    return x / x.norm(dim=1, keepdim=True)


def ridge(rows: torch.Tensor, labels: torch.Tensor, strength: float) -> torch.Tensor:
    """Joint ridge regression of one-hot labels, every row weighing the same."""
    targets, n = torch.nn.functional.one_hot(labels).double(), labels.numel()
    left = rows.t() @ rows / n + strength * torch.eye(rows.shape[1], dtype=rows.dtype)
    return torch.linalg.solve(left, rows.t() @ targets / n)


def train_parts(stream: TaskStream) -> list[torch.Tensor]:
    return [task.train_nodes for task in stream.tasks]


def choices(stream, told):
    """Learns a stream; returns the learner and what ``told`` says of it after each task."""
    learner = Learner(make_method("analytic"))
    found = []
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            found.append(told(learner.method))
    return learner, found


@pytest.mark.parametrize("sparse", [False, True])
def test_analytic_is_joint_ridge_when_rows_stay(make_graph, sparse):
    stream = TaskStream(make_graph(60, 6, sparse=sparse), Protocol())
    _, logits = learn(stream, **FIXED)
    dense = TaskStream(make_graph(60, 6), Protocol())
    x = dense.features.double() / dense.features.double().norm(dim=1, keepdim=True)
    nodes = torch.cat(train_parts(stream))
    expected = x @ ridge(x[nodes], stream.labels[nodes], 0.01)
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-5)


def test_analytic_takes_rows_as_they_arrive(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    _, logits = learn(stream, **ARRIVED)
    parts = train_parts(stream)
    rows = torch.cat([smoothed(stream, t, 2)[nodes] for t, nodes in enumerate(parts)])
    weights = ridge(rows, stream.labels[torch.cat(parts)], 0.01)
    expected = smoothed(stream, 2, 2) @ weights
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-5)


def test_analytic_follows_the_nodes_seen_before(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    method, logits = learn(stream, **ARRIVED | {"statistics": "follow"})
    parts, rows = train_parts(stream), []
    for task, nodes in enumerate(parts):
        now = smoothed(stream, task, 2)
        if task:  # where the nodes of all earlier tasks are now, and where they were one task ago
            before = smoothed(stream, task - 1, 2)
            moved = now[: before.shape[0]].mean(dim=0) - before.mean(dim=0)
            assert moved.abs().max() > 1e-3
            rows = [x + moved for x in rows]
        rows.append(now[nodes])
    weights = ridge(torch.cat(rows), stream.labels[torch.cat(parts)], 0.01)
    torch.testing.assert_close(logits.double(), now @ weights, rtol=0, atol=1e-5)
    assert method.mean_of == 60
    torch.testing.assert_close(method.mean_row, now.mean(dim=0), rtol=0, atol=1e-6)


def test_analytic_propagates_the_scores_of_joint_ridge(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    _, alone = learn(stream, **FIXED)
    _, logits = learn(stream, **FIXED | {"teleport": 0.4})
    view = stream.view(2)
    average = torch.eye(60, dtype=torch.float64)
    average[view.adjacency.dst, view.adjacency.src] = 1
    average /= average.sum(dim=1, keepdim=True)
    expected = alone.double()
    for _ in range(5):
        expected = 0.4 * alone + 0.6 * average @ expected
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-6)


def test_analytic_chooses_the_teleport_of_least_loss(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    learner, found = choices(
        stream, lambda m: (m.selection.teleport, dict(m.selection.losses["teleport"]))
    )
    chosen, losses = zip(*found, strict=True)
    assert list(chosen) == [min(TELEPORTS, key=lambda t, loss=loss: loss[t]) for loss in losses]
    assert all(set(loss) == set(TELEPORTS) for loss in losses)
    assert all(before[t] <= after[t] for before, after in pairwise(losses) for t in TELEPORTS)
    report = learner.method.selection.report()
    assert report["teleport_losses"][str(report["teleport"])] == min(losses[-1].values())
    _, expected = learn(stream, teleport=report["teleport"])
    assert torch.equal(learner.method.predict_logits(learner.context), expected)


@pytest.mark.parametrize(("homophily", "low", "high"), [(0.2, 0.8, 1), (0.9, 0.1, 0.5)])
def test_analytic_propagates_where_that_helps(homophily, low, high):
    options = {"nodes": 800, "classes": 6, "homophily": homophily, "feature_signal": 2}
    method, _ = learn(TaskStream(load_graph("synthetic", options=options), Protocol()), hops="0+1")
    assert low <= method.selection.teleport <= high


def test_analytic_applies_mean_field_inference_when_its_loss_is_smaller(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    learner, found = choices(
        stream, lambda m: (m.selection.mean_field, dict(m.selection.losses["mean_field"]))
    )
    assert [applied for applied, _ in found] == [losses[1] < losses[0] for _, losses in found]
    assert all(before[1][w] <= after[1][w] for before, after in pairwise(found) for w in (0, 1))
    report = learner.method.selection.report()
    assert report["mean_field_losses"] == {"off": found[-1][1][0], "on": found[-1][1][1]}
    _, expected = learn(stream, mean_field=report["mean_field"])
    assert torch.equal(learner.method.predict_logits(learner.context), expected)


@pytest.mark.parametrize("homophily", [0.3, 0.6])
def test_analytic_gains_by_mean_field_where_neighbours_are_of_many_classes(homophily):
    options = {"nodes": 1200, "homophily": homophily, "feature_signal": 2, "seed": 5}
    stream = TaskStream(load_graph("synthetic", options=options), Protocol())
    test = torch.cat([task.test_nodes for task in stream.tasks])

    def right(logits: torch.Tensor) -> float:
        return float((logits[test].argmax(dim=1) == stream.labels[test]).double().mean())

    method, logits = learn(stream)
    assert method.selection.mean_field
    assert right(logits) > right(learn(stream, mean_field=False)[1]) + 0.01


def test_analytic_does_not_depend_on_the_order_of_classes(make_graph):
    graph = make_graph(60, 6)
    found = []
    for order in ("label", "random:1", "random:2"):
        stream = TaskStream(graph, Protocol(order=order))
        _, logits = learn(stream, **FIXED)
        by_name = logits[:, torch.tensor([stream.class_names.index(n) for n in graph.class_names])]
        found.append(by_name[torch.argsort(stream.original_ids)])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=1e-6)


def in_batches(stream: TaskStream, parts: list[torch.Tensor], **settings) -> torch.Tensor:
    """Feeds the last view's nodes in other batches, whose classes recur."""
    method = make_method("analytic", settings)
    whole = stream.view(stream.num_tasks - 1)
    for index, nodes in enumerate(parts):
        view = type(whole)(
            **{**vars(whole), "train_nodes": nodes, "train_labels": stream.labels[nodes]}
        )
        ctx = TaskContext(
            view,
            model=None,
            model_config=MODEL,
            training=TRAINING,
            seed=0,
            final=index == len(parts) - 1,
        )
        method.begin_task(ctx)
        list(method.fit_task(ctx))
        method.end_task(ctx)
    return method.predict_logits(ctx)


@pytest.mark.parametrize("statistics", ["follow", "arrival", "refresh"])
@pytest.mark.parametrize("seed", range(3))
def test_analytic_is_the_same_in_any_batching_with_classes_recurring(make_graph, seed, statistics):
    stream = TaskStream(make_graph(60, 6), Protocol())
    nodes = torch.cat(train_parts(stream))
    shuffled = nodes[torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))]
    settings = ARRIVED | {"teleport": 0.5, "statistics": statistics, "buffer_size": 12}
    whole = in_batches(stream, [nodes], **settings)
    parts = in_batches(stream, list(torch.split(shuffled, 3)), **settings)
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-6)


def test_analytic_never_chooses_a_class_without_rows(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    nodes = torch.cat(train_parts(stream))
    known = nodes[stream.labels[nodes] != 3]
    logits = in_batches(stream, [known], **FIXED)
    assert logits.shape == (60, 6)
    assert not (logits.argmax(dim=1) == 3).any()


def test_analytic_refresh_with_all_nodes_kept_follows_the_class_means(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    moved, _ = learn(stream, **ARRIVED | {"statistics": "refresh", "buffer_size": 60})
    stayed, _ = learn(stream, **ARRIVED)
    rows = smoothed(stream, 2, 2)
    for label in range(4):  # those of tasks before the last
        nodes = stream.tasks[label // 2].train_nodes
        mean = rows[nodes[stream.labels[nodes] == label]].mean(dim=0)
        torch.testing.assert_close(moved.moments.means[label], mean, rtol=0, atol=1e-5)
        assert (stayed.moments.means[label] - mean).abs().max() > 1e-3


def test_analytic_counts_what_it_keeps(make_graph):
    stream = TaskStream(make_graph(60, 6, num_features=5), Protocol())
    method, _ = learn(stream, **FIXED, statistics="arrival")
    assert method.buffer is None
    # A mean, a count and a label for each of six classes, a scatter of five columns; then one
    # strength's error and the number of nodes seen.
    assert method.memory_bytes() == 6 * (8 * 5 + 16) + 8 * 25 + 16
    following, _ = learn(stream, **FIXED)
    assert following.memory_bytes() == method.memory_bytes() + 8 * 5  # their mean row
    choosing, _ = learn(stream, **FIXED | {"teleport": "auto"})
    assert choosing.memory_bytes() == following.memory_bytes() + 8 * len(TELEPORTS)
    inferring, _ = learn(stream, **FIXED | {"mean_field": "auto"})
    # Two losses, and those at temperatures, of scores and of the unary term.
    assert inferring.memory_bytes() == following.memory_bytes() + 8 * (2 + 2 * len(TEMPERATURES))
    weighing, _ = learn(stream, **FIXED | {"class_weight": "auto"})
    # The strength's error with the other two weights, and what is wrong with each.
    assert weighing.memory_bytes() == following.memory_bytes() + 8 * 5
    single, _ = learn(stream, **FIXED | {"precision": "single"})
    assert single.memory_bytes() == 6 * (4 * 5 + 16) + 4 * 25 + 16 + 4 * 5
    refreshed, _ = learn(stream, statistics="refresh", buffer_size=12, **FIXED)
    kept = len(refreshed.buffer)
    assert 0 < kept <= 12
    assert refreshed.memory_bytes() == method.memory_bytes() + kept * (16 + 5 * 8)


@pytest.mark.parametrize("sparse", [False, True])
def test_analytic_keeps_within_its_memory(make_graph, sparse):
    stream = TaskStream(make_graph(200, 4, num_features=40, sparse=sparse), Protocol())
    free, _ = learn(stream, memory=None, combine="sum")
    assert free.selection.basis is None
    assert free.moments.scatter.shape == (40, 40)
    method, logits = learn(stream, memory=3000, combine="sum")
    columns = method.moments.width
    assert method.selection.report()["columns"] == columns < 40
    # What the budget is for: a scatter of so many columns and their directions; one more would
    # be too much.
    kept = [4 * c * c + 4 * 40 * c for c in (columns, columns + 1)]
    assert kept[0] <= 3000 < kept[1]
    assert method.memory_bytes() < 3000 + 4 * columns * 5 + 2000  # means, losses
    right = (logits.argmax(dim=1) == stream.labels).double().mean()
    assert right > 0.8
    other = make_method("analytic", {"memory": 3000, "combine": "sum"})
    other.load_state_dict(method.state_dict())
    assert torch.equal(other.selection.basis, method.selection.basis)


def test_analytic_puts_hops_side_by_side_where_neighbours_are_of_other_classes(monkeypatch):
    """Two classes that only join each other: added up, a node and its neighbours cancel."""
    monkeypatch.setattr(analytic_config, "SIDE_BY_SIDE", 6)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 2
    x = torch.randn(400, 8, generator=generator)
    x[:, 0] += 2.0 * labels - 1
    ends = torch.randint(200, (2, 1200), generator=generator) * 2 + torch.tensor([[0], [1]])
    stream = TaskStream(Graph.build("two sides", x, ends, labels), Protocol())
    method, _ = learn(stream, hops="0+1", mean_field=False)
    assert method.selection.report()["hops"] == "0|1"
    assert method.selection.basis.shape == (8, 3)
    assert method.moments.width == 6
    whole, _ = learn(stream, hops="0+1", combine="concatenate", mean_field=False)
    assert whole.moments.width == 16  # what is asked for is not cut


@pytest.mark.parametrize("memory", [1, "64MB", "1.5 kB", "2GB"])
def test_analytic_takes_bytes_as_numbers_or_words(memory):
    assert make_method("analytic", {"memory": memory}).config.memory == memory


def test_analytic_chooses_class_weights_for_the_metric():
    """A large class and a small one that say little: who is to be right decides."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.cat([torch.zeros(540), torch.ones(60)]).long()
    x = torch.randn(600, 4, generator=generator)
    x[:, 0] += 1.2 * labels
    x[:, 3] = 5  # stands for a constant
    graph = Graph.build("large and small", x, torch.zeros(2, 0).long(), labels)
    found = {}
    for metric in ("accuracy", "balanced_accuracy"):
        method, _ = learn(TaskStream(graph, Protocol()), metric=metric, hops="0", scaling="none")
        found[metric] = method.selection.report()["class_weight"]
    assert found == {"accuracy": "natural", "balanced_accuracy": "balanced"}


def test_analytic_keeps_the_hops_of_the_first_task(make_graph):
    stream = TaskStream(make_graph(60, 6, num_features=5), Protocol())
    learner = Learner(make_method("analytic", {"strength": 0.01, "combine": "sum"}))
    reports = []
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            reports.append(learner.method.selection.report())
    hops = {"0", "0+1", "0+1+2", "0+1+2+3", "2+3"}
    assert reports[0]["hops"] in hops
    assert set(reports[0]["hop_losses"]) == hops
    for later in reports[1:]:
        assert later["hops"] == reports[0]["hops"]
        assert later["hop_losses"] == reports[0]["hop_losses"]
    fixed, expected = learn(stream, hops=reports[0]["hops"], strength=0.01, combine="sum")
    assert torch.equal(learner.method.predict_logits(learner.context), expected)
    # The loss of every choice and which one won.
    assert learner.method.memory_bytes() == fixed.memory_bytes() + 8 * (5 + 1)


@pytest.mark.parametrize(
    ("homophily", "signal", "chosen"), [(0.95, 1, {"2+3"}), (0.2, 4, {"0", "0+1"})]
)
def test_analytic_takes_the_hops_that_suit_the_graph(homophily, signal, chosen):
    options = {"nodes": 600, "classes": 4, "homophily": homophily, "feature_signal": signal}
    stream = TaskStream(load_graph("synthetic", options=options), Protocol())
    method, logits = learn(stream, combine="sum")
    assert method.selection.kind.hops in chosen
    _, expected = learn(stream, combine="sum", hops=method.selection.kind.hops)
    assert torch.equal(logits, expected)


def test_analytic_in_single_precision_is_close(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    _, double = learn(stream, hops="2", strength=0.1, precision="double")
    _, single = learn(stream, hops="2", strength=0.1, precision="single")
    assert not torch.equal(double, single)
    torch.testing.assert_close(double, single, rtol=0, atol=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 2},
        {"projection": 6},
        {"memory": 300},
        {"class_weight": "balanced", "combine": "concatenate"},
        {"projection": 20, "activation": "cos", "hops": "0+2"},
        {"projection": 20, "activation": "relu", "rank": 3, "precision": "single"},
        {"statistics": "refresh", "buffer_size": 12},
        {"statistics": "refresh", "buffer_size": 12, "selector": "im"},
        {"rows": "encoder"},
        {"rows": "encoder", "statistics": "refresh", "buffer_size": 12},
        {"normalisation": "mean", "self_loops": False},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_analytic_variants_learn_without_leaks(make_graph, settings, sparse):
    graph = make_graph(60, 6, sparse=sparse)
    method, logits = learn(TaskStream(graph, Protocol()), **settings)
    assert logits.isfinite().all()
    assert method.selection.strength in STRENGTHS
    found = find_leaks(
        lambda: make_method("analytic", settings), lambda: TaskStream(graph, Protocol())
    )
    assert found == []


def test_analytic_predicts_from_its_state_alone(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    learner = Learner(make_method("analytic"))
    list(train(learner, stream, MODEL, TRAINING, seed=0))
    other = make_method("analytic")
    other.load_state_dict(learner.method.state_dict())
    assert other.selection.report() == learner.method.selection.report()
    expected = learner.method.predict_logits(learner.context)
    assert torch.equal(other.predict_logits(learner.context), expected)


def test_analytic_freezes_the_encoder_of_the_first_task(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    learner = Learner(make_method("analytic", {"rows": "encoder"}))
    weights = []
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            weights.append(copy.deepcopy(learner.model.state_dict()))
    assert all(torch.equal(weights[0][key], weights[2][key]) for key in weights[0])
    h = learner.context.embed().relu()
    unit = h / h.norm(dim=1, keepdim=True).clamp(min=1e-12)
    torch.testing.assert_close(learner.method.rows(learner.context).rows(torch.arange(60)), unit)


def test_analytic_learns_on_features_that_say_the_class(make_graph):
    stream = TaskStream(make_graph(120, 6, homophily=0.9), Protocol())
    _, logits = learn(stream)
    test = torch.cat([task.test_nodes for task in stream.tasks])
    right = logits[test].argmax(dim=1) == stream.labels[test]
    assert right.double().mean() > 0.9


def test_analytic_reports_its_choice_of_strength(make_graph):
    method, _ = learn(TaskStream(make_graph(60, 6), Protocol()))
    report = method.selection.report()
    errors = report["strength_losses"]
    assert errors[str(report["strength"])] == min(errors.values())


def test_analytic_adds_up_the_errors_of_strengths(make_graph):
    stream = TaskStream(make_graph(60, 6), Protocol())
    learner, costs = choices(stream, lambda m: dict(m.selection.losses["strength"]))
    assert all(set(cost) == set(STRENGTHS) for cost in costs)
    assert all(before[s] < after[s] for before, after in pairwise(costs) for s in STRENGTHS)
    assert learner.method.selection.strength == min(STRENGTHS, key=lambda s: costs[-1][s])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strength": 0}, "Expected 'strength' above 0"),
        ({"rank": 0}, "Expected 'rank' as an integer of at least 1"),
        ({"statistics": "later"}, "Expected 'statistics' to be 'follow', "),
        ({"teleport": 0}, r"Expected 'teleport' in \(0, 1\]"),
        ({"mean_field": "maybe"}, "Expected 'mean_field' to be 'auto', True or False"),
        ({"teleport": 0.5, "share": 0.5}, "Expected 'teleport' alone"),
        ({"hops": "1+x"}, "Expected 'hops' as distinct numbers"),
        ({"activation": "cos"}, "Expected 'projection' beside"),
        ({"memory": "much"}, "Expected 'memory' as a number of bytes .* write for example 64MB"),
        ({"memory": 0}, "Expected 'memory' as a number of bytes"),
        ({"class_weight": "even"}, "Expected 'class_weight' to be 'natural', "),
    ],
    ids=str,
)
def test_analytic_refuses_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        make_method("analytic", settings)


@pytest.mark.parametrize(
    ("words", "value"), [("on", True), ("off", False), (True, True), (False, False)]
)
def test_analytic_takes_words_and_booleans_for_mean_field(words, value):
    assert make_method("analytic", {"mean_field": words}).config.mean_field is value


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("share=0.7", "teleport=0.3"),
        ("share=0", "teleport=1"),
        ("share=auto,beliefs='off'", "mean_field=off"),
        ("beliefs=off", "mean_field=false"),
        ("beliefs='on'", "mean_field=true"),
    ],
)
def test_analytic_takes_the_names_of_0_1_0_for_one_more_release(old, new):
    graph = Variant.parse_dataset("cora")
    with pytest.warns(DeprecationWarning, match=r"deprecated; set '(teleport|mean_field)' instead"):
        before = resolve(graph, Variant.parse(f"analytic:{old}"), 0)
    after = resolve(graph, Variant.parse(f"analytic:{new}"), 0)
    assert before.settings == after.settings
    assert not {"share", "beliefs"} & after.settings.keys()
    assert before.hash == after.hash


def test_analytic_settings_of_0_1_0_are_read_under_new_names_with_the_same_hash():
    graph = Variant.parse_dataset("cora")
    config = resolve(graph, Variant.parse("analytic:teleport=0.3,mean_field=off"), 0)
    assert config.settings["mean_field"] is False
    new, old = "teleport: 0.3\n  mean_field: false", "share: 0.7\n  beliefs: 'off'"
    text = config.to_yaml().replace(new, old)
    assert text != config.to_yaml()
    with pytest.warns(DeprecationWarning, match="'share'"):
        read = RunConfig.from_values(yaml.safe_load(text))
    assert read.settings == config.settings
    assert (read.hash, read.variant_hash) == (config.hash, config.variant_hash)
    assert RunConfig.from_values(yaml.safe_load(config.to_yaml())) == config


STATE = Path(__file__).parents[1] / "data/v0.1.0/states/analytic/generations/00000001"


def recorded_state() -> dict[str, Any]:
    return unpack((STATE / "learner.safetensors").read_bytes())["method"]


def test_analytic_restores_what_0_1_0_wrote():
    config = read_config(json.loads((STATE / "config.json").read_text()))
    method, state = make_method("analytic", config.settings), recorded_state()
    method.load_state_dict(state)
    old, new = state["reader"], method.state_dict()
    assert list(new["losses"]["teleport"].values()) == list(old["shares"].values())
    assert [round(1 - float(share), 12) for share in old["shares"]] == list(TELEPORTS)
    assert [float(value) for value in new["losses"]["teleport"]] == list(TELEPORTS)
    assert new["losses"]["strength"] == state["strengths"]
    assert new["losses"]["unary_temperature"] == old["features_at"]
    assert (method.selection.teleport, method.selection.mean_field) == (0.8, True)
    rows = method.moments.memory_bytes() + 8 * 6
    assert method.memory_bytes() == rows + 8 * (8 + 8 + 2 + 2 * 30 + 5 + 1 + 1)
    assert (config.settings["class_weight"], config.settings["memory"]) == ("balanced", None)
    again = make_method("analytic", config.settings)
    assert not {"share", "beliefs"} & config.settings.keys()
    again.load_state_dict(new)
    assert again.selection.report() == method.selection.report()


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"projection": 10**8}, {}),
        ({"projection": 7}, {}),
        ({"combine": "concatenate"}, {"hops": "0+1+2+3"}),  # six columns are not four blocks
        ({}, {"hops": None}),
        ({"hops": "0+1"}, {}),
        ({}, {"mean_row": torch.zeros(7, dtype=torch.float64)}),
        ({"precision": "single"}, {}),
        ({}, {"num_seen": -1}),
    ],
    ids=str,
)
def test_analytic_refuses_a_state_of_other_settings(settings, changed):
    method = make_method("analytic", {"precision": "double", **settings})
    with pytest.raises(ValueError, match=r"other|different|negative"):
        method.load_state_dict({**recorded_state(), **changed})


def test_analytic_refuses_a_projection_that_cannot_fit(make_graph):
    with pytest.raises(InputError, match=r"Expected 'projection' to fit into .* GB of memory"):
        learn(TaskStream(make_graph(60, 6), Protocol()), projection=10**12)


def test_analytic_names_the_settings_that_have_no_effect():
    assert {"epochs", "dropout", "buffer_size"} <= AnalyticConfig().unused()
    encoded = AnalyticConfig(rows="encoder", statistics="refresh")
    assert encoded.unused() == frozenset()
    assert AnalyticConfig(rows="encoder").unused() == {"buffer_size", "selector", "r"}
    assert encoded.model_copy(update={"selector": "mf"}).unused() == {"r"}
