"""Asks a served state from many connections: answers a second, and how long they take.

Usage: ``python benchmarks/bench_serve.py STATE [--seconds 10] [--clients 8] [--changes FILE]``. The
file holds a body of ``POST /changes`` per line; they are sent from the beginning and learned
meanwhile.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

from evergraph import Client
from evergraph.estimator.transaction import load_state


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("state", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--changes", type=Path)
    given = parser.parse_args()
    names = load_state(given.state)[0].graph.names.take()
    begun = time.monotonic()
    words = [sys.executable, "-m", "evergraph", "serve", str(given.state), "--port", "0"]
    words += [] if given.changes else ["--read-only"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().split("at ")[1].split()[0]
            with Client(url) as client:
                client.version()
                ready = time.monotonic() - begun
                numbers = []
                if given.changes:
                    for line in given.changes.read_text().splitlines():
                        numbers.append(client.teach(**json.loads(line)))
                taken, failed = load(url, names, given.clients, given.seconds)
                ends = [client.change(number)["status"] for number in numbers]
        finally:
            server.terminate()
    taken.sort()
    at = {share: 1000 * taken[int(share * (len(taken) - 1))] for share in (0.5, 0.99, 1.0)}
    print(
        f"ready after {ready:.1f} s; {len(taken) / given.seconds:.0f} answers a second, {failed} "
        f"failed; median {at[0.5]:.1f} ms, p99 {at[0.99]:.1f} ms, worst {at[1.0]:.1f} ms; "
        f"changes: {ends or 'none'}"
    )


def load(url: str, names: list[object], clients: int, seconds: float) -> tuple[list[float], int]:
    """Asks for single nodes, each client as fast as it is answered."""
    place, taken, failed = url.removeprefix("http://"), list[float](), [0]
    end = time.monotonic() + seconds

    def ask(seed: int) -> None:
        random, connection = Random(seed), http.client.HTTPConnection(place, timeout=30)
        while time.monotonic() < end:
            body = json.dumps({"ids": [random.choice(names)]})
            begun = time.perf_counter()
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            taken.append(time.perf_counter() - begun)
            failed[0] += answer.status != 200

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken, failed[0]


if __name__ == "__main__":
    main()
