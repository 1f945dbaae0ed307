"""The worker is stopped at statements to SQLite: whatever was accepted is learned exactly once."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from batches import contents
from evergraph import ContinualNodeClassifier
from evergraph.estimator.store import Store
from evergraph.estimator.transaction import load_state
from evergraph.serve.queue import Full, Queue
from evergraph.serve.worker import MOST_DEATHS, Learner, Worker
from served import taught


class Killed(BaseException):
    """The process is no more."""


@pytest.fixture(scope="module")
def begun(folder: Path) -> Path:
    """A state with three changes that wait; the second is wrong once the first is learned."""
    queue = Queue(folder)
    for key, number in (("first", 0), ("repeated", 0), ("second", 1)):
        queue.add(key, "json", json.dumps(taught(number)).encode())
    return folder


def learn_all(place: Path) -> None:
    """Does what the worker does, until nothing waits."""
    store = Store(place)
    with store.writing():
        learner = Learner(store, Queue(place), "cpu", *load_state(place))
        while learner.step():
            pass


def statuses(place: Path) -> list[tuple[Any, Any]]:
    rows = [Queue(place).get(number) for number in (1, 2, 3)]
    return [(row["status"], row["version"]) for row in rows if row is not None]


def stopping(at: int) -> tuple[type[sqlite3.Connection], list[int]]:
    """Makes connections that count statements, and stop everything at one of them."""
    count = [0]

    class Stopping(sqlite3.Connection):
        def execute(self, *words: Any) -> sqlite3.Cursor:
            count[0] += 1
            if count[0] > at:
                raise Killed
            return super().execute(*words)

    return Stopping, count


def test_changes_are_learned_exactly_once_wherever_the_worker_stops(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    connect = sqlite3.connect

    def run(place: Path, at: int) -> int:
        shutil.copytree(begun, place)
        kind, count = stopping(at)
        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(sqlite3, "connect", lambda *w, **n: connect(*w, **n, factory=kind))
            learn_all(place)
        return count[0]

    whole = run(tmp_path / "whole", 1 << 30)
    expected, ends = contents(tmp_path / "whole"), [("done", 1), ("refused", None), ("done", 2)]
    assert statuses(tmp_path / "whole") == ends
    noted_late = 0
    for at in range(0, whole, max(1, whole // 20)):
        place = tmp_path / f"stopped-{at}"
        run(place, at)
        made, noted = Store(place).numbers()[-1], sum(s == "done" for s, _ in statuses(place))
        noted_late += made > noted  # the moment that matters most
        learn_all(place)
        assert statuses(place) == ends
        history = ContinualNodeClassifier.load(place, device="cpu").history_[1:]
        assert [entry["report"]["change"] for entry in history] == ["first", "second"]
        assert contents(place) == expected
        shutil.rmtree(place)
    assert noted_late > 0


def test_change_that_ends_the_worker_again_and_again_is_refused(begun: Path, tmp_path: Path):
    shutil.copytree(begun, tmp_path / "state")
    queue = Queue(tmp_path / "state")
    worker = Worker(tmp_path / "state", "cpu", queue)
    queue.begin(1)
    for _ in range(MOST_DEATHS):
        assert queue.get(1)["status"] == "learning"
        worker.count_death()
    assert queue.get(1)["status"] == "refused"
    assert "split it" in queue.get(1)["sentence"]
    assert [number for number, *_ in queue.waiting()] == [2, 3]


def test_queue_is_bounded_and_refuses_what_is_no_queue(tmp_path: Path):
    queue = Queue(tmp_path, most=2)
    assert [queue.add(key, "json", b"{}") for key in "ab"] == [1, 2]
    with pytest.raises(Full):
        queue.add("c", "json", b"{}")
    (tmp_path / "other").mkdir()
    with sqlite3.connect(tmp_path / "other" / "queue.sqlite") as db:
        db.execute("CREATE TABLE mine (a)")
    with pytest.raises(ValueError, match="move it away"):
        Queue(tmp_path / "other")
    (tmp_path / "other" / "queue.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(ValueError, match="move it away"):
        Queue(tmp_path / "other")
