"""States that 0.1.0 wrote: converted, they predict what they predicted then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax

from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.convert import convert_state
from evergraph.estimator.transaction import resume

CPU = torch.device("cpu")
RECORDED = Path(__file__).parents[1] / "data" / "v0.1.0" / "states"
EXPECTED = json.loads((RECORDED / "expected.json").read_text())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A state of 0.1.0, to be spoilt."""
    shutil.copytree(RECORDED / "dslr", tmp_path / "old")
    return tmp_path / "old"


@pytest.mark.parametrize("name", EXPECTED)
def test_converted_state_predicts_as_recorded(name: str, tmp_path: Path):
    told = convert_state(RECORDED / name, tmp_path / "new")
    if "evergraph resume" in told:
        told = resume(tmp_path / "new", device=CPU)[1]
        assert "is learned" in told
    assert ("learned" in told) == name.endswith("pending")
    clf = ContinualNodeClassifier.load(tmp_path / "new", device="cpu")
    expected = EXPECTED[name]
    assert [str(name) for name in clf.predict()] == expected["predictions"]
    # The scatters that 0.1.0 kept class by class are added up, which moves scores a little.
    close = 0.02 if name.startswith("analytic") else 1e-3
    # What is learned today is calibrated.
    logits = np.log(clf.predict_proba()) * clf.history_[-1]["temperature"]
    highest = softmax(logits, axis=1).max(axis=1)
    assert highest == pytest.approx(expected["probabilities"], abs=close)
    assert [str(name) for name in clf.classes_] == expected["classes"]
    assert (len(clf.ids_), len(clf.history_)) == (expected["ids"], expected["history"])


def test_old_state_is_refused_with_the_command_and_converted_in_place(old: Path):
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    for use in (ContinualNodeClassifier.load, lambda path: resume(path, device=CPU)):
        with pytest.raises(InputError, match="evergraph convert"):
            use(old)
    with pytest.raises(InputError, match="evergraph convert"):
        ContinualNodeClassifier().save(old)
    number = json.loads((old / "current.json").read_text())["generation"]
    assert f"Version {number}" in convert_state(old, old)
    assert ContinualNodeClassifier.load(old).history_
    assert {path: path.read_bytes() for path in before} == before  # nothing is taken away
    with pytest.raises(InputError, match="without a state"):
        convert_state(old, old)


def test_what_is_no_old_state_is_a_sentence(old: Path, tmp_path: Path):
    with pytest.raises(InputError, match="Expected a state of 0"):
        convert_state(tmp_path, tmp_path / "new")
    file = next(old.rglob("graph.safetensors"))
    for path in old.rglob("graph.safetensors"):
        file = path
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="it is damaged"):
        convert_state(old, tmp_path / "new")
    assert not (tmp_path / "new").exists()
