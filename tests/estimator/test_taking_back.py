"""Taking back: after removals and corrections ``analytic`` is as if it had never seen a label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batches import quick
from evergraph.estimator import ContinualNodeClassifier
from evergraph.methods import analytic

CLASSES, WIDTH = 4, 8


def usual(**parameters: Any) -> ContinualNodeClassifier:
    """Makes the estimator as a user does, but nothing is drawn to judge."""
    return ContinualNodeClassifier("analytic", device="cpu", validation_fraction=0, **parameters)


def nodes(rng: np.random.Generator, ids: list[int], known: list[int]) -> dict[str, Any]:
    """Words that tell the class now and then, and edges to any node."""
    labels = rng.integers(0, CLASSES, len(ids))
    chance = np.where(np.arange(WIDTH) % CLASSES == labels[:, None], 0.7, 0.2)
    x = (rng.random((len(ids), WIDTH)) < chance).astype(np.float32)
    edges = [(a, int(rng.choice([*known, *ids]))) for a in ids for _ in range(2)]
    return {"ids": ids, "x": x, "edges": edges, "labels": [f"c{label}" for label in labels]}


def both(seed: int) -> tuple[ContinualNodeClassifier, ContinualNodeClassifier]:
    """Learns some nodes; one of the two also learns others and wrong labels, and takes them back.

    Removed nodes are of every batch, and their edges lead to those that stay.
    """
    rng = np.random.default_rng(seed)
    clf, never = usual(), usual()
    there: list[int] = []
    gone, wrong, right = set[int](), dict[int, str](), dict[int, str]()
    for at in range(3):
        ids = list(range(20 * at, 20 * at + 20))
        batch = nodes(rng, ids, there)
        there += ids
        mine = {node for node in ids if rng.random() < 0.3}
        right |= dict(zip(ids, batch["labels"], strict=True))
        changed = {node: f"c{rng.integers(0, CLASSES + 1)}" for node in ids if rng.random() < 0.2}
        wrong |= {node: label for node, label in changed.items() if node not in mine}
        clf.learn(**batch | {"labels": [changed.get(node, right[node]) for node in ids]})
        gone |= mine
        if at == 1 and rng.random() < 0.5:  # some in between
            early = sorted(gone)[::2]
            clf.remove(early)
            there = [node for node in there if node not in early]
        kept = [row for row, node in enumerate(ids) if node not in mine]
        never.learn(
            [ids[row] for row in kept],
            batch["x"][kept],
            [pair for pair in batch["edges"] if not gone & set(pair)],
            [batch["labels"][row] for row in kept],
        )
    left = sorted(gone & set(there))
    for part in np.array_split(rng.permutation(left), int(rng.integers(1, 4))):
        clf.remove(part.tolist())
    clf.update(list(wrong), labels=[right[node] for node in wrong])
    return clf, never


def compare(seed: int) -> None:
    clf, never = both(seed)
    assert clf.ids_ == never.ids_
    order = [clf.classes_.tolist().index(name) for name in never.classes_]
    assert sorted(clf.classes_) == sorted(never.classes_)
    assert np.abs(clf.predict_proba()[:, order] - never.predict_proba()).max() < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_what_is_taken_back_was_never_there(seed: int):
    compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 200))
def test_what_is_taken_back_was_never_there_in_many_sequences(seed: int):
    compare(seed)


def separable(count: int, start: int = 0, seed: int = 0) -> dict[str, Any]:
    """Nodes of four classes that features and neighbours tell well."""
    rng = np.random.default_rng([seed, start])
    label = np.arange(count) % CLASSES
    x = np.eye(WIDTH)[label] + 0.5 * rng.normal(size=(count, WIDTH))
    ids = list(range(start, start + count))
    near = [(at, start + (at - start + CLASSES * int(rng.integers(1, 9))) % count) for at in ids]
    return {"ids": ids, "x": x, "edges": near, "labels": [f"c{one}" for one in label]}


@pytest.mark.parametrize("how", ["removed", "corrected"])
def test_many_wrong_labels_leave_nothing_behind(how: str):
    rng = np.random.default_rng(0)
    good, bad, asked = (separable(400, start) for start in (0, 400, 800))
    wrong = [f"c{label}" for label in rng.integers(0, CLASSES, 400)]
    clf = usual().learn(**good).learn(**asked | {"labels": None})
    before = clf.score(asked["ids"], asked["labels"])
    clf.learn(**bad | {"labels": wrong})
    if how == "removed":
        clf.remove(bad["ids"])
    else:
        clf.update(bad["ids"], labels=bad["labels"])  # once
    assert before > 0.9
    assert clf.score(asked["ids"], asked["labels"]) > before - 0.005
    assert "labels_that_stay" not in clf.history_[-1]["report"]


@pytest.mark.parametrize("how", ["removed", "corrected"])
def test_a_class_without_nodes_is_gone_from_the_state(how: str, tmp_path: Path):
    part = separable(80)
    odd = [node for node, label in zip(part["ids"], part["labels"], strict=True) if label == "c1"]
    clf = ContinualNodeClassifier("analytic", device="cpu", validation_fraction=0.2).learn(**part)
    if how == "removed":
        clf.remove(odd)
    else:
        clf.update(odd, labels=["c3"] * len(odd))
    clf = ContinualNodeClassifier.load(clf.save(tmp_path / "s") and tmp_path / "s", device="cpu")
    assert clf.classes_.tolist() == ["c0", "c2", "c3"]
    assert clf.history_[-1]["removed_classes"] == ["c1"]
    assert clf.predict_proba().shape[1] == len(clf.history_[-1]["class_accuracy"]) == 3
    assert [entry["name"] for entry in clf.diagnose()["classes"]] == ["c0", "c2", "c3"]
    assert sum(clf.history_[-1]["class_labels"]) == len(clf._now().learner.method.buffer)
    left = [node for node in clf.ids_ if node not in odd]
    truth = [part["labels"][node] for node in left]
    assert clf.score(left, truth) > 0.9
    clf.learn([900, 901], np.eye(WIDTH)[[1, 1]], labels=["c1", "c1"])  # and may come again
    assert clf.classes_.tolist() == ["c0", "c2", "c3", "c1"]
    assert clf.history_[-1]["new_classes"] == ["c1"]


def test_a_network_drops_a_class_without_labels_when_it_is_fitted_anew():
    part = separable(80)
    odd = [node for node, label in zip(part["ids"], part["labels"], strict=True) if label == "c1"]
    clf = quick("joint").learn(**part)
    with pytest.warns(UserWarning, match="stay in the network"):
        clf.remove(odd)
    assert "c1" in clf.classes_
    clf.refit()
    assert clf.classes_.tolist() == ["c0", "c2", "c3"]
    assert clf.predict_proba().shape == (60, 3)
    assert clf.learn(**separable(8, 900)).classes_.tolist() == ["c0", "c2", "c3", "c1"]


def test_a_graph_that_grows_too_large_is_no_longer_taken_back_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(analytic, "EXACT", 50)
    clf, following = usual(), usual(settings={"statistics": "follow"})
    clf.learn(**separable(40))
    assert clf.history_[-1]["report"]["statistics"] == "exact"
    kept = clf.history_[-1]["memory_bytes"]
    assert kept >= 16 * 40
    with pytest.warns(UserWarning, match="from now on it keeps no training labels"):
        clf.learn(**separable(40, 40))
    assert clf.history_[-1]["report"]["statistics"] == "follow"
    assert clf.history_[-1]["memory_bytes"] < kept
    clf = ContinualNodeClassifier.load(clf.save(tmp_path / "s") and tmp_path / "s", device="cpu")
    clf.learn(**separable(20, 80))
    assert "statistics" not in clf.history_[-1]["report"]
    for part in (separable(40), separable(40, 40), separable(20, 80)):
        following.learn(**part)
    assert clf.score(clf.ids_, following.predict()) > 0.95
    with pytest.warns(UserWarning, match="which stay in its statistics"):
        clf.remove([0])
    assert clf.history_[-1]["report"]["labels_that_stay"] == 1
