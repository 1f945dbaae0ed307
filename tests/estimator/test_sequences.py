"""Random changes: limits on what is read, and saving in between, leave the predictions alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batches import quick
from evergraph.estimator import ContinualNodeClassifier, state, step
from evergraph.methods import analytic

FEATURES, CLASSES, STEPS = 6, 3, 7
Change = tuple[str, dict[str, Any]]
METHODS: dict[str, dict[str, Any]] = {
    # Scores that are not propagated; every node is in the sample.
    "analytic": {"hops": "0+1+2", "teleport": 1, "mean_field": False},
    "replay": {"dropout": 0.0, "attention": "plain", "weight_decay": 0.0},
    "dslr+": {"dropout": 0.0, "attention": "plain", "weight_decay": 0.0}
    | {"structure": "none", "distill_on": "training"},
}


def nodes(rng: np.random.Generator, ids: list[int], known: list[int]) -> dict[str, Any]:
    """New nodes, most of them joined to others and labelled."""
    labels = {node: int(node % CLASSES) for node in ids if rng.random() < 0.7}
    x = rng.normal(size=(len(ids), FEATURES)).astype(np.float32)
    x[np.arange(len(ids)), np.array(ids) % CLASSES] += 2
    others = [*known, *ids]
    edges = [(a, int(rng.choice(others))) for a in ids for _ in range(2)]
    return {"ids": ids, "x": x, "edges": [pair for pair in edges if pair[0] != pair[1]]} | {
        "labels": labels
    }


def sequence(seed: int) -> Iterator[Change]:
    """Draws changes of every kind; the first brings all classes."""
    rng = np.random.default_rng(seed)
    known = list(range(15))
    first = nodes(rng, known, [])
    first["labels"] |= {node: node % CLASSES for node in range(6)}
    yield "learn", first
    following, removed = 15, set[int]()
    for _ in range(STEPS):
        kind = rng.choice(["grow", "grow", "grow", "join", "renew", "label", "remove"])
        some = rng.choice(known, size=2, replace=False).tolist()
        if kind == "grow":
            ids = list(range(following, following + int(rng.integers(2, 6))))
            following += len(ids)
            yield "learn", nodes(rng, ids, known)
            known += ids
        elif kind == "join":
            yield "learn", {"ids": [], "edges": [tuple(some)]}
        elif kind == "renew":
            x = rng.normal(size=(2, FEATURES)).astype(np.float32)
            yield "update", {"ids": some, "x": x}
        elif kind == "label":
            yield "update", {"ids": some, "labels": [node % CLASSES for node in some]}
        elif len(removed) < 6:
            yield "remove", {"ids": some}
            known = [node for node in known if node not in some]
            removed |= set(some)


def after(method: str, seed: int, folder: Path | None = None) -> ContinualNodeClassifier:
    """Makes all changes of a sequence, saving and loading after each if there is a folder."""
    clf = quick(method, settings=METHODS[method], seed=seed)
    for kind, change in sequence(seed):
        getattr(clf, kind)(**change)
        if folder is not None:
            clf = ContinualNodeClassifier.load(clf.save(folder) and folder, device="cpu")
    return clf


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("method", METHODS)
def test_what_is_read_and_saving_in_between_change_no_prediction(
    method: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = after(method, seed)
    expected = whole.predict_proba()
    for module, name in ((step, "LARGE"), (state, "SMALL"), (analytic, "WHOLE")):
        monkeypatch.setattr(module, name, 3)
    monkeypatch.setattr("evergraph.estimator.graph.FEW_EDGES", 0)
    near, saved = after(method, seed), after(method, seed, tmp_path / "state")
    assert near.ids_ == saved.ids_ == whole.ids_
    assert np.allclose(near.predict_proba(), expected, atol=1e-4)
    one_by_one = [saved.predict_proba([node])[0] for node in saved.ids_]
    assert np.allclose(one_by_one, near.predict_proba(), atol=1e-6)
    local = [entry["report"].get("local") for entry in near.history_ if entry["trained_on"]]
    assert all(local) or method != "analytic"
