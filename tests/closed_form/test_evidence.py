"""Evidence: costs add up, the cheapest value is taken."""

from __future__ import annotations

import pytest

from evergraph.closed_form import Evidence


def test_evidence_adds_up_and_takes_the_cheapest():
    evidence = Evidence()
    evidence.add({0.1: 2.0, 0.5: 1.0}, 10)
    assert evidence.best == 0.5
    evidence.add({0.1: 0.0, 0.5: 1.0}, 20)
    assert evidence.costs == pytest.approx({0.1: 20.0, 0.5: 30.0})
    assert evidence.best == 0.1
    assert evidence.told() == pytest.approx({"0.1": 20.0, "0.5": 30.0})
    assert evidence.memory_bytes() == 16


def test_evidence_takes_the_first_of_equals():
    evidence = Evidence()
    evidence.add({0.0: 1.0, 0.2: 1.0}, 3)
    assert evidence.best == 0.0


def test_evidence_is_restored():
    evidence, other = Evidence(), Evidence()
    evidence.add({1e-4: 1 / 3, 0.35: 2.0}, 1)
    other.load_state_dict(evidence.state_dict())
    assert other.costs == evidence.costs


def test_evidence_fades():
    evidence = Evidence()
    evidence.add({0.1: 2.0, 0.5: 1.0}, 10)
    evidence.fade(0.5)
    evidence.add({0.1: 0.0, 0.5: 1.0}, 10)
    assert evidence.costs == {0.1: 10.0, 0.5: 15.0}
