"""Large graphs: predicted and learned from what is around the nodes, to the same answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from batches import batches, quick, stored
from evergraph.closed_form.features import FeatureConfig, PropagatedFeatures
from evergraph.estimator import ContinualNodeClassifier, graph, near, state, step
from evergraph.methods import METHODS, analytic, dslr
from evergraph.methods.base import nested_sample
from evergraph.nn.receptive_field import ReceptiveField as Field
from evergraph.stream import Graph, Protocol, TaskStream

ROW = torch.tensor([7])
LOCAL = [name for name, method in METHODS.items() if method.local]


@pytest.fixture
def stream(make_graph: Callable[..., Graph]) -> TaskStream:
    return TaskStream(make_graph(90, 6), Protocol(), seed=0)


def learned(stream: TaskStream, method: str = "replay", **named: Any) -> ContinualNodeClassifier:
    clf = quick(method, **named)
    for batch in batches(stream):
        clf.learn(**batch)
    return clf


@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_some_nodes_of_a_large_graph_are_predicted_as_on_the_whole(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch, backbone: str, layers: int
):
    settings = {"backbone": backbone, "num_layers": layers}
    clf = learned(stream, settings=settings, validation_fraction=0)
    whole = clf.predict_proba()
    monkeypatch.setattr(state, "SMALL", 5)
    clf.learn([], edges=[(0, 5)]).remove(edges=[(0, 5)])  # nothing is known any more
    for ids in ([3], [7, 0, 7, 89], [*range(40, 48)]):
        assert np.allclose(clf.predict_proba(ids), whole[ids], atol=1e-6)
    assert clf._now().known_logits is None
    assert np.allclose(clf.predict_proba(list(range(90))), whole, atol=1e-6)  # so many: all
    assert clf._now().known_logits is not None


@pytest.mark.parametrize("backbone", ["gat", "gcn"])
def test_edges_that_a_method_edited_are_part_of_a_neighbourhood(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch, backbone: str
):
    settings = {"backbone": backbone, "tau": 0.5, "num_neighbors": 3}
    clf = learned(stream, "dslr", settings=settings, validation_fraction=0)
    edits, whole = clf._now().edits, clf.predict_proba()
    assert edits.added.numel()
    monkeypatch.setattr(state, "SMALL", 5)
    clf.learn([], edges=[(0, 5)]).remove(edges=[(0, 5)])
    for ids in ([3], edits.added[:, 0].tolist(), [*range(40, 48)]):
        assert np.allclose(clf.predict_proba(ids), whole[ids], atol=1e-6)
    assert clf._now().known_logits is None


@pytest.mark.parametrize("path", ["auto", "plain"])
@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_all_nodes_of_a_large_graph_are_predicted_in_blocks_as_on_the_whole(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch, backbone: str, layers: int, path: str
):
    settings = {"backbone": backbone, "num_layers": layers, "attention": path}
    settings |= {"tau": 0.5, "num_neighbors": 3}
    clf = learned(stream, "dslr", settings=settings, validation_fraction=0)
    assert clf._now().edits
    whole, cpu = clf._now()._predict(torch.device("cpu")), torch.device("cpu")
    monkeypatch.setattr(state, "MANY", 5)
    monkeypatch.setattr(near, "BLOCK", 7)
    del clf._now().graph.__dict__["adjacency"]
    monkeypatch.setattr("evergraph.estimator.graph.GrowingGraph.adjacency", None)  # nobody needs it
    torch.testing.assert_close(clf._now()._predict(cpu), whole, rtol=0, atol=1e-5)


def test_dslr_learns_from_what_is_around_and_a_sample(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(step, "LARGE", 5)
    monkeypatch.setattr(dslr, "SAMPLED", 8)
    shown: list[int] = []
    monkeypatch.setattr(step, "started", lambda view, *_: shown.append(view.num_nodes))
    settings = {"deletion": "lowest", "num_neighbors": 3, "num_candidates": 6, "num_layers": 1}
    clf = quick("dslr", validation_fraction=0, settings=settings | {"buffer_size": 6})
    for batch in batches(stream):
        few = dict(list(batch["labels"].items())[:4])
        clf.learn(**{**batch, "labels": few}, on_event=lambda event: None)
    present = clf._now()
    assert shown[-1] < 90
    report = clf.history_[-1]["report"]["structure"]
    assert report["added_edges"] == present.edits.added.shape[1] > 0
    assert report["deleted_edges"] == present.edits.deleted.shape[1] > 0
    known = present.graph.adjacency
    assert known.has_edges(*present.edits.deleted).all()
    assert not known.has_edges(*present.edits.added).any()
    method = present.learner.method
    assert method.candidates.shape == (len(method.buffer), 6)
    assert int(method.candidates.max()) < 90
    assert torch.isin(present.edits.added, method.buffer.nodes).any()


@pytest.mark.parametrize("hops", ["0", "0+1+2"])
@pytest.mark.parametrize("combine", ["sum", "concatenate"])
def test_closed_form_predicts_from_its_hops_unless_scores_are_propagated(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch, hops: str, combine: str
):
    settings = {"hops": hops, "combine": combine, "teleport": 1, "mean_field": False}
    clf = learned(stream, "analytic", settings=settings, validation_fraction=0)
    whole = clf.predict_proba()
    monkeypatch.setattr(state, "SMALL", 5)
    clf.learn([], edges=[(0, 5)]).remove(edges=[(0, 5)])
    for ids in ([3], [7, 0, 7, 89], [*range(40, 48)]):
        assert np.allclose(clf.predict_proba(ids), whole[ids], atol=1e-6)
    assert clf._now().known_logits is None


def test_a_method_of_another_reach_is_predicted_as_a_whole(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(state, "SMALL", 5)
    clf = learned(stream, "analytic", settings={"teleport": 0.5})
    assert np.array_equal(clf.predict_proba([4, 2]), clf.predict_proba()[[4, 2]])


def test_closed_form_of_a_large_graph_reads_what_is_around(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(step, "LARGE", 5)
    monkeypatch.setattr(analytic, "WHOLE", 40)  # from the second of three batches on
    monkeypatch.setattr(analytic, "SAMPLED", 8)
    seen: list[int] = []
    monkeypatch.setattr(step, "started", lambda view, *_: seen.append(view.num_nodes))
    clf = quick("analytic", validation_fraction=0)
    for batch in batches(stream):
        clf.learn(**batch, on_event=lambda event: None)
    told = [entry["report"] for entry in clf.history_]
    assert seen[:2] == [30, 60]
    assert seen[2] < 90
    assert [report.get("local") for report in told] == [None, True, True]
    assert "teleport_losses" in told[0]
    assert [report["teleport"] for report in told[1:]] == [1, 1]
    assert max(map(int, told[0]["hops"].replace("|", "+").split("+"))) <= analytic.NEAR
    again = ContinualNodeClassifier.load(clf.save(tmp_path / "state") and tmp_path / "state")
    for one in (clf, again):  # few nodes again: the whole graph is read
        one.remove(list(range(20, 90))).learn([90], stream.features[:1], [(90, 0)], {90: 0})
        assert "local" not in one.history_[-1]["report"]
    assert np.array_equal(clf.predict_proba(), again.predict_proba())


@pytest.mark.parametrize(
    "given", [{"teleport": 0.5}, {"mean_field": True}, {"rows": "encoder", "statistics": "arrival"}]
)
def test_closed_form_does_what_is_given_whatever_the_size(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
):
    whole = learned(stream, "analytic", settings=given)
    for module, name in ((step, "LARGE"), (analytic, "WHOLE")):
        monkeypatch.setattr(module, name, 5)
    near = learned(stream, "analytic", settings=given)
    assert near.history_ == whole.history_
    assert np.array_equal(near.predict_proba(), whole.predict_proba())


def test_closed_form_follows_an_even_sample_of_a_large_graph(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch
):
    settings = {"hops": "0+1+2", "teleport": 1, "mean_field": False}
    whole = learned(stream, "analytic", settings=settings)._now().learner.method
    for module, name in ((step, "LARGE"), (analytic, "WHOLE")):
        monkeypatch.setattr(module, name, 5)
    monkeypatch.setattr(analytic, "SAMPLED", 25)
    part = learned(stream, "analytic", settings=settings)._now()
    rows = PropagatedFeatures(part.graph.features, part.graph.adjacency, FeatureConfig(), 0)
    expected = rows.rows(torch.arange(0, 90, 4)).mean(dim=0)
    method = part.learner.method
    torch.testing.assert_close(method.mean_row, expected, rtol=0, atol=1e-6)
    assert not torch.allclose(method.mean_row, whole.mean_row, atol=1e-3)
    torch.testing.assert_close(method.moments.means, whole.moments.means, rtol=0, atol=0.05)


@pytest.mark.parametrize("method", LOCAL)
def test_what_is_around_the_nodes_is_enough_to_learn(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch, method: str
):
    settings = {"dropout": 0.0, "attention": "plain"}  # dropout draws by rows
    whole = learned(stream, method, settings=settings)
    monkeypatch.setattr(step, "LARGE", 5)
    for module in (dslr, graph):  # with all neighbours, and all edges for the link predictor
        monkeypatch.setattr(module, "FEW", 90)
    monkeypatch.setattr(dslr, "surroundings", lambda x, part, nodes, _: Field(x, part, nodes))
    seen = []
    monkeypatch.setattr(step, "started", lambda view, *_: seen.append(view.num_nodes))
    near = quick(method, settings=settings)
    for batch in batches(stream):
        near.learn(**batch, on_event=lambda event: None)
    assert len(seen) == 3
    assert seen[-1] <= 90
    assert np.allclose(near.predict_proba(), whole.predict_proba(), atol=1e-4)
    first, second = (clf._now().learner for clf in (near, whole))
    assert (first.num_seen, first.next_task) == (second.num_seen, second.next_task) == (90, 3)
    if first.method.buffer is not None:
        assert first.method.buffer.nodes.tolist() == second.method.buffer.nodes.tolist()


def test_a_nested_sample_is_even_and_grows_at_its_end():
    assert nested_sample(4, 4).tolist() == [0, 1, 2, 3]
    assert nested_sample(5, 4).tolist() == [0, 2, 4]
    assert nested_sample(8, 4).tolist() == [0, 2, 4, 6]
    assert nested_sample(9, 4).tolist() == [0, 4, 8]
    assert nested_sample(0, 4).tolist() == []


def test_few_of_many_held_out_nodes_judge_and_classes_weigh_what_they_have(
    stream: TaskStream, monkeypatch: pytest.MonkeyPatch
):
    clf = learned(stream, validation_fraction=0.5)
    present, cpu = clf._now(), torch.device("cpu")
    everyone = present.judge(cpu)
    held = present.held_out
    assert held.pairs.length > 12
    monkeypatch.setattr(state, "MOST_JUDGED", 12)
    assert present.judges()[0].nodes.numel() == held.pairs.length  # all nodes are predicted anyway
    monkeypatch.setattr(state, "SMALL", 0)
    present.computed.pop("logits")
    judges, _ = present.judges()
    assert torch.bincount(judges.labels).tolist() == [2] * 6
    assert torch.isin(judges.nodes, held.nodes).all()
    accuracy, few = (present.judge(cpu)[key] for key in ("accuracy", "class_accuracy"))
    counts = torch.bincount(held.labels).tolist()
    assert accuracy == pytest.approx(np.average(few, weights=counts))
    monkeypatch.setattr(state, "MOST_JUDGED", 10**6)
    assert present.judge(cpu) == everyone


def test_large_classes_have_more_judges(monkeypatch: pytest.MonkeyPatch):
    labels = ["large"] * 180 + ["small"] * 20
    clf = quick("finetune", validation_fraction=0.5, settings={"epochs": 1})
    clf.learn([*range(200)], torch.rand(200, 3, generator=torch.Generator()), labels=labels)
    monkeypatch.setattr(state, "MOST_JUDGED", 12)
    monkeypatch.setattr(state, "SMALL", 0)
    clf._now().computed.pop("logits")
    assert torch.bincount(clf._now().judges()[0].labels).tolist() == [9, 3]


def test_a_learner_is_copied_only_to_learn():
    clf = quick(validation_fraction=0).learn(["a", "b"], torch.eye(2), labels=["u", "v"])
    before = clf._now().learner
    assert clf.learn(["c"], torch.ones(1, 2), [("a", "c")])._now().learner is before
    kept = stored(clf)
    assert clf.update(["c"], labels=["u"])._now().learner is not before
    assert stored(clf) != kept


def test_predictions_go_on_while_another_thread_learns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "SMALL", 5)
    monkeypatch.setattr("evergraph.estimator.graph.FEW_EDGES", 0)
    clf = quick("finetune", validation_fraction=0, settings={"epochs": 1})
    ids = list(range(40))
    clf.learn(ids, torch.rand(40, 3), [(at, at - 1) for at in ids[1:]], {0: "u", 1: "v"})
    before, present = clf.predict_proba([7]), clf._now()
    with ThreadPoolExecutor() as pool:
        found = pool.submit(lambda: [present.logits(torch.device("cpu"), ROW) for _ in range(50)])
        for at in range(40, 90):
            clf.learn([at], torch.rand(1, 3), [(at, at - 1), (at, 7)])
        for logits in found.result(timeout=60):
            assert np.allclose(torch.softmax(logits.double(), 1).numpy(), before, atol=1e-6)
    assert not np.allclose(clf.predict_proba([7]), before, atol=1e-6)
