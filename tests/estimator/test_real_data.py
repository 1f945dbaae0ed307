"""Data as they really come: odd labels, shares over time, columns of any scale, wrong labels."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from batches import batches, quick
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.metrics import calibration_error
from evergraph.stream import Protocol, TaskStream
from evergraph.stream.datasets import load_graph
from support import Command


def cloud(
    count: int, classes: int = 2, start: int = 0, seed: int = 0, spread: float = 0.5
) -> dict[str, Any]:
    """Nodes on a ring in the order of their classes, which their features tell apart."""
    rng = np.random.default_rng([seed, start])
    label = np.sort(np.arange(count) % classes)
    x = np.eye(classes)[label] + spread * rng.normal(size=(count, classes))
    names = [f"n{at}" for at in range(start, start + count)]
    return {
        "ids": names,
        "x": x,
        "edges": [(names[at], names[(at + 1) % count]) for at in range(count)],
        "labels": [f"c{one}" for one in label],
    }


# --- labels ---------------------------------------------------------------------------------


def labels_learned(*batches: list[Any], **settings: Any) -> ContinualNodeClassifier:
    given = {"validation_fraction": 0, "settings": settings, "device": "cpu"}
    clf = ContinualNodeClassifier("analytic", **given)
    for at, labels in enumerate(batches):
        part = cloud(len(labels), start=100 * at)
        clf.learn(part["ids"], part["x"], part["edges"], labels)
    return clf


def test_blanks_and_whole_floats_make_no_class_of_their_own():
    clf = labels_learned(["0", "1", " 0", "1.0"], ["0.0", "1 ", "0", "\t1"], ["1.5", "0."] * 2)
    assert clf.classes_.tolist() == ["0", "1", "1.5"]
    assert labels_learned([0, 1.0, 0.0, None], [1, 0, float("nan"), 0]).classes_.tolist() == [0, 1]


def test_words_for_missing_values_are_no_class_and_said():
    with pytest.warns(UserWarning, match="'NA', 'None', 'nan' count as unlabelled"):
        clf = labels_learned(["a", "nan", "b", "NA", "None", ""])
    assert clf.classes_.tolist() == ["a", "b"]
    assert clf.history_[0]["trained_on"] == 2


def test_a_class_known_by_an_odd_name_keeps_it_and_is_scored_by_any():
    clf = labels_learned(["1.5", "2", "1.5", "2"])
    names = clf.ids_
    assert clf.score(names, [f" {name} " for name in clf.predict()]) == 1.0
    clf.partial_fit(["z"], [[1.0, 0.0]], None, ["2.0"], classes=["1.5", "2"])
    assert clf.classes_.tolist() == ["1.5", "2"]


def test_labels_in_files_are_read_as_people_mean_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    odd = ["0", "1", "0.0", " 1", "NA", ""]
    lines = [f"n{at},{at % 2},1,{label}" for at, label in enumerate(odd)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,f,g,label", *lines]))
    with pytest.warns(UserWarning, match="Nodes labelled 'NA' count as unlabelled"):
        answer = command("learn", "state", "--nodes", "nodes.csv", "--method", "analytic")
    assert answer.code == 0
    (tmp_path / "more.csv").write_text("id,label\nn4,1.0\nn5, 0\n")
    assert command("learn", "state", "--labels", "more.csv").code == 0
    clf = ContinualNodeClassifier.load("state")
    assert clf.classes_.tolist() == ["0", "1"]
    clf = labels_learned([0, 1, 0, 1])
    clf.save("numbers")
    (tmp_path / "more.csv").write_text("id,label\nn0,1.0\nn1, 0\nn2,nan\n")
    with pytest.warns(UserWarning, match="'nan'"):
        assert command("learn", "numbers", "--labels", "more.csv").code == 0
    assert ContinualNodeClassifier.load("numbers").classes_.tolist() == [0, 1]


# --- held-out nodes -------------------------------------------------------------------------


def test_the_held_out_share_is_kept_over_many_small_batches(tmp_path: Path):
    clf = quick("finetune", validation_fraction=0.1, settings={"epochs": 1})
    for at in range(100):
        clf.learn(**cloud(4, start=4 * at))
        if at == 50:
            clf = ContinualNodeClassifier.load(clf.save(tmp_path / "state") and tmp_path / "state")
    held, learned = clf.history_[-1]["held_out"], clf.history_[-1]["class_labels"]
    assert held + sum(learned) == 400
    assert 36 <= held <= 44
    assert all(abs(count - 180) <= 2 for count in learned)
    assert clf.history_[0]["held_out"] == 2  # a class is judged from the beginning


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        ("finetune", {200: 40, 1000: 200, 2000: 300, 3600: 360}),  # a fifth, 300, a tenth
        ("analytic", {200: 20, 1000: 100}),  # which leaves training nodes out
    ],
)
def test_more_of_few_labels_judge_a_network_and_a_tenth_of_many(
    method: str, parts: dict[int, int], tmp_path: Path
):
    clf, there = quick(method, settings={"epochs": 1} if method == "finetune" else {}), 0
    for total, judges in parts.items():
        clf.learn(**cloud(total - there, start=there))
        there = total
        assert clf.history_[-1]["held_out"] == judges
        clf.save(tmp_path / "state")
        clf = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    assert clf.validation_fraction == "auto"


# --- scale ----------------------------------------------------------------------------------


def spoilt(batch: dict[str, Any], how: str) -> dict[str, Any]:
    x = np.array(batch["x"], dtype=np.float64)
    if how == "year":
        x = np.hstack([x, np.arange(len(x))[:, None] % 30 + 1995.0])
    elif how == "times ten":
        x = 10 * x
    elif how == "outlier":
        x[3] = 1e10
    return {**batch, "x": x}


@pytest.mark.parametrize("how", ["clean", "year", "times ten", "outlier"])
@pytest.mark.parametrize("method", ["analytic", "finetune", "replay"])
def test_units_and_outliers_do_not_matter(method: str, how: str):
    settings = {"epochs": 40, "lr": 0.05, "dropout": 0.0}
    clf = quick(method, settings=settings if method != "analytic" else {})
    clf.learn(**spoilt(cloud(200, spread=0.2), how))
    assert clf.history_[0]["report"]["scaling"] == "robust"
    truth = cloud(200)["labels"]
    assert np.isfinite(clf.predict_proba()).all()
    assert clf.score(clf.ids_, truth) > 0.95
    late = {**cloud(4, start=500, spread=0.2), "labels": None}
    late["x"] = np.hstack([late["x"], np.full((4, 1), 2000.0)]) if how == "year" else late["x"]
    late["x"][1] *= 1e10
    clf.learn(**late)
    assert np.isfinite(clf.predict_proba()).all()
    assert clf.history_[-1]["report"]["rows_beyond_scale"] == 1


@pytest.mark.parametrize("method", ["analytic", "replay"])
def test_units_and_outliers_do_not_matter_in_runs_on_a_users_file(
    method: str, tmp_path: Path, command: Command
):
    part = cloud(240, 4, spread=0.2)
    edges = np.stack([np.arange(240), (np.arange(240) + 1) % 240])
    label = np.sort(np.arange(240) % 4)
    found = {}
    for how in ("clean", "year", "times ten", "outlier"):
        np.savez(tmp_path / "mine.npz", x=spoilt(part, how)["x"], edge_index=edges, y=label)
        given = ["run", "--dataset", tmp_path / "mine.npz", "--method", method, "--json"]
        if method != "analytic":
            sets = ("epochs=40", "lr=0.05", "channels=8", "dropout=0", "buffer_size=20")
            given += [word for one in sets for word in ("--set", one)]
        answer = command(*given, "--output", tmp_path / how.replace(" ", "-"))
        assert answer.code == 0, answer.err
        found[how] = json.loads(answer.out)["pm"]
    assert min(found.values()) > 90
    assert max(found.values()) - min(found.values()) < 5


def test_binary_and_normalised_features_stay_as_they_are():
    rng = np.random.default_rng(0)
    words = (rng.random((50, 30)) < 0.2).astype(np.float32)
    lengths = np.maximum(words.sum(axis=1, keepdims=True), 1)
    labels = ["a", "b"] * 25
    for x, kind in ((words, "binary"), (words / lengths, "normalised")):
        for form in (np.array, sparse.csr_matrix):
            clf = quick("finetune", settings={"epochs": 1})
            clf.learn([*range(50)], form(x), None, labels)
            features = clf._now().graph.features
            kept = features if form is np.array else features.dense()
            assert np.array_equal(kept.numpy(), x.astype(np.float32))
            assert clf.history_[0]["report"]["scaling"] == kind


def test_scale_is_fixed_by_the_first_labels_and_kept_with_the_state(tmp_path: Path):
    part, more = cloud(40), cloud(40, start=40)
    one = quick("finetune").learn(part["ids"], part["x"], part["edges"])  # no label yet
    one.update(part["ids"], labels=part["labels"])
    other = quick("finetune").learn(**part)
    one.save(tmp_path / "state")
    one = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    for clf in (one, other):
        clf.learn(more["ids"], 100 * more["x"], more["edges"])
    assert np.array_equal(one._now().graph.features, other._now().graph.features)
    plain = quick("finetune", feature_scaling="none").learn(**part)
    assert np.allclose(plain._now().graph.features, part["x"])
    assert "scaling" not in plain.history_[0]["report"]


def test_features_that_tell_nothing_are_no_fault(tmp_path: Path):
    for x in (np.zeros((6, 2)), np.full((6, 2), 2001.0), np.full((6, 2), 1e-30)):
        clf = quick("finetune").learn([*range(6)], x, None, ["a", "b"] * 3)
        assert np.isfinite(clf.predict_proba()).all()
        assert clf._now().graph.features.abs().max() < 100
        folder = tmp_path / str(x.max())
        assert ContinualNodeClassifier.load(clf.save(folder) and folder)._now().scale is not None


def test_later_features_of_another_unit_are_noticed():
    clf = quick("finetune").learn(**cloud(40))
    clf.learn(**cloud(10, start=40))
    assert not any("beyond" in warning for warning in clf.diagnose()["warnings"])
    later = cloud(10, start=50)
    clf.learn(**{**later, "x": 1000 * later["x"]})
    assert any("10 rows that came later lie far beyond" in w for w in clf.diagnose()["warnings"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["analytic", "replay", "dslr"])
def test_cora_survives_a_year_a_factor_and_an_outlier(method: str):
    protocol = Protocol(order="alphabetical", min_class_size=200, pooled=True)
    stream = TaskStream(load_graph("cora"), protocol, seed=0)
    judged = [stream.evaluation(task) for task in range(stream.num_tasks)]
    nodes = torch.cat([part.nodes for part in judged]).tolist()
    truth = torch.cat([part.labels for part in judged]).tolist()

    def accuracy(how: str) -> float:
        epochs = {"epochs": 60} if method != "analytic" else {}
        clf = ContinualNodeClassifier(method, preset="cora", settings=epochs, device="cpu")
        rng = np.random.default_rng(0)
        for at, batch in enumerate(batches(stream)):
            x = batch["x"].dense() if hasattr(batch["x"], "dense") else batch["x"]
            x = x.numpy() * (10.0 if how == "times ten" else 1.0)
            if how == "year":
                x = np.hstack([x, rng.integers(1990, 2024, (len(x), 1))])
            if how == "outlier" and at == 1:
                x[next(iter(batch["labels"])) - batch["ids"][0]] = 1e10
            clf.learn(**{**batch, "x": x})
        return 100 * clf.score(nodes, truth)

    clean = accuracy("clean")
    for how in ("year", "times ten", "outlier"):
        assert abs(accuracy(how) - clean) < 2


@pytest.mark.parametrize("method", ["finetune", "replay"])
def test_a_step_that_would_leave_nothing_finite_is_refused(method: str):
    clf = quick(method, feature_scaling="none").learn(**cloud(20))
    before = clf.predict_proba()
    part = cloud(8, start=20)
    part["x"][5, 1] = 3e38
    with pytest.raises(InputError, match=r"3e\+38 in column 2 of node 'n25'"):
        clf.learn(**part)
    with pytest.raises(InputError, match=r"finite \(got 3e\+38 in column 2 of node 'n25'"):
        clf.learn(part["ids"], part["x"])  # nothing is learned: what is predicted would be wrong
    assert np.array_equal(clf.predict_proba(), before)
    assert len(clf.history_) == 1


# --- probabilities --------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["analytic", "replay", "joint"])
def test_probabilities_mean_what_they_say(method: str, tmp_path: Path):
    settings = {"epochs": 60, "lr": 0.05, "dropout": 0.0} if method != "analytic" else {}
    clf = quick(method, validation_fraction=0.3, settings=settings)
    for start in (0, 1000):
        part = cloud(900, 3, start, spread=0.6)
        known = [name if at % 3 else None for at, name in enumerate(part["labels"])]
        clf.learn(part["ids"], part["x"], None, known)
    judged = [f"n{at}" for at in range(0, 900, 3)] + [f"n{at}" for at in range(1000, 1900, 3)]
    truth = np.array(cloud(900, 3)["labels"])[::3]
    truth = np.concatenate([truth, truth])
    proba = clf.predict_proba(judged)
    labels = np.searchsorted(clf.classes_, truth)
    assert 60 < 100 * clf.score(judged, truth) < 95
    assert calibration_error(proba, labels) < 0.08
    assert clf.history_[-1]["calibration_error"] < 0.1
    assert clf.diagnose()["calibration_error"] == clf.history_[-1]["calibration_error"]
    assert np.array_equal(clf.classes_[proba.argmax(axis=1)], clf.predict(judged))
    clf.save(tmp_path / "state")
    loaded = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    assert np.array_equal(loaded.predict_proba(judged), proba)


def test_analytic_is_calibrated_where_nothing_is_held_out():
    clf = ContinualNodeClassifier("analytic", validation_fraction=0, device="cpu")
    part = cloud(900, 3, spread=0.6)
    known = [name if at % 3 else None for at, name in enumerate(part["labels"])]
    clf.learn(part["ids"], part["x"], None, known)
    labels = np.searchsorted(clf.classes_, np.array(part["labels"])[::3])
    assert clf.history_[0]["calibration_error"] is None
    assert calibration_error(clf.predict_proba()[::3], labels) < 0.1


def test_networks_without_held_out_nodes_say_that_they_are_not_calibrated():
    clf = quick("replay", validation_fraction=0).learn(**cloud(20))
    assert (clf.history_[0]["calibrated_on"], clf.history_[0]["temperature"]) == (None, 1.0)
    with pytest.warns(UserWarning, match="not calibrated, for no node is held out"):
        clf.predict_proba()
    assert any("not calibrated" in text for text in clf.diagnose()["warnings"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict()
        held = quick("replay").learn(**cloud(20))
        held.predict_proba()
    assert held.history_[0]["calibrated_on"] == "held-out nodes"
    assert not any("not calibrated" in text for text in held.diagnose()["warnings"])


def test_probabilities_stay_honest_when_classes_come():
    settings = {"epochs": 60, "lr": 0.05, "dropout": 0.0}
    clf = quick("replay", validation_fraction=0.3, settings=settings)
    first, rng = cloud(600, 2, spread=0.6), np.random.default_rng(0)
    first["x"] = np.hstack([first["x"], 0.6 * rng.normal(size=(600, 1))])
    third = rng.normal(size=(300, 3)) * 0.6 + [0, 0, 1]
    names = [f"m{at}" for at in range(300)]
    clf.learn(first["ids"], first["x"], None, first["labels"])
    clf.learn(names, third, None, ["c2" if at % 3 else None for at in range(300)])
    sure = clf.predict_proba(names[::3]).max(axis=1).mean()
    assert abs(sure - clf.score(names[::3], ["c2"] * 100)) < 0.15
    assert clf.history_[-1]["calibrated_on"] == "held-out nodes"


# --- taking back ----------------------------------------------------------------------------


def exact(**settings: Any) -> ContinualNodeClassifier:
    given = {"validation_fraction": 0, "settings": settings, "device": "cpu"}
    return ContinualNodeClassifier("analytic", **given)


def test_what_is_removed_was_never_seen(tmp_path: Path):
    kept, gone, later = cloud(60, 3), cloud(30, 4, start=60, seed=1), cloud(30, 3, start=90)
    for part in (kept, later):  # all nodes have the features of four classes
        part["x"] = np.hstack([part["x"], np.zeros((len(part["x"]), 1))])
    joined = [(a, b) for a, b in zip(gone["ids"], kept["ids"], strict=False)]
    never, removed = exact(), exact()
    removed.learn(**kept)
    removed.learn(**{**gone, "edges": gone["edges"] + joined})
    assert removed.classes_.tolist() == ["c0", "c1", "c2", "c3"]
    removed.remove(gone["ids"])
    never.learn(**kept)
    weights = [clf._now().learner.method.solved() for clf in (never, removed)]
    assert torch.allclose(*weights, atol=1e-9)
    assert removed.classes_.tolist() == ["c0", "c1", "c2"]  # a class without nodes is gone
    assert removed.history_[-1]["removed_classes"] == ["c3"]
    assert np.allclose(never.predict_proba(), removed.predict_proba(), atol=1e-6)
    removed = ContinualNodeClassifier.load(
        removed.save(tmp_path / "state") and tmp_path / "state", device="cpu"
    )
    for clf in (never, removed):
        clf.learn(later["ids"], later["x"], later["edges"])  # the graph alone
        clf.learn([], labels=dict(zip(later["ids"], later["labels"], strict=True)))
    assert np.allclose(never.predict_proba(), removed.predict_proba(), atol=1e-6)
    method = never._now().learner.method
    assert method.memory_bytes() >= 16 * 90


def test_random_sequences_with_what_is_taken_back_end_where_others_do():
    rng = np.random.default_rng(0)
    for seed in range(6):
        base, extra = cloud(40, 3, seed=seed), cloud(20, 3, start=40, seed=seed)
        wrong = [base["labels"][at] for at in rng.permutation(40)]
        clf, plain = exact(), exact().learn(**base)
        clf.learn(**{**base, "labels": wrong})
        clf.learn(**extra)
        order = rng.permutation(20)
        for part in np.array_split(order, 3):
            clf.remove([extra["ids"][at] for at in part])
        clf.update(base["ids"], labels=base["labels"])  # all labels corrected, once
        assert np.allclose(clf.predict_proba(), plain.predict_proba(), atol=1e-6)


def test_removing_everything_that_was_taught_leaves_nothing(tmp_path: Path):
    clf = exact().learn(**cloud(10))
    clf.learn(["x", "y"], np.eye(2))
    clf.remove(cloud(10)["ids"])
    with pytest.raises(InputError, match="has learned labels"):
        clf.predict_proba()
    folder = tmp_path / "state"
    clf = ContinualNodeClassifier.load(clf.save(folder) and folder, device="cpu")
    clf.learn(**cloud(10))
    assert clf.classes_.tolist() == ["c0", "c1"]
    assert clf.score(cloud(10)["ids"], cloud(10)["labels"]) > 0.9


def test_an_encoder_cannot_take_back():
    with pytest.raises(InputError, match="does not forget"):
        exact(rows="encoder", statistics="exact").learn(**cloud(10))


def test_where_nothing_is_taken_back_it_is_said():
    part = cloud(20)
    clf = labels_learned(part["labels"], statistics="follow")
    with pytest.warns(UserWarning, match="labels of 2 nodes .* in its statistics; .*exact"):
        clf.remove(part["ids"][:2])
    assert clf.history_[-1]["report"]["labels_that_stay"] == 2
    clf = quick("replay", validation_fraction=0).learn(**part)
    with pytest.warns(UserWarning, match=r"labels of 1 nodes .* in the network; refit\(\)"):
        clf.update(["n0"], labels=["c1"])
    assert clf.history_[-1]["report"]["labels_that_stay"] == 1


@pytest.mark.parametrize("method", ["joint", "replay", "dslr"])
def test_refit_begins_anew_from_what_is_kept(method: str):
    part, more = cloud(20), cloud(20, start=20)
    clf = quick(method, validation_fraction=0).learn(**part).learn(**more)
    with pytest.warns(UserWarning, match="stay in the network"):
        clf.remove(more["ids"])
    held = clf.refit()
    assert clf.history_[-1]["kind"] == "refit"
    if method == "joint":  # which keeps all labels
        never = quick(method, validation_fraction=0).learn(**part)
        assert np.array_equal(held.predict_proba(), never.predict_proba())
    labels = dict(zip(part["ids"], part["labels"], strict=True))
    clf.refit(labels)
    assert clf.history_[-1]["trained_on"] == 20
    clf.learn(**more)
    assert len(clf.ids_) == 40


def test_refit_without_labels_says_what_it_needs():
    clf = labels_learned(cloud(10)["labels"], statistics="follow")
    with pytest.raises(InputError, match="'analytic' keeps none"):
        clf.refit()
    with pytest.raises(InputError, match="of known classes"):
        clf.refit({"n0": "new"})
    before = clf.predict_proba()
    clf.refit(dict(zip(cloud(10)["ids"], cloud(10)["labels"], strict=True)))
    assert np.allclose(clf.predict_proba(), before)


# --- class weights --------------------------------------------------------------------------


def test_balanced_weights_find_a_class_that_is_rare():
    rng = np.random.default_rng(0)
    label = (np.arange(420) % 21 == 0).astype(int)  # one in twenty-one
    x = rng.normal(size=(420, 2)) + 1.2 * label[:, None]
    found = {}
    for weight in ("natural", "balanced", {"1": 20.0}):
        settings = {"epochs": 60, "lr": 0.05, "dropout": 0.0, "class_weight": weight}
        clf = quick("finetune", validation_fraction=0, settings=settings)
        clf.learn([*range(420)], x, None, label.tolist())
        found[str(weight)] = float((clf.predict()[label == 1] == 1).mean())
    assert found["natural"] < 0.5
    assert found["balanced"] > 0.7
    assert found["{'1': 20.0}"] > 0.7


def test_class_weights_of_analytic_are_its_own():
    for weight in ("auto", "balanced"):
        clf = ContinualNodeClassifier("analytic", settings={"class_weight": weight}, device="cpu")
        clf.learn(**cloud(20))
        config = clf._now().config
        assert (config.settings["class_weight"], config.training.class_weight) == (
            weight,
            "auto",
        )


# --- noticing -------------------------------------------------------------------------------


def test_a_constant_prediction_and_uneven_classes_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
):
    rng = np.random.default_rng(0)
    labels = ["rare" if at % 25 == 0 else "usual" for at in range(500)]
    x = rng.normal(size=(500, 2))  # tells nothing
    clf = quick("finetune", validation_fraction=0.3, settings={"epochs": 5})
    clf.learn([f"n{at}" for at in range(500)], x, None, labels).save(tmp_path / "state")
    found = clf.diagnose()["warnings"]
    assert any("Every held-out node is given to class 'usual'" in text for text in found)
    assert any("336 labels of 'usual', 14 of 'rare'" in text for text in found)
    assert all("class_weight='balanced'" in text for text in found)
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.csv").write_text("id,f,g\nm,1,1\n")
    (tmp_path / "labels.csv").write_text("id,label\n")
    clf = quick("finetune", validation_fraction=0.3, settings={"epochs": 5})
    frame = pytest.importorskip("pandas").DataFrame(x, columns=["f", "g"])
    clf.learn([f"n{at}" for at in range(500)], frame, None, labels).save(tmp_path / "other")
    answer = command("learn", "other", "--nodes", "more.csv")
    assert "warning: Every held-out node is given to class 'usual'" in answer.out
    assert "Classes are uneven" in command("inspect", "other").out


def test_a_constant_prediction_is_noticed_without_held_out_nodes():
    rng = np.random.default_rng(0)
    settings = {"epochs": 2, "class_weight": {"usuel": 2.0}}
    clf = quick("finetune", validation_fraction=0, settings=settings)
    labels = ["rare" if at % 10 == 0 else "usual" for at in range(100)]
    found = clf.learn([*range(100)], rng.normal(size=(100, 2)), None, labels).diagnose()["warnings"]
    assert any("Every node is given to class 'usual'" in text for text in found)
    assert "'class_weight' names 'usuel', which is no class so far." in found


def test_a_class_that_is_missed_is_noticed():
    rng = np.random.default_rng(0)
    label = np.arange(300) % 3
    x = np.eye(3)[np.minimum(label, 1)] + 0.1 * rng.normal(size=(300, 3))
    names = np.array(["a", "b", "c"])[label]
    names[label == 2] = np.where(rng.random(100) < 0.2, "c", "b")  # c looks like b, and is rarer
    settings = {"class_weight": "natural", "mean_field": False, "teleport": 1}
    clf = ContinualNodeClassifier(
        "analytic", validation_fraction=0.3, settings=settings, device="cpu"
    )
    clf.learn([*range(300)], x, None, names.tolist())
    found = clf.diagnose()["warnings"]
    assert any("of class 'c' is given to it" in w and "balanced_accuracy" in w for w in found)


def test_what_a_graph_object_brings_in_vain_is_said():
    networkx, pyg = pytest.importorskip("networkx"), pytest.importorskip("torch_geometric.data")
    graph = networkx.DiGraph([("a", "b", {"weight": 2.0}), ("b", "c")])
    for name, x in zip("abc", np.eye(3), strict=True):
        graph.nodes[name].update(x=x, label=name)
    with pytest.warns(UserWarning, match="of edges") as told:
        quick(settings={"heads": 1}).learn(graph)
    assert [str(one.message).split(" of edges")[0] for one in told] == [
        "The directions",
        "Attention does not use the weights",
    ]
    index = torch.tensor([[0, 1], [1, 2]])
    y = torch.tensor([0, 1, 0])
    with pytest.warns(UserWarning, match="The directions of edges"):
        quick(settings={"heads": 1}).learn(pyg.Data(x=torch.eye(3), edge_index=index, y=y))
    kinds = {"node_type": y, "edge_attr": torch.ones(2, 2)}
    with pytest.warns(UserWarning, match="The graph has 'node_type', 'edge_attr', which is not"):
        quick().learn(pyg.Data(x=torch.eye(3), edge_index=index, y=y, **kinds))
    typed = networkx.Graph(graph)
    networkx.set_node_attributes(typed, "person", "kind")
    with pytest.warns(UserWarning, match="The graph has 'kind'"):
        quick().learn(typed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = torch.cat([index, index.flip(0)], dim=1)
        quick().learn(pyg.Data(x=torch.eye(3), edge_index=both, y=y))
        quick().learn(networkx.Graph(graph.subgraph("c")))
    mixed = pyg.HeteroData()
    mixed["paper"].x = torch.eye(3)
    with pytest.raises(InputError, match=r"one kind \(got HeteroData\)"):
        quick().learn(mixed)


def test_settings_without_effect_are_said():
    clf = ContinualNodeClassifier("analytic", settings={"epochs": 3, "hops": "0+1"}, device="cpu")
    with pytest.warns(UserWarning, match="Setting 'epochs' has no effect on analytic"):
        clf.learn(**cloud(10))


def test_columns_of_files_that_nobody_reads_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,f,label\na,1,x\nb,0,y\nc,1,x\nd,0,y\n")
    (tmp_path / "edges.csv").write_text("source,target,colour\na,c,2\n")
    with pytest.warns(UserWarning, match="'edges.csv' has 'colour', which is not used"):
        command("learn", "state", "--nodes", "nodes.csv", "--edges", "edges.csv")


def test_settings_of_networks_are_said_to_wait_for_one():
    clf = ContinualNodeClassifier(buffer_size=9, settings={"epochs": 3}, device="cpu")
    with pytest.warns(UserWarning, match="'buffer_size' and 'epochs' have no effect .* 'auto'"):
        clf.learn(**cloud(10))
    settings = {"class_weight": "balanced", "metric": "balanced_accuracy", "epochs": 1}
    clf = ContinualNodeClassifier("replay", settings=settings, device="cpu")
    with pytest.warns(UserWarning, match="'metric' has no effect on replay"):
        clf.learn(**cloud(10))


# --- the method that is chosen --------------------------------------------------------------


def test_auto_is_analytic_unless_a_network_is_surely_better(tmp_path: Path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (400, 2))
    x = 2.0 * bits - 1 + 0.3 * rng.normal(size=(400, 2))
    told = {}
    for name, labels in (("linear", bits[:, 0]), ("xor", bits[:, 0] ^ bits[:, 1])):
        clf = ContinualNodeClassifier(settings={"epochs": 100}, device="cpu")
        with pytest.warns(UserWarning, match="'epochs'"):
            clf.learn([*range(400)], x, None, labels.tolist())
        told[name] = clf.history_[0]["report"]
        folder = tmp_path / name
        again = ContinualNodeClassifier.load(clf.save(folder) and folder, device="cpu")
        assert again.method == "auto"
        assert again.diagnose()["method"] == told[name]["method"]
        for one in (clf, again):
            one.learn([400, 401], x[:2], [(400, 0)], labels[:2].tolist())
        assert np.array_equal(clf.predict_proba(), again.predict_proba())
        assert clf.score([*range(400)], labels.tolist()) > 0.95
    assert told["linear"]["method"] == "analytic"
    assert told["xor"]["method"] == "dslr"
    assert "left-out nodes are right with analytic" in told["xor"]["reason"]


def test_auto_keeps_to_analytic_where_its_settings_are_given():
    clf = ContinualNodeClassifier(settings={"hops": "0"}, device="cpu").learn(**cloud(20))
    assert clf.history_[0]["report"]["reason"] == "'hops' is a setting of analytic"
    with pytest.raises(InputError, match="setting of method 'auto'"):
        ContinualNodeClassifier(settings={"beta": 0.5}, device="cpu").learn(**cloud(20))


# --- neighbours and rare classes ------------------------------------------------------------


def misleading(kind: str) -> tuple[Any, Any, Any, Any]:
    """Five classes that features tell; neighbours are of any class, or of the next one."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 5, 1000)
    x = rng.normal(size=(5, 8))[labels] + rng.normal(size=(1000, 8))
    ends = np.repeat(np.arange(1000), 4)
    others = rng.integers(0, 1000, ends.size)
    if kind == "ring":
        following = [np.flatnonzero(labels == (label + 1) % 5) for label in range(5)]
        others = np.array([rng.choice(following[labels[end]]) for end in ends])
    return x, labels, np.stack([ends, others], 1), rng.random(1000) < 0.5


