"""Asks a served state from many connections: answers a second, and how long they take.

    python benchmarks/bench_serve.py STATE                # while nothing is learned
    python benchmarks/bench_serve.py STATE --learn        # while a release is learned

``STATE`` is a folder with the graph of a Linux distribution up to its last release but one; it is
made if it is not there (``ubuntu-packages.npz`` below the data folder). ``--learn`` teaches the
last release to a copy, from the beginning of the measurement on, which lasts until it is learned.
Clients ask for single nodes as fast as they are answered, or ``--rate`` times a second in all.
Everything is on this machine, server included. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from growth import Growing, packages

from evergraph import Client, ContinualNodeClassifier


def batch(graph: Growing, release: int) -> dict[str, Any]:
    """Returns what is new in a release; 30 % of the labels are kept back."""
    new, kept = graph.time == release, np.random.default_rng(0).random(len(graph.y)) < 0.7
    names = graph.names[graph.edges[:, graph.edge_time == release]]
    labels = zip(graph.y[new].tolist(), kept[new].tolist(), strict=True)
    return {
        "ids": graph.names[new].tolist(),
        "x": graph.x[new],
        "edges": list(zip(*names.tolist(), strict=True)),
        "labels": [label if known else None for label, known in labels],
    }


def as_body(part: dict[str, Any]) -> dict[str, Any]:
    """Writes a batch as the body of a change: rows name the features that are not zero."""
    x = part["x"].tocsr()
    rows = [
        dict(zip(map(str, x.indices[a:b].tolist()), x.data[a:b].round(4).tolist(), strict=True))
        for a, b in zip(x.indptr[:-1], x.indptr[1:], strict=True)
    ]
    labels = zip(part["ids"], part["labels"], strict=True)
    return {**part, "x": rows, "labels": [pair for pair in labels if pair[1] is not None]}


def make(folder: Path) -> None:
    graph = packages()
    clf = ContinualNodeClassifier("analytic", device="cpu")
    for release in range(int(graph.time.max())):
        clf.learn(**batch(graph, release))
    clf.save(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("state", type=Path)
    parser.add_argument("--learn", action="store_true")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0, help="questions a second, 0: no limit")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="file for the log")
    given = parser.parse_args()
    if not given.state.exists():
        make(given.state)
    names = packages().names[packages().time == 0].tolist()
    with tempfile.TemporaryDirectory() as folder:
        place, told = given.state, {}
        if given.learn:
            place = Path(folder) / "state"
            shutil.copytree(given.state, place)
        words = [sys.executable, "-m", "evergraph", "serve", str(place), "--port", "0"]
        words += [] if given.learn else ["--read-only"]
        begun = time.monotonic()
        with (
            given.log.open("w") as log,
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True) as server,
        ):
            try:
                assert server.stdout is not None
                url = server.stdout.readline().split("at ")[1].split()[0]
                told = measure(url, names, given, begun)
                told["server_gb"] = peak_gb(server.pid)
            finally:
                server.terminate()
    print(json.dumps({**told, "load": [round(part, 1) for part in os.getloadavg()]}))


def measure(url: str, names: list[str], given: Any, begun: float) -> dict[str, Any]:
    with Client(url) as client:
        client.version()
        told: dict[str, Any] = {"ready_s": round(time.monotonic() - begun, 2)}
        client.predict(names[:1])
        told["first_answer_s"] = round(time.monotonic() - begun, 2)
        ended = threading.Event()
        crowd = Crowd(url, names, given.rate / given.clients)
        threads = [
            threading.Thread(target=crowd.ask, args=(seed, ended)) for seed in range(given.clients)
        ]
        if given.learn:
            body = as_body(batch(packages(), int(packages().time.max())))
        started = time.monotonic()
        for thread in threads:
            thread.start()
        if given.learn:
            number = client.teach(**body)
            told["accepted_s"] = round(time.monotonic() - started, 2)
            version = client.wait(number)["version"]
            told["learned_s"] = round(time.monotonic() - started, 2)
            while client.version() < version:
                time.sleep(0.1)
            told["taken_over_s"] = round(time.monotonic() - started, 2)
        else:
            time.sleep(given.seconds)
        ended.set()
        for thread in threads:
            thread.join()
        taken = 1000 * np.array(crowd.taken)
        told["a_second"] = round(len(taken) / (time.monotonic() - started), 1)
        for name, share in (("median_ms", 50), ("p99_ms", 99), ("worst_ms", 100)):
            told[name] = round(float(np.percentile(taken, share)), 2)
        return {**told, "failed": crowd.failed}


class Crowd:
    """Clients that ask for single nodes, each on a connection of its own."""

    def __init__(self, url: str, names: list[str], rate: float) -> None:
        self.place, self.names, self.rate = url.removeprefix("http://"), names, rate
        self.taken: list[float] = []
        self.failed = 0

    def ask(self, seed: int, ended: threading.Event) -> None:
        random, connection = Random(seed), http.client.HTTPConnection(self.place, timeout=60)
        following = time.perf_counter() + random.random() / (self.rate or 1e9)
        while not ended.is_set():
            if self.rate:  # late questions are not left out, nor is the time that they waited
                time.sleep(max(0.0, following - time.perf_counter()))
            begun = following if self.rate else time.perf_counter()
            following += 1 / self.rate if self.rate else 0
            body = json.dumps({"ids": [random.choice(self.names)]})
            try:
                connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                self.failed += answer.status != 200
            except OSError:
                self.failed += 1
                connection.close()
            self.taken.append(time.perf_counter() - begun)


def peak_gb(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(round(int(line.split()[1]) / 1e6, 2) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
