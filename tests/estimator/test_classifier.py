"""The estimator: the same bits as a run, whatever way they come, and nothing half-done."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from batches import SMALL, batches, quick, settings_of, stored
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.events import TaskDone, TaskStarted
from evergraph.methods import METHODS, TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.train import Learner, train

CPU = torch.device("cpu")
# Of rclg a run and an estimator hold out other validation nodes.
COMPARED = [name for name in METHODS if "validation" not in METHODS[name].needs]


def run_logits(stream: TaskStream, method: str, seed: int) -> list[torch.Tensor]:
    """Learns the stream as ``evergraph run`` does; returns the logits after every task."""
    own = settings_of(method)
    settings = {key: value for key, value in own.items() if key not in SMALL}
    learner, found = Learner(make_method(method, settings)), []
    model, training = ModelConfig(channels=4, heads=2), TrainConfig(epochs=3)
    for event in train(learner, stream, model, training, seed=seed):
        if isinstance(event, TaskDone):
            assert learner.context is not None
            found.append(learner.method.predict_logits(learner.context))
    return found


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", COMPARED)
def test_batches_give_the_bits_of_a_run_saved_and_loaded_between(
    method: str, sparse: bool, tmp_path: Path, make_graph: Callable[..., Graph]
):
    graph = make_graph(60, 6, sparse=sparse, num_features=20)
    stream = TaskStream(graph, Protocol(), seed=3)
    expected = run_logits(stream, method, seed=3)
    given = {"seed": 3, "validation_fraction": 0, "feature_scaling": "none"}
    kept, reloaded = quick(method, **given), quick(method, **given)
    for batch, logits in zip(batches(stream), expected, strict=True):
        kept.learn(**batch)
        reloaded.learn(**batch).save(tmp_path / "state")
        reloaded = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
        assert torch.equal(kept._now().logits(CPU), logits)
        assert torch.equal(reloaded._now().logits(CPU), logits)
    assert kept.history_ == reloaded.history_
    assert stored(reloaded) == stored(kept)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_lives_through_every_kind_of_change(
    method: str, tmp_path: Path, make_graph: Callable[..., Graph]
):
    stream = TaskStream(make_graph(60, 6), Protocol(), seed=0)
    first, second, third = batches(stream)
    clf = quick(method)
    clf.learn(**first)
    clf.learn(third["ids"], third["x"])  # unlabelled: the graph alone grows
    seen = clf._now().learner.next_task
    clf.learn([], edges=[(0, third["ids"][0])])
    clf.update([1, 2], x=first["x"][[2, 1]])
    assert clf._now().learner.next_task == seen
    clf.learn(**second)
    buffer = clf._now().learner.method.buffer
    gone = buffer.nodes[:2].tolist() if buffer is not None else [3, 4]
    names = [clf.ids_[row] for row in gone]
    clf.remove(ids=[*names, second["ids"][0]])
    late = {node: label for node, label in third["labels"].items() if node not in names}
    clf.update(list(late), labels=list(late.values()))  # labels that come late
    clf.save(tmp_path / "state")
    clf = ContinualNodeClassifier.load(tmp_path / "state")
    left = 60 - len(set(names) | {second["ids"][0]})
    assert clf.predict_proba().shape == (left, 6)
    assert np.allclose(clf.predict_proba().sum(axis=1), 1)
    assert set(clf.predict()) <= set(range(6))
    buffer = clf._now().learner.method.buffer
    if buffer is not None:
        assert 0 <= int(buffer.nodes.min()) <= int(buffer.nodes.max()) < left
        assert len(buffer) <= 12
        held_out = clf._now().held_out.nodes
        assert not torch.isin(buffer.nodes, held_out).any()


def test_analytic_refreshes_from_what_is_left_of_its_buffer(make_graph: Callable[..., Graph]):
    stream = TaskStream(make_graph(60, 6), Protocol(), seed=0)
    first, second, third = batches(stream)
    settings = {"statistics": "refresh", "buffer_size": 12}
    clf = ContinualNodeClassifier("analytic", settings=settings, device="cpu")
    clf.learn(**first).learn(**second)
    gone = clf._now().learner.method.buffer.picks[0].tolist()  # all that is kept of a class
    names = {clf.ids_[row] for row in gone}
    clf.remove(ids=list(names))
    third["edges"] = [pair for pair in third["edges"] if not names & set(pair)]
    clf.learn(**third)
    assert np.isfinite(clf.predict_proba()).all()


# --- what is kept where ---------------------------------------------------------------------


def line(count: int, start: int = 0) -> dict[str, Any]:
    """A path of nodes of two alternating classes, telling by their features."""
    names = [f"n{at}" for at in range(start, start + count)]
    x = [[float(at % 2), 1.0 - at % 2, 1.0] for at in range(count)]
    edges = [(names[at], names[at + 1]) for at in range(count - 1)]
    return {"ids": names, "x": x, "edges": edges}


def named(batch: dict[str, Any], names: tuple[str, str] = ("even", "odd")) -> dict[str, Any]:
    labels = [names[at % 2] for at in range(len(batch["ids"]))]
    return {**batch, "labels": labels}


def test_classes_come_in_order_of_arrival_sorted_within_a_batch():
    clf = quick().learn(**named(line(8), ("q", "b")))
    assert clf.classes_.tolist() == ["b", "q"]
    clf.learn(**named(line(8, 8), ("a", "q")))
    assert clf.classes_.tolist() == ["b", "q", "a"]
    assert clf.history_[1]["new_classes"] == ["a"]


def test_held_out_nodes_are_a_share_of_every_class_and_never_trained_on():
    clf = quick(validation_fraction=0.25).learn(**named(line(16)))
    state = clf._now()
    held = state.held_out
    assert torch.bincount(held.labels).tolist() == [2, 2]  # a quarter of eight each
    assert state.shown.length == 12
    assert not np.isin(state.shown.array, held.nodes).any()
    assert clf.history_[0]["trained_on"] == 12
    row = int(state.shown.array[0])
    clf.update([f"n{row}"], labels=["odd"])  # a label that was shown cannot judge any more
    assert clf._now().held_out.nodes.tolist() == held.nodes.tolist()


def test_held_out_node_of_a_corrected_label_judges_on_unless_its_class_is_new():
    clf = quick(validation_fraction=0.25).learn(**named(line(16)))
    first, second = clf._now().held_out.nodes[:2].tolist()
    names = clf.ids_
    clf.update([names[first]], labels=["odd"])
    held = clf._now().held_out
    assert held.labels[held.nodes == first].tolist() == [1]
    assert clf.history_[-1]["trained_on"] == 0
    clf.update([names[second]], labels=["third"])
    assert second not in clf._now().held_out.nodes.tolist()
    assert clf.history_[-1]["trained_on"] == 1
    assert clf.predict_proba().shape == (16, 3)


def test_the_only_label_of_a_class_is_learned_not_held_out():
    clf = ContinualNodeClassifier("analytic", device="cpu")  # a tenth would be held out
    clf.learn(["a", "b", "c"], np.eye(3), [("a", "b"), ("b", "c"), ("c", "a")], ["u", "v", "w"])
    assert clf.history_[0]["trained_on"] == 3
    assert clf.predict().tolist() == ["u", "v", "w"]


def test_no_fraction_holds_nothing_out():
    clf = quick(validation_fraction=0).learn(**named(line(8)))
    assert not clf._now().held_out.nodes.numel()
    assert clf.history_[0]["accuracy"] is None


def test_old_labels_are_nowhere_in_the_state_beyond_the_buffer(
    tmp_path: Path, make_graph: Callable[..., Graph]
):
    stream = TaskStream(make_graph(60, 6), Protocol(), seed=0)
    for method in ("replay", "dslr", "joint"):
        clf = quick(method, validation_fraction=0)
        for batch in batches(stream):
            clf.learn(**batch)
        state = clf._now()
        kept = 0 if state.learner.method.buffer is None else len(state.learner.method.buffer)
        # joint declares that it needs old labels, and only for it are they stored.
        assert state.granted.nodes.numel() == (42 if method == "joint" else 0)
        assert kept <= 12


def test_held_out_accuracy_is_that_of_the_predictions():
    batch = {**named(line(24)), "edges": None}  # features alone tell the classes apart
    settings = {"epochs": 100, "dropout": 0.0, "lr": 0.05}
    clf = quick("finetune", validation_fraction=0.25, settings=settings).learn(**batch)
    state = clf._now()
    held = state.held_out
    names = state.graph.names.take(held.nodes.numpy())
    truth = [state.classes[label] for label in held.labels.tolist()]
    assert clf.history_[-1]["accuracy"] == pytest.approx(100 * clf.score(names, truth))
    assert clf.score(names, truth) == 1.0


# --- kinds of change ------------------------------------------------------------------------


def test_known_classes_only_return_to_the_buffer():
    clf = quick(validation_fraction=0).learn(**named(line(8)))
    clf.learn(**named(line(8, 8)))
    assert clf.classes_.tolist() == ["even", "odd"]
    counts = clf._now().learner.method.buffer.train_counts
    assert counts == {0: 8, 1: 8}
    assert clf.history_[1]["new_classes"] == []


def test_edges_only_change_predictions_but_not_weights():
    clf = quick(validation_fraction=0).learn(**named(line(8)))
    before, weights = clf.predict_proba(), clf._now().learner.model.state_dict()
    clf.learn([], edges=[("n0", "n5"), ("n5", "n0"), ("n1", "n1")])
    assert clf.history_[-1]["num_edges"] == 8  # one new edge: loops and copies do not count
    assert not np.array_equal(before, clf.predict_proba())
    after = clf._now().learner.model.state_dict()
    assert all(torch.equal(weights[key], after[key]) for key in weights)
    clf.remove(edges=[("n5", "n0")])
    assert np.array_equal(before, clf.predict_proba())


def test_changed_features_change_predictions_of_a_node_alone():
    clf = quick(validation_fraction=0).learn(["a", "b", "c"], np.eye(3), labels=["u", "v", "u"])
    before = clf.predict_proba()
    clf.update(["b"], x=[[5.0, 5.0, 5.0]])
    after = clf.predict_proba()
    assert np.array_equal(before[[0, 2]], after[[0, 2]])
    assert not np.array_equal(before[1], after[1])


def test_removed_nodes_are_gone_and_the_rest_stays():
    clf = quick(validation_fraction=0).learn(**named(line(8)))
    clf.learn(["lone"], [[1.0, 1.0, 1.0]])
    before = clf.predict_proba(["n5", "n6", "n7"])
    clf.remove(ids=["n1", "lone"])
    assert "n1" not in clf.ids_
    assert clf.history_[-1]["num_edges"] == 5
    assert np.array_equal(before, clf.predict_proba(["n5", "n6", "n7"]))  # beyond two hops
    with pytest.raises(InputError, match="'n1'"):
        clf.predict(["n1"])
    clf.learn(["n1"], [[1.0, 0.0, 1.0]])  # a name may come back, as another node
    assert clf.ids_[-1] == "n1"


def test_everything_may_be_removed_and_come_again():
    clf = quick(settings={"epochs": 1})
    clf.learn(["a", "b"], np.eye(2)).remove(ids=["a"])  # before anything is learned
    clf.remove(ids=["b"])
    with pytest.raises(InputError, match="'labels' to name known nodes"):
        clf.learn([], labels={"a": "u"})
    clf.learn(["a", "b"], np.eye(2), labels=["u", "v"]).remove(ids=["a", "b"])
    assert clf.predict_proba().shape == (0, 2)
    with pytest.raises(InputError, match="2 columns"):
        clf.learn(["c"], np.ones((1, 3)))
    clf.learn(["c", "d"], np.eye(2), [("c", "d")], ["v", "w"])
    assert clf.predict_proba().shape == (2, 3)


def test_a_corrected_label_leaves_the_buffer():
    clf = quick(validation_fraction=0).learn(**named(line(8)))
    buffer = clf._now().learner.method.buffer
    row = int(buffer.picks[0][0])
    clf.update([f"n{row}"], labels=["odd"])
    buffer = clf._now().learner.method.buffer
    assert row not in buffer.picks[0].tolist()


def test_more_classes_than_the_buffer_holds_is_refused_before_anything_changes():
    clf = quick(buffer_size=2, settings={"buffer_size": 2}).learn(**named(line(8)))
    before = stored(clf)
    with pytest.raises(InputError, match=r"'buffer_size' of at least 4.*got 2"):
        clf.learn(**named(line(8, 8), ("c", "d")))
    assert stored(clf) == before
    assert "n8" not in clf.ids_


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "known id": ({"ids": ["n0"], "x": [[1, 1, 1]]}, "'n0' in row 1, which is known"),
    "id twice": ({"ids": ["a", "b", "a"], "x": np.ones((3, 3))}, "'a' again in row 3"),
    "no features": ({"ids": ["a"]}, "'x' with a row of features"),
    "other width": ({"ids": ["a"], "x": [[1.0]]}, "3 columns.*got 1"),
    "rows missing": ({"ids": ["a", "b"], "x": [[1, 1, 1]]}, r"\[2, d\]"),
    "ragged": ({"ids": ["a", "b"], "x": [[1, 1], [1]]}, "rows of real numbers"),
    "nan": ({"ids": ["a", "b"], "x": [[1, 1, 1], [1, np.nan, 1]]}, "infinity in row 2"),
    "unknown end": ({"ids": [], "edges": [("n0", "n1"), ("n0", "zz")]}, "'zz' in row 2"),
    "no pair": ({"ids": [], "edges": [("n0",)]}, "in row 1"),
    "number among names": ({"ids": ["a", 1], "x": np.ones((2, 3))}, "first change in row 2"),
    "number as name": ({"ids": [1], "x": np.ones((1, 3))}, "ids as text"),
    "float as name": ({"ids": [0.5], "x": np.ones((1, 3))}, "0.5 in row 1"),
    "empty name": ({"ids": [""], "x": np.ones((1, 3))}, "1 to 4096"),
    "surrogate": ({"ids": ["\ud800"], "x": np.ones((1, 3))}, "characters of text"),
    "labels missing": ({"ids": ["a"], "x": np.ones((1, 3)), "labels": []}, "one entry per id"),
    "label of another kind": (
        {"ids": ["a"], "x": np.ones((1, 3)), "labels": [7]},
        "kind of the known classes",
    ),
    "label of nobody": ({"ids": [], "labels": {"zz": "odd"}}, "'zz'"),
    "a word for ids": ({"ids": "n0"}, "a sequence"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_changes_nothing(case: str):
    clf = quick(validation_fraction=0, settings={"epochs": 1}).learn(**named(line(4)))
    before = stored(clf)
    batch, words = BAD[case]
    with pytest.raises(InputError, match=words) as caught:
        clf.learn(**batch)
    assert "\n" not in str(caught.value)
    assert stored(clf) == before


def test_removing_what_is_not_there_is_refused():
    clf = quick(settings={"epochs": 1}).learn(**named(line(4)))
    with pytest.raises(InputError, match="'n0' – 'n3' in row 1"):
        clf.remove(edges=[("n0", "n3")])
    with pytest.raises(InputError, match="'zz' in row 2"):
        clf.remove(ids=["n0", "zz"])
    assert len(clf.ids_) == 4


def test_an_interrupted_learn_leaves_the_estimator_as_it_was():
    clf = quick(validation_fraction=0).learn(**named(line(8)))
    before = stored(clf)

    def interrupt(event: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clf.learn(**named(line(8, 8), ("c", "d")), on_event=interrupt)
    assert stored(clf) == before


# --- scikit-learn's manners -----------------------------------------------------------------


def test_parameters_are_stored_untouched_and_cloned():
    settings = {"epochs": 2}
    clf = ContinualNodeClassifier("replay", buffer_size=5, seed=7, settings=settings)
    assert clf.get_params()["settings"] is settings
    assert clone(clf).get_params() == clf.get_params()
    clf.set_params(seed=8)
    assert clf.get_params()["seed"] == 8
    assert "buffer_size=5" in repr(clf)


def test_unfitted_estimator_says_so():
    clf = quick()
    with pytest.raises(NotFittedError):
        check_is_fitted(clf)
    with pytest.raises(InputError, match="call learn first"):
        clf.predict(["a"])
    check_is_fitted(clf.learn(**named(line(4))))


def test_partial_fit_learns_on_and_fit_begins_anew():
    clf = quick(settings={"epochs": 1})
    assert clf.partial_fit(**named(line(4)), classes=["even", "odd"]) is clf
    with pytest.raises(InputError, match="among 'classes'"):
        clf.partial_fit(**named(line(4, 4), ("odd", "new")), classes=["even", "odd"])
    clf.partial_fit(**named(line(4, 4)))
    assert len(clf.history_) == 2
    clf.fit(**named(line(4)))
    assert len(clf.history_) == 1
    assert clf.ids_ == ["n0", "n1", "n2", "n3"]


def test_score_is_accuracy_with_weights():
    clf = quick(settings={"epochs": 1}).learn(**named(line(4)))
    guesses = clf.predict(["n0", "n1"]).tolist()
    wrong = ["odd" if guesses[1] == "even" else "even"]
    assert clf.score(["n0", "n1"], [guesses[0], *wrong]) == 0.5
    assert clf.score(["n0", "n1"], [guesses[0], *wrong], sample_weight=[3, 1]) == 0.75


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "dlsr"}, "did you mean 'dslr'"),
    "setting": ({"settings": {"epoch": 1}}, "'epoch': did you mean 'epochs'"),
    "protocol": ({"settings": {"classes_per_task": 1}}, "'classes_per_task'"),
    "fraction": ({"validation_fraction": 0.9}, "'validation_fraction'"),
    "no buffer": ({"method": "finetune", "buffer_size": 3}, "keeps no nodes"),
    "preset": ({"preset": "coral"}, "did you mean 'cora'"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_wrong_parameters_are_refused(case: str):
    parameters, words = UNKNOWN[case]
    with pytest.raises(InputError, match=words):
        ContinualNodeClassifier(**parameters).learn(**named(line(4)))


def test_preset_brings_a_datasets_settings():
    clf = ContinualNodeClassifier("dslr", preset="amazon-computers", settings={"tau": 0.5})
    config = clf._now().config
    assert (config.settings["buffer_size"], config.settings["tau"]) == (200, 0.5)
    assert config.model.dropout == 0.2


def test_diagnose_tells_what_is_there_and_warns():
    batch = named(line(12))
    clf = quick(validation_fraction=0.2, settings={"epochs": 1}).learn(**batch)
    about = clf.diagnose()
    assert about["nodes"] == 12
    assert about["edges"] == 11
    assert [entry["name"] for entry in about["classes"]] == ["even", "odd"]
    assert about["buffer"]["nodes"] == sum(entry["buffer"] for entry in about["classes"])
    assert about["memory_bytes"] == clf._now().learner.method.memory_bytes() > 0
    lone = quick(validation_fraction=0, settings={"epochs": 1})
    lone.learn(["a", "b"], np.eye(2), labels=["u", "v"])
    text = " ".join(lone.diagnose()["warnings"])
    assert "no held-out node" in text
    assert "2 nodes of the buffer have no neighbour" in text


@pytest.mark.parametrize("text", [True, False])
def test_what_a_change_keeps_is_told_before_it_is_learned(
    text: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    clf = quick(validation_fraction=0, settings={"epochs": 1})
    sizes, told = [], []
    for first in (0, 11_000):  # predictions of so many are not kept
        rows = range(first, first + 11_000)
        ids = [f"node {row}" for row in rows] if text else list(rows)
        edges, labels = list(pairwise(ids)), dict(zip(ids[:4], "uvuv", strict=True))
        x = np.random.default_rng(first).random((11_000, 16))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # there is room
            clf.learn(ids, x, edges, labels, on_event=told.append)
        clf.save(tmp_path / "state")
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "state").iterdir()))
    report = clf.history_[-1]["report"]
    assert report["stored_bytes"] == pytest.approx(sizes[1] - sizes[0], rel=0.3)
    assert report["stored_bytes"] < report["held_bytes"] < 2 * report["stored_bytes"]
    started = [event for event in told if isinstance(event, TaskStarted)]
    disk, memory = report["stored_bytes"] / 1e6, report["held_bytes"] / 1e6
    expected = f"this change keeps {disk:.1f} MB on disk and {memory:.1f} MB in memory"
    assert started[1].reason.endswith(expected)
    monkeypatch.setattr("evergraph.device.free_memory", lambda device: 100_000)
    with pytest.warns(UserWarning, match="Taking the change in takes about .* of memory are free"):
        clf.learn([f"{row}" if text else row for row in range(30_000, 32_000)], np.ones((2000, 16)))


@pytest.mark.parametrize("more", [{}, {"teleport": 0.5}])
def test_one_kind_of_rows_is_learned_and_taken_back_before_anything_is_chosen(more: dict[str, Any]):
    rows = {"hops": "0+1", "combine": "sum", "constant": False, **more}
    clf = ContinualNodeClassifier("analytic", settings=rows, validation_fraction=0, device="cpu")
    clf.learn(list("abcd"), np.eye(4), [("a", "c")], ["u", "v", None, None])
    assert clf.predict(["a", "b"]).tolist() == ["u", "v"]
    assert clf.remove(ids=["a"]).predict(["c"]).tolist() == ["v"]