@pytest.mark.parametrize("kind", ["random", "ring"])
@pytest.mark.parametrize("method", ["auto", "replay"])
def test_neighbours_that_mislead_are_said_and_do_not_matter_to_auto(
    method: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
):
    x, labels, edges, shown = misleading(kind)
    names = [f"n{at}" for at in range(1000)]
    pairs = [(names[a], names[b]) for a, b in edges.tolist()]
    known = [str(label) if one else None for label, one in zip(labels, shown, strict=True)]
    settings = {"epochs": 40, "lr": 0.01, "channels": 8, "heads": 2} if method != "auto" else {}
    clf = ContinualNodeClassifier(
        method, settings=settings, validation_fraction=0.2, device="cpu"
    ).learn(names, x, pairs, known)
    plain = LogisticRegression(max_iter=500).fit(x[shown], labels[shown])
    behind = plain.score(x[~shown], labels[~shown]) - np.mean(
        clf.predict()[~shown] == labels[~shown].astype(str)
    )
    said = [text for text in clf.diagnose()["warnings"] if "Neighbours mislead" in text]
    assert behind < 0.02 or (said and method != "auto")
    if kind == "random" and method == "replay":
        assert "features alone would do better" in said[0]
        assert "method='auto'" in said[0]
        pytest.importorskip("pyarrow")
        monkeypatch.chdir(tmp_path)
        clf.save("state")
        assert "warning: Neighbours mislead" in command("inspect", "state").out
        (tmp_path / "more.csv").write_text("source,target\nn0,n1\n")
        assert "warning: Neighbours mislead" in command("learn", "state", "--edges", "more.csv").out


