"""Novelty: unknown classes are found, known nodes are kept, and what is found can be labelled."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from batches import batches, quick
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier, novelty
from evergraph.methods import METHODS
from evergraph.stream import Graph, Protocol, TaskStream
from support import Command

#: Four classes apart from each other, of which two are learned.
CLASSES = ("a", "b", "c", "d")


def made(count: int, seed: int, names: tuple[str, ...] = CLASSES) -> dict[str, Any]:
    """Draws nodes of classes, joined within these."""
    rng = np.random.default_rng(seed)
    label = rng.integers(len(names), size=count)
    x = np.array([CLASSES.index(name) for name in names])[label, None] == np.arange(6)
    x = 2.0 * x + rng.normal(size=(count, 6)) * 0.7
    same = [np.flatnonzero(label == one) for one in range(len(names))]
    ends = [(at, int(rng.choice(same[label[at]]))) for at in range(count) for _ in range(2)]
    ids = [f"{seed}-{at}" for at in range(count)]
    edges = [(ids[a], ids[b]) for a, b in ends]
    return {"ids": ids, "x": x, "edges": edges, "labels": [names[one] for one in label]}


def grown(method: str = "analytic", *, novel: bool = True, **given: Any) -> ContinualNodeClassifier:
    """Learns two classes, then takes nodes in that nobody has labelled: of four, or of the two."""
    clf = quick(method, **given) if method != "analytic" else ContinualNodeClassifier(method)
    first = made(600, 1, CLASSES[:2])
    half = [name if at % 2 else None for at, name in enumerate(first["labels"])]
    clf.learn(**{**first, "labels": half})
    return clf.learn(**{**made(300, 2, CLASSES if novel else CLASSES[:2]), "labels": None})


@pytest.fixture(scope="module")
def found() -> ContinualNodeClassifier:
    return grown()


def truth(novel: bool = True) -> np.ndarray[Any, Any]:
    return np.array(made(300, 2, CLASSES if novel else CLASSES[:2])["labels"])


@pytest.mark.parametrize("method", ["analytic", "replay"])
def test_nodes_of_unknown_classes_are_more_novel(method: str):
    clf = grown(method, settings={"epochs": 30})
    scores = clf.novelty([f"2-{at}" for at in range(300)])
    assert roc_auc_score(np.isin(truth(), ["c", "d"]), scores) > 0.9
    assert 0 <= scores.min() <= scores.max() <= 1


def test_reject_refuses_unknown_classes_and_keeps_known_ones(found: ContinualNodeClassifier):
    ids = [f"2-{at}" for at in range(300)]
    names, new = found.predict(ids, reject=0.1), np.isin(truth(), ["c", "d"])
    refused = np.array([name is None for name in names])
    assert refused[new].mean() > 0.6
    assert refused[~new].mean() < 0.2
    assert (names[~refused] == found.predict(ids)[~refused]).all()
    fewer = np.array([name is None for name in found.predict(ids, reject=0.05)])
    assert (fewer <= refused).all()


def test_share_of_held_out_nodes_refused_is_what_was_asked_for(found: ContinualNodeClassifier):
    held = found._now().held_out.nodes.tolist()
    names = found.predict([found.ids_[row] for row in held], reject=0.2)
    share = np.mean([name is None for name in names])
    assert 0.1 < share <= 0.2


def test_unknown_nodes_are_grouped_by_class(found: ContinualNodeClassifier):
    table = found.novel_nodes()
    assert (np.diff(table["novelty"]) <= 0).all()
    known = dict(zip([f"2-{at}" for at in range(300)], truth(), strict=True))
    pairs = [(known[i], g) for i, g in zip(table["id"], table["group"], strict=True) if i in known]
    for group in (1, 2):
        names = [name for name, at in pairs if at == group]
        commonest = max(names.count(name) for name in names)
        assert commonest > 0.7 * len(names)


def test_diagnose_tells_of_nodes_that_fit_no_class(found: ContinualNodeClassifier):
    about = found.diagnose()
    assert about["novel"]["asked"] == 300
    assert about["novel"]["novel"] == sum(about["novel"]["groups"]) > 60
    assert any("of the last 300 nodes without a label fit no known" in w for w in about["warnings"])


def test_diagnose_is_silent_where_nothing_is_new():
    about = grown(novel=False).diagnose()
    assert about["novel"]["novel"] < 60
    assert not any("fit no known class" in warning for warning in about["warnings"])


def test_new_nodes_are_as_novel_as_once_they_are_there(found: ContinualNodeClassifier):
    x = np.eye(6)[[0, 2]] * 2.0
    unlike = found._now().graph.names.take()
    edges = [("u", unlike[0]), ("v", "2-0")]
    known, unknown = found.novelty(["u", "v"], x, edges)
    assert unknown > known + 0.2
    assert found.predict(["u", "v"], x, edges, reject=0.05).tolist()[1] is None


@pytest.mark.parametrize("method", METHODS)
def test_every_method_scores_novelty(
    method: str, make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(novelty, "TREES", 20)
    clf = quick(method)
    for batch in batches(TaskStream(make_graph(60, 6), Protocol(), seed=0)):
        clf.learn(**batch)
    scores = clf.novelty()
    assert scores.shape == (60,)
    assert np.isfinite(scores).all()
    with pytest.raises(InputError, match=r"Expected at least 99 held-out nodes to refuse 1 %"):
        clf.predict([0], reject=0.01)


def test_what_cannot_be_refused_is_said(make_graph: Callable[..., Graph]):
    clf = quick("analytic", validation_fraction=0)
    for batch in batches(TaskStream(make_graph(60, 6), Protocol(), seed=0)):
        clf.learn(**batch)
    with pytest.raises(InputError, match=r"held-out nodes to refuse 5 % \(got 0\)"):
        clf.predict([0], reject=0.05)
    with pytest.raises(InputError, match="'reject' between 0 and 1"):
        clf.predict([0], reject=2)
    assert clf.novelty([0]).shape == (1,)
    assert clf.diagnose()["novel"] is None


def test_command_predicts_new_nodes_and_lists_unknown_ones(
    tmp_path: Path, found: ContinualNodeClassifier, command: Command
):
    pytest.importorskip("pyarrow")
    state = tmp_path / "state"
    grown().save(state)
    digest = hashlib.sha256((state / "state.sqlite").read_bytes()).hexdigest()
    (tmp_path / "nodes.csv").write_text("id,f0,f1,f2,f3,f4,f5\nu,2,0,0,0,0,0\nv,0,0,2,0,0,0\n")
    (tmp_path / "edges.csv").write_text("source,target\nu,1-1\nv,2-0\nu,v\n")
    nodes, edges = (
        ("--nodes", str(tmp_path / "nodes.csv")),
        ("--edges", str(tmp_path / "edges.csv")),
    )
    out = tmp_path / "out.csv"
    assert command("predict", str(state), *nodes, *edges, "-o", str(out)).code == 0
    x, pairs = np.eye(6)[[0, 2]] * 2.0, [("u", "1-1"), ("v", "2-0"), ("u", "v")]
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == found.predict(["u", "v"], x, pairs).tolist()
    chances = [float(row["probability"]) for row in rows]
    assert np.allclose(chances, found.predict_proba(["u", "v"], x, pairs).max(axis=1), atol=1e-6)
    assert command("predict", str(state), "--reject", "0.05", "-o", str(out)).code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] or None for row in rows] == found.predict(reject=0.05).tolist()
    assert command("inspect", str(state), "--novel", str(out)).code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == found.novel_nodes()["id"]
    assert {row["group"] for row in rows} >= {"1", "2"}
    assert hashlib.sha256((state / "state.sqlite").read_bytes()).hexdigest() == digest
    wrong = command("predict", str(state), *edges, "-o", str(out))
    assert wrong.code == 2
    assert "got a mixture" in wrong.err
    (tmp_path / "edges.csv").write_text("source,target\nu,nobody\n")
    wrong = command("predict", str(state), *nodes, *edges, "-o", str(out))
    assert wrong.code == 2
    assert "'nobody' in row 1" in wrong.err
