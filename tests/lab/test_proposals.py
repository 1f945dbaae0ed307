"""Proposals: the start first, no point twice, the whole of a small grid, the same every time."""

from __future__ import annotations

import builtins

import pytest

from evergraph.errors import InputError
from evergraph.lab.proposals import Proposals

SPACE = {"lam": (1.0, 10.0, 100.0, 1000.0), "kind": ("a", "b", "c")}
START = {"lam": 100.0, "kind": "b"}


def play(proposals: Proposals, count: int, batch: int = 4) -> list[tuple[float, str]]:
    """Asks in batches; the highest λ of kind c is best."""
    tried = []
    while len(tried) < count:
        points = proposals.ask(min(batch, count - len(tried)))
        if not points:
            break
        for point in points:
            tried.append(tuple(point.values()))
            value = SPACE["lam"].index(point["lam"]) + 10.0 * (point["kind"] == "c")
            proposals.tell(point, None if point["kind"] == "a" else value)
    return tried


def test_proposals_begin_with_the_start_and_repeat_nothing():
    tried = play(Proposals(SPACE, START), 10)
    assert tried[0] == (100.0, "b")
    assert len(set(tried)) == len(tried) == 10


def test_proposals_of_a_small_grid_are_all_of_it():
    tried = play(Proposals(SPACE, START), 50)
    assert sorted(tried) == sorted((lam, kind) for lam in SPACE["lam"] for kind in SPACE["kind"])
    nothing = Proposals({}, {})
    assert (nothing.ask(5), nothing.ask(5)) == ([{}], [])


def test_proposals_are_the_same_every_time_and_learn():
    first, again = (play(Proposals(SPACE, START), 10) for _ in range(2))
    assert first == again
    space = {"lam": tuple(range(100))}
    proposals = Proposals(space, {"lam": 0})
    found = []
    for _ in range(10):
        for point in proposals.ask(4):
            found.append(point["lam"])
            proposals.tell(point, -abs(point["lam"] - 77.0))
    # By chance, 21 of a hundred numbers are this near to 77: 8.4 of forty draws.
    assert sum(abs(lam - 77) <= 10 for lam in found) > 12


def test_proposals_without_optuna_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("optuna"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"'optuna'.*pip install 'evergraph\[tune\]'"):
        Proposals(SPACE, START)