@pytest.mark.parametrize("ratio", [100, 1000])
def test_the_metric_that_is_asked_for_is_that_of_a_plain_classifier(ratio: int):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 0, 1], (10 * ratio, 10, 500, 100))
    shown = np.arange(labels.size) < 10 * ratio + 10
    x = rng.normal(size=(labels.size, 4)) + 1.5 * labels[:, None]
    known = [int(label) if one else None for label, one in zip(labels, shown, strict=True)]
    for metric, weight, shares in (
        ("accuracy", None, (ratio, 1)),
        ("balanced_accuracy", "balanced", (1, 1)),
    ):
        clf = ContinualNodeClassifier("analytic", settings={"metric": metric}, device="cpu")
        clf.learn([*range(labels.size)], x, None, known)
        plain = LogisticRegression(class_weight=weight).fit(x[shown], labels[shown])
        reached = []
        for found in (clf.predict(), plain.predict(x)):
            right = (found == labels)[~shown]
            recalls = [right[labels[~shown] == label].mean() for label in (0, 1)]
            reached.append(np.average(recalls, weights=shares))
        assert reached[0] > reached[1] - 0.005


def test_weights_by_name_count_in_analytic(tmp_path: Path):
    rng = np.random.default_rng(0)
    label = (np.arange(420) % 21 == 0).astype(int)
    x = rng.normal(size=(420, 2)) + 1.2 * label[:, None]
    found = {}
    for weight in (1.0, 20.0):
        settings = {"class_weight": {"1": weight}}
        clf = ContinualNodeClassifier("analytic", settings=settings, device="cpu")
        clf.learn([*range(420)], x, None, label.tolist())
        again = ContinualNodeClassifier.load(
            clf.save(tmp_path / str(weight)) and tmp_path / str(weight), device="cpu"
        )
        assert np.allclose(again.predict_proba(), clf.predict_proba())
        assert clf.history_[0]["report"]["class_weight"] == "given"
        found[weight] = float((clf.predict()[label == 1] == 1).mean())
    assert found[1.0] < 0.5
    assert found[20.0] > 0.7


def test_a_network_weighs_as_the_metric_asks():
    rng = np.random.default_rng(0)
    label = (np.arange(420) % 21 == 0).astype(int)
    x = rng.normal(size=(420, 2)) + 1.2 * label[:, None]
    found = {}
    for metric in ("accuracy", "balanced_accuracy"):
        settings = {"epochs": 60, "lr": 0.05, "dropout": 0.0, "metric": metric}
        clf = quick("finetune", validation_fraction=0, settings=settings)
        clf.learn([*range(420)], x, None, label.tolist())
        found[metric] = float((clf.predict()[label == 1] == 1).mean())
    assert found["accuracy"] < 0.5 < found["balanced_accuracy"]


def test_how_long_features_are_is_not_lost():
    rng = np.random.default_rng(0)
    label = np.arange(400) % 2
    x = 3 + 3 * label[:, None] + rng.normal(size=(400, 3))  # one direction, two lengths
    clf = ContinualNodeClassifier("analytic", validation_fraction=0, device="cpu")
    clf.learn(
        [*range(400)], x, None, [int(one) if at < 200 else None for at, one in enumerate(label)]
    )
    assert "constant" in clf.history_[0]["report"]["hops"]
    assert (clf.predict()[200:] == label[200:]).mean() > 0.95
