"""Nodes that are not in the graph: predicted as if they were, and nothing is kept of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from batches import batches, quick, stored
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator import near as near_module
from evergraph.estimator import state as state_module
from evergraph.methods import METHODS
from evergraph.stream import Graph, Protocol, SparseRows, TaskStream

NEW = ["p", "q", "r"]
#: One node of many edges, a chain from it, and an edge between nodes that are known.
EDGES = [("p", "n0"), ("p", "n5"), ("p", "n41"), ("p", "q"), ("q", "p"), ("q", "n7"), ("r", "r")]
EDGES += [("n3", "n50"), ("p", "n0")]


def named(batch: dict[str, Any]) -> dict[str, Any]:
    return {
        "ids": [f"n{node}" for node in batch["ids"]],
        "x": batch["x"],
        "edges": [(f"n{a}", f"n{b}") for a, b in batch["edges"]],
        "labels": {f"n{node}": label for node, label in batch["labels"].items()},
    }


def learned(
    make_graph: Callable[..., Graph], method: str, *, sparse: bool = False, **given: Any
) -> tuple[ContinualNodeClassifier, Any]:
    """Learns a stream; returns the estimator and features of new nodes."""
    graph = make_graph(90, 6, sparse=sparse, num_features=20)
    stream = TaskStream(graph, Protocol(), seed=0)
    clf = quick(method, **given)
    for batch in batches(stream):
        clf.learn(**named(batch))
    x = stream.features.dense() if isinstance(stream.features, SparseRows) else stream.features
    return clf, x[[4, 40, 80]].numpy()[:, ::-1].copy()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_of_new_nodes_what_it_says_once_they_are_there(
    method: str, make_graph: Callable[..., Graph]
):
    clf, x = learned(make_graph, method, validation_fraction=0)
    before = stored(clf)
    proba, names, space = (
        ask(NEW, x=x, edges=EDGES) for ask in (clf.predict_proba, clf.predict, clf.transform)
    )
    assert stored(clf) == before
    assert clf._now().graph.edges.is_newest  # the next change finds its room
    clf.learn(NEW, x, EDGES)
    assert np.allclose(proba, clf.predict_proba(NEW), atol=1e-5)
    assert (names == clf.predict(NEW)).all()
    assert np.allclose(space, clf.transform(NEW), atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("replay", {"backbone": "gcn", "num_layers": 3}),
        ("replay", {"backbone": "sage", "num_layers": 1}),
        ("dslr", {"tau": 0.5, "num_neighbors": 3}),
        ("analytic", {"hops": "0", "teleport": 1, "mean_field": False}),
        ("analytic", {"hops": "0+1+2", "teleport": 1, "mean_field": False}),
        ("analytic", {"hops": "0+1+2", "teleport": 0.3, "mean_field": True}),
    ],
)
def test_new_nodes_are_predicted_whatever_the_reach(
    method: str, settings: dict[str, Any], sparse: bool, make_graph: Callable[..., Graph]
):
    clf, x = learned(make_graph, method, sparse=sparse, validation_fraction=0, settings=settings)
    if method == "dslr":
        assert clf._now().edits
    proba = clf.predict_proba(NEW, x, EDGES)
    alone = [clf.predict_proba([name], x[[at]]) for at, name in enumerate(NEW)]
    clf.learn(NEW, x, EDGES)
    assert np.allclose(proba, clf.predict_proba(NEW), atol=1e-5)
    assert not np.allclose(alone[0], proba[0], atol=1e-5) or settings.get("hops") == "0"
    if not settings.get("mean_field"):  # which hears of all nodes
        assert np.allclose(alone[2], proba[2], atol=1e-5)  # it has no edges


@pytest.mark.parametrize("method", ["analytic", "replay"])
def test_probabilities_on_a_large_graph_stay_until_something_is_learned(
    method: str, make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
):
    # All held-out nodes judge what is learned; nodes that come later are near few of them.
    settings = {"hops": "0+1", "teleport": 1, "mean_field": False} if method == "analytic" else {}
    clf, x = learned(make_graph, method, validation_fraction=0.3, settings=settings)
    monkeypatch.setattr(state_module, "SMALL", 0)
    monkeypatch.setattr(state_module, "MOST_JUDGED", 4)
    found = clf.predict_proba(NEW, x, EDGES)
    clf.learn(NEW, x, EDGES)
    assert np.allclose(found, clf.predict_proba(NEW), atol=1e-6)
    first, second = (entry["temperature"] for entry in clf.history_[-2:])
    assert first == second
    clf.update(NEW, labels=clf.predict(NEW).tolist())
    assert clf.history_[-1]["temperature"] != first


def test_a_saved_state_is_the_same_file_after_predictions(
    tmp_path: Path, make_graph: Callable[..., Graph]
):
    clf, x = learned(make_graph, "replay")
    clf.save(tmp_path / "state")

    def hashes() -> dict[str, str]:
        files = sorted((tmp_path / "state").iterdir())
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    before = hashes()
    opened = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    opened.predict(NEW, x, EDGES)
    opened.novelty(NEW, x, EDGES)
    assert hashes() == before
    assert stored(opened) == stored(clf)
    opened.learn(NEW, x, EDGES, [0, 1, 2]).save(tmp_path / "state")


def test_what_is_wrong_with_new_nodes_is_said(make_graph: Callable[..., Graph]):
    clf, x = learned(make_graph, "replay")
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((["n3"], x[:1]), "which is known"),
        ((["p"], x[:1], [("p", "nobody")]), "'nobody' in row 1"),
        ((["p"], x[:1, :3]), "20 columns"),
        ((["p"], x), r"\[1, d\]"),
        ((["p", "p"], x[:2]), "without repetition"),
        ((["p"], None, [("p", "n3")]), "Expected 'x' together with 'edges'"),
        ((["nobody"],), "known nodes"),
    ]
    for given, words in wrong:
        for ask in (clf.predict, clf.predict_proba, clf.novelty, clf.transform):
            with pytest.raises(InputError, match=words):
                ask(*given)
    for ask in (clf.predict, clf.predict_proba, clf.novelty, clf.transform):
        assert len(ask([], x[:0])) == len(ask([])) == 0


def test_top_classes_are_the_likeliest_in_order(make_graph: Callable[..., Graph]):
    clf, x = learned(make_graph, "analytic")
    proba = clf.predict_proba(NEW, x, EDGES)
    names, chances = clf.predict_top(NEW, 2, x, EDGES)
    assert names.shape == chances.shape == (3, 2)
    assert (names[:, 0] == clf.predict(NEW, x, EDGES)).all()
    assert (chances == np.sort(proba, axis=1)[:, :-3:-1]).all()
    assert clf.predict_top(k=99)[0].shape == (90, 6)
    with pytest.raises(InputError, match="'k'"):
        clf.predict_top(["n1"], 0)


@pytest.mark.parametrize(("near", "within"), [(2, 0.005), (3, 1e-6)])
def test_new_nodes_of_a_large_graph_hear_propagated_scores_from_near(
    near: int, within: float, monkeypatch: pytest.MonkeyPatch
):
    """Three steps around them are exact for rows of two hops; two are nearly so."""
    rng, n = np.random.default_rng(0), 600
    label = np.arange(n) * 4 // n
    x = rng.normal(size=(n, 6)) + np.eye(6)[label]
    ends = np.repeat(np.arange(n), 3)
    edges = np.stack([ends, (ends + rng.integers(1, 20, ends.size)) % n], axis=1)
    settings = {"teleport": 0.2, "mean_field": False, "hops": "0+1+2"}
    clf = ContinualNodeClassifier("analytic", settings=settings, device="cpu")
    clf.learn(range(n), x, edges, dict(zip(range(0, n, 3), label[::3].tolist(), strict=True)))
    given = ([900, 901], x[[5, 400]], [(900, 5), (900, 7), (901, 400), (901, 900)])
    whole, rows = clf._ask(*given)
    exact = whole.logits(torch.device("cpu"), rows).numpy()
    monkeypatch.setattr(state_module, "SMALL", 100)
    monkeypatch.setattr(near_module, "NEAR", near)
    monkeypatch.setattr(near_module, "CROWD", n + 2)
    clf._state = replace(clf._now())  # nothing is known of it
    state, _ = clf._ask(*given)
    found = state.logits(torch.device("cpu"), rows).numpy()
    assert state.known_logits is None  # the graph was not read as a whole
    assert np.abs(found - exact).max() <= within * np.ptp(exact)
    assert clf.predict(*given).tolist() == clf.classes_[exact.argmax(axis=1)].tolist()
