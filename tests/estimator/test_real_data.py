"""Data as they really come: odd labels, shares over time, columns of any scale, wrong labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batches import quick
from evergraph.estimator import ContinualNodeClassifier
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


def labels_learned(*batches: list[Any]) -> ContinualNodeClassifier:
    clf = ContinualNodeClassifier("analytic", validation_fraction=0, device="cpu")
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
