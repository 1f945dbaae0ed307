"""The watch: alarms where a change made things worse, and none where it did not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.watch import FALSE_ALARMS, newcombe, wilson

KEYS = {"kind", "where", "value", "before", "low", "high", "p", "alarm", "remedy"}


def batch(start: int, count: int, seed: int = 0, *, near: int | None = None) -> dict[str, Any]:
    """Three classes in four columns, each node with three edges to nodes that are there."""
    rng = np.random.default_rng([seed, start])
    label = rng.integers(0, 3, count)
    x = rng.normal(size=(count, 4))
    x[:, :3] += 2 * np.eye(3)[label]
    ids = np.arange(start, start + count)
    ends = rng.integers(0, start + count if near is None else near, (count, 3))
    edges = np.stack([np.repeat(ids, 3), ends.ravel()], axis=1)
    return {"ids": ids, "x": x, "edges": edges, "labels": [f"c{one}" for one in label]}


def begun(method: str = "analytic", **given: Any) -> ContinualNodeClassifier:
    """A state of 600 nodes, a third of which have no label."""
    clf = ContinualNodeClassifier(method, **given)
    first = batch(0, 600)
    first["labels"][::3] = [None] * 200
    return clf.learn(**first)


def alarms(clf: ContinualNodeClassifier) -> list[dict[str, Any]]:
    found = [one for one in clf.history_[-1]["watch"] if one["alarm"]]
    assert found == clf.diagnose()["alarms"]
    return found


def test_intervals_are_those_of_the_textbook():
    # Newcombe (1998), example (a) of method 10: 56/70 and 48/80.
    assert newcombe((56, 70), (48, 80)) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    same = stats.binomtest(7, 20).proportion_ci(0.95, "wilson")
    assert wilson(7, 20) == pytest.approx((same.low, same.high), abs=1e-4)


def test_a_column_that_moved_raises_an_alarm_that_says_which():
    clf = begun()
    later = batch(600, 200)
    later["x"][:, 3] += 1
    clf.learn(**later | {"labels": None})
    (one,) = [one for one in alarms(clf) if one["kind"] == "features"]
    assert one.keys() == KEYS
    assert one["where"] == "4"
    assert one["value"] > one["before"]
    assert 0 < one["low"] < one["value"] - one["before"] < one["high"]
    sides = [clf._now().graph.features[rows, 3].numpy() for rows in (slice(600, 800), slice(600))]
    oracle = stats.ks_2samp(*sides, method="asymp")
    assert one["value"] - one["before"] == pytest.approx(100 * oracle.statistic, abs=1e-3)
    assert math.log(one["p"]) == pytest.approx(math.log(oracle.pvalue), rel=0.1)
    (said,) = [text for text in clf.diagnose()["warnings"] if "column" in text]
    assert "'4'" in said
    assert said.endswith("label some of the new nodes and learn them.")


def test_a_rare_word_that_became_frequent_raises_an_alarm():
    rng = np.random.default_rng(0)
    words = (rng.random((800, 50)) < 0.02).astype(float)
    words[600:, 7] = rng.random(200) < 0.2
    label = rng.integers(0, 2, 600)
    words[np.arange(600), label] = 1
    words[600:, rng.integers(0, 2, 200)] = 1
    x = sparse.csr_matrix(words)
    clf = ContinualNodeClassifier("analytic")
    clf.learn(range(600), x[:600], None, [f"c{one}" for one in label])
    clf.learn(range(600, 800), x[600:])
    found = {one["where"]: one for one in alarms(clf) if one["kind"] == "features"}
    one = found["8"]
    table = [[words[600:, 7].sum(), 0], [words[:600, 7].sum(), 0]]
    table[0][1], table[1][1] = 200 - table[0][0], 600 - table[1][0]
    assert one["p"] == pytest.approx(2 * stats.fisher_exact(table, "greater").pvalue)
    assert one["value"] == pytest.approx(100 * words[600:, 7].mean(), abs=1e-3)


def test_nodes_that_fit_no_class_lower_the_confidence():
    clf = begun()
    later = batch(600, 200)
    later["x"][:, :3] = later["x"][:, :3].mean(axis=1, keepdims=True)
    clf.learn(**later | {"labels": None})
    (one,) = [one for one in alarms(clf) if one["kind"] == "confidence"]
    proba = clf.predict_proba(range(600, 800)).max(axis=1)
    assert one["value"] == pytest.approx(100 * proba.mean(), abs=1e-2)
    assert one["low"] < one["high"] < 0
    assert any("least sure first" in text for text in clf.diagnose()["warnings"])


def test_lost_edges_raise_an_alarm_and_growth_does_not():
    clf = begun()
    for start in (600, 800, 1000):
        few = batch(start, 200, near=600)  # newcomers have three edges, the first nodes more
        clf.learn(**few | {"labels": None})
        assert [one["kind"] for one in alarms(clf)] == []
    assert sum(clf.history_[-1]["arrivals"]) == 200
    few = batch(1200, 200, near=600)
    clf.learn(**few | {"labels": None, "edges": few["edges"][::6]})
    assert [one["kind"] for one in alarms(clf)] == ["degrees"]
    assert any("fewer neighbours" in text for text in clf.diagnose()["warnings"])


def fallen(method: str, **given: Any) -> list[str]:
    """Warnings after corrupted features of all nodes: what was known is not any more."""
    clf = begun(method, validation_fraction=0.3, **given)
    x = batch(0, 600)["x"]
    clf.update(range(600), x=x[:, [1, 2, 0, 3]])
    falls = [one for one in alarms(clf) if one["kind"] == "accuracy"]
    assert {one["where"] for one in falls} <= {"c0", "c1", "c2"}
    assert all(one["high"] < 0 and one["value"] < one["before"] for one in falls)
    return [text for text in clf.diagnose()["warnings"] if " fell from " in text]


def test_edges_lost_at_the_second_change_raise_an_alarm():
    few = batch(600, 200, near=600)
    clf = begun().learn(**few | {"labels": None, "edges": few["edges"][::6]})
    assert [one["kind"] for one in alarms(clf)] == ["degrees"]


def test_a_class_that_falls_raises_an_alarm_with_a_remedy_that_fits():
    quick = {"epochs": 40, "channels": 8}
    kept = fallen("replay", buffer_size=30, settings=quick)
    assert kept
    assert all("larger buffer" in text for text in kept)
    none = fallen("finetune", settings=quick)
    assert none
    assert not any("buffer" in text for text in none)


def test_few_nodes_are_not_compared():
    clf = begun(validation_fraction=0.01)  # four judges, in three classes
    later = batch(600, 40)
    clf.learn(**later | {"x": later["x"] + 9, "labels": None})
    assert clf.history_[-1]["watch"] == []


def test_a_class_that_is_new_is_no_drift():
    clf, later = begun(), batch(600, 200)
    clf.learn(**later | {"x": later["x"] + 3, "labels": ["new"] * 200})
    assert [one for one in alarms(clf) if one["kind"] in {"features", "confidence"}] == []


def test_random_batches_raise_no_more_alarms_than_stated():
    rng, count, raised = np.random.default_rng(0), 40, 0
    x, ends = rng.normal(size=(2600, 30)), rng.integers(0, 2600, (2, 8000))
    label, since = (x[:, 0] > 0).astype(int), ends.max(axis=0)
    clf = ContinualNodeClassifier("finetune", settings={"epochs": 5, "channels": 4})
    clf.learn(range(600), x[:600], ends[:, since < 600].T, label[:600])
    for start in range(600, 2600, 50):
        rows = np.arange(start, start + 50)
        clf.learn(rows, x[rows], ends[:, (since >= start) & (since < start + 50)].T)
        raised += any(one["alarm"] for one in clf.history_[-1]["watch"])
    # More are rarer than one in ten thousand at the stated rate.
    assert raised <= stats.binom.isf(1e-4, count, FALSE_ALARMS)


def test_what_was_found_is_kept(tmp_path):
    clf, later = begun(), batch(600, 200)
    clf.learn(**later | {"x": later["x"] + 1, "labels": None}).save(tmp_path / "state")
    again = ContinualNodeClassifier.load(tmp_path / "state")
    assert alarms(again) == alarms(clf) != []
