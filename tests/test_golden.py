"""Same seeds, same results: trajectories, predictions, hashes and folders that 0.1.0 recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import evergraph
import golden
from evergraph.config import Variant, resolve, settable_keys
from evergraph.events import Epoch
from evergraph.lab.folder import RunFolder

RECORDED = Path(__file__).parent / "data" / "v0.1.0"
TRAJECTORIES = json.loads((RECORDED / "trajectories.json").read_text())
ESTIMATORS = json.loads((RECORDED / "estimators.json").read_text())
HASHES = json.loads((RECORDED / "hashes.json").read_text())


@pytest.mark.parametrize("name", TRAJECTORIES)
def test_run_follows_the_recorded_trajectory(name):
    losses = []

    def note(event):
        if isinstance(event, Epoch):
            losses.append(float(event.loss))

    method = golden.cases()[name]
    known = settable_keys(Variant.parse(method).name)
    settings = {key: value for key, value in golden.SETTINGS.items() if key in known}
    settings |= golden.former(method)
    results = evergraph.run(golden.DATASET, method, settings=settings, on_event=note, device="cpu")
    recorded = TRAJECTORIES[name]
    assert losses == pytest.approx(recorded["losses"], rel=1e-3, abs=1e-6)
    for row, before in zip(results["accuracy_matrix"], recorded["accuracy_matrix"], strict=True):
        assert row == pytest.approx(before, abs=0.01)
    for field in ("memory_bytes", "config_hash", "variant_hash"):
        assert results[field] == recorded[field]


@pytest.mark.parametrize("method", ESTIMATORS)
def test_estimator_follows_the_recorded_predictions(method):
    recorded = ESTIMATORS[method]
    keeps = method in {"replay", "er-gnn", "gem", "dslr", "rclg", "continual-gnn", "analytic"}
    clf = evergraph.ContinualNodeClassifier(
        method,
        settings=recorded["settings"] | golden.former(method),
        seed=3,
        device="cpu",
        buffer_size=20 if keeps else None,
        validation_fraction=0.2,
    )
    for (kind, arguments), before in zip(golden.changes(), recorded["steps"], strict=True):
        getattr(clf, kind)(**arguments)
        assert [str(name) for name in clf.predict()] == before["predictions"]
        highest = clf.predict_proba().max(axis=1)
        assert highest == pytest.approx(before["probabilities"], abs=1e-3)
        told = clf.history_[-1]
        for field in ("trained_on", "held_out", "accuracy"):
            assert told[field] == before[field]
        if (kind, method) != ("remove", "analytic"):  # its mean row goes when it is next used
            assert told["memory_bytes"] == before["memory_bytes"]


@pytest.mark.parametrize("case", HASHES)
def test_resolved_settings_have_the_recorded_hash(case):
    dataset, method, presets = case.split()
    shared = golden.former(method)
    config = resolve(Variant.parse_dataset(dataset), Variant.parse(method), 0, shared, presets)
    assert config.hash == HASHES[case]


@pytest.mark.parametrize(
    "folder", sorted((RECORDED / "grid").glob("*/*/seed-0")), ids=lambda p: p.parent.name
)
def test_recorded_run_is_known_by_its_hash(folder):
    results = json.loads((folder / "results.json").read_text())
    assert RunFolder(folder).config().hash == results["config_hash"]
