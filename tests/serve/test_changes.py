"""Teaching a served state over HTTP: order, idempotency, a full queue, refusals, and SIGKILL."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from evergraph import ContinualNodeClassifier
from evergraph.estimator.store import Store
from evergraph.serve.app import Options
from evergraph.serve.queue import Queue
from served import Answer, Ask, more, request, serving, taught, wait_for


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Ask]:
    with serving(Options(folder, device="cpu")) as found:
        yield found


def teach(client: Ask, body: Any, key: str | None = None) -> Answer:
    return client("POST", "/changes", body, headers={"Idempotency-Key": key} if key else None)


def ended(client: Ask, number: int) -> Any:
    """Waits for the end of a change."""

    def look() -> Any:
        told = client("GET", f"/changes/{number}").body
        return told if told["status"] in {"done", "refused"} else None

    return wait_for(look)


def test_changes_are_learned_in_order_as_the_estimator_learns_them(client: Ask, learned: Path):
    clf = ContinualNodeClassifier.load(learned, device="cpu")
    for number in range(3):  # each needs the one before
        at = f"new-{number - 1}" if number else "n0"
        answer = teach(client, taught(number, at))
        assert (answer.status, answer.body["status"]) == (202, "queued")
        assert answer.headers["location"] == f"/changes/{number + 1}"
        clf.learn(**more(number, at))
    told = ended(client, 3)
    assert (told["status"], told["version"]) == ("done", 3)
    wait_for(lambda: client("GET", "/ready").body["version"] == 3)
    found = client("POST", "/predict", {"ids": ["new-2", "n5"], "top": 3}).body["nodes"]
    names, proba = clf.predict_top(["new-2", "n5"], 3)
    assert [[one["label"] for one in node["top"]] for node in found] == names.tolist()
    assert found[0]["probability"] == pytest.approx(float(proba[0, 0]))
    assert client("GET", "/changes/99").status == 404
    lines = client("GET", "/metrics").body
    assert "evergraph_changes_done 3.0" in lines
    assert "evergraph_version 3.0" in lines


def test_same_key_is_one_change(client: Ask, folder: Path):
    before = Store(folder).numbers()[-1]
    first = teach(client, taught(10), "release 1").body["number"]
    assert teach(client, taught(10), "release 1").body["number"] == first
    assert teach(client, taught(11), "release 1").status == 422  # another body
    assert ended(client, first)["version"] == before + 1
    assert teach(client, taught(10), "release 1").body["status"] == "done"
    assert teach(client, taught(11), "x" * 201).status == 422
    assert Store(folder).numbers()[-1] == before + 1


def test_updates_and_removals_are_learned(client: Ask, folder: Path):
    body = {"updated": ["n1"], "updated_x": [[9.0] + [0.0] * 7], "removed": ["n2"]}
    body |= {"removed_edges": [["n5", "n8"]], "labels": [["n0", "class 1"]]}
    number = teach(client, body).body["number"]
    told = ended(client, number)
    assert told["status"] == "done"
    wait_for(lambda: client("GET", "/ready").body["version"] == told["version"])
    assert client("GET", "/nodes/n2").status == 404
    assert ContinualNodeClassifier.load(folder).history_[-1]["removed_nodes"] == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "Expected a change"),
        ({"ids": ["n1"], "x": [[0] * 8]}, "n1"),
        ({"ids": ["a"]}, "'x'"),
        ({"ids": ["a"], "x": [[0] * 7]}, "8"),
        ({"edges": [["n1", "nobody"]]}, "nobody"),
        ({"edges": [["n1"]]}, "'edges' as pairs"),
        ({"labels": [["nobody", "class 1"]]}, "nobody"),
        ({"labels": [["n1", "a"], ["n1", "b"]]}, "without repetition"),
        ({"removed": ["nobody"]}, "nobody"),
        ({"updated": ["n1"]}, "updated_x"),
        ({"nodes": []}, "Unknown key"),
        (b"[]", "JSON object"),
        (b"{", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b'{"ids": ["a"], "x": [[NaN, 0, 0, 0, 0, 0, 0, 0]]}', "JSON"),
    ],
)
def test_wrong_changes_are_refused_and_nothing_is_stored(
    client: Ask, folder: Path, body: Any, words: str
):
    before = Queue(folder).state()
    answer = teach(client, body)
    assert answer.status == 422, answer.body
    assert words in answer.body["error"]
    assert Queue(folder).state() == before


def test_full_queue_asks_for_patience(state: Path):
    other = ExitStack()
    other.enter_context(Store(state).writing())  # the worker waits for it
    with serving(Options(state, device="cpu", most_waiting=2)) as client:
        assert [teach(client, taught(number)).status for number in range(2)] == [202, 202]
        answer = teach(client, taught(2))
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        other.close()
        assert ended(client, 2)["status"] == "done"
        assert teach(client, taught(2)).status == 202


def test_read_only_server_learns_nothing(state: Path):
    with serving(Options(state, read_only=True)) as client:
        assert teach(client, taught(0)).status == 403
        assert client("GET", "/changes/1").status == 403
    assert not (state / "queue.sqlite").exists()


@contextmanager
def process(state: Path) -> Iterator[tuple[subprocess.Popen[str], Ask]]:
    """Serves a state with the command."""
    words = ["serve", str(state), "--port", "0", "--device", "cpu"]
    with (state.parent / "log.txt").open("a") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "evergraph", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline().split("http://127.0.0.1:")[1].split()[0])

        def ask(*given: Any, **named: Any) -> Answer:
            return request(port, *given, **named)

        yield server, ask
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def kill_and_check(state: Path, delays: list[float], count: int) -> None:
    """Teaches and asks, kills the server at all moments, and looks at what was learned."""
    reference = ContinualNodeClassifier.load(state, device="cpu")
    accepted: dict[str, int] = {}
    seen: set[tuple[int, float]] = set()

    def drive(ask: Ask, until: int) -> None:
        for number in range(until):
            key = f"change {number}"
            if key not in accepted:
                answer = teach(ask, taught(number), key)
                assert answer.status in {202, 503}
                if answer.status == 503:
                    time.sleep(0.05)
                    return
                accepted[key] = answer.body["number"]
            told = ask("POST", "/predict", {"ids": ["n4", "n11"]}).body
            seen.update((told["version"], round(node["probability"], 9)) for node in told["nodes"])

    for at, delay in enumerate(delays):
        with process(state) as (server, ask):
            wait_for(lambda ask=ask: ready(ask))
            killer = threading.Thread(target=kill, args=(server.pid, state, delay))
            killer.start()
            with suppress(OSError, http.client.HTTPException):
                while True:
                    drive(ask, count * (at + 1) // len(delays))
            killer.join()
    with process(state) as (server, ask):
        wait_for(lambda: ready(ask))
        while len(accepted) < count:
            drive(ask, count)
        assert all(ended(ask, number)["status"] == "done" for number in accepted.values())
        server.terminate()
        assert server.wait(timeout=30) in {0, 143, -15}
    after = ContinualNodeClassifier.load(state, device="cpu")
    history = after.history_[1:]
    order = sorted(accepted, key=lambda key: accepted[key])
    assert [entry["report"]["change"] for entry in history] == order  # each once
    expected = {}
    for version in range(count + 1):
        if version:
            reference.learn(**more(int(order[version - 1].split()[1])))
        proba = reference.predict_proba(["n4", "n11"]).max(axis=1)
        expected[version] = {round(float(p), 9) for p in proba}
    assert all(p in expected[version] for version, p in seen)
    assert after.predict_proba().tolist() == reference.predict_proba().tolist()


def kill(process: int, state: Path, delay: float) -> None:
    """Kills a server some time after its worker has learned something."""
    before, end = Store(state).numbers()[-1], time.monotonic() + 20
    while Store(state).numbers()[-1] == before and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(delay)
    os.kill(process, signal.SIGKILL)


def ready(ask: Ask) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return ask("GET", "/ready").status == 200
    return False


def test_kills_lose_nothing_and_learn_nothing_twice(state: Path):
    kill_and_check(state, [0.25], 12)


@pytest.mark.slow
def test_thirty_kills_lose_nothing_and_learn_nothing_twice(state: Path):
    kill_and_check(state, [0.02 * at for at in range(30)], 240)
