"""``predict`` of one node that is not in an open state of many nodes.

    python benchmarks/bench_new_nodes.py --nodes 100000

A graph with 64 features, 10 classes and five edges per node, a twentieth of it labelled. Prints, by
method, the median time of a new node with five edges (fresh ids each time), by the clock and of a
CPU, what ``learn`` without labels and ``predict`` take for the same node, and how far the two
probabilities are apart.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from evergraph import ContinualNodeClassifier

LOCAL = {"teleport": 1, "mean_field": False}
SMALL = {"epochs": 5, "backbone": "gcn", "channels": 16, "heads": 2}
METHODS = {
    "replay": ("replay", SMALL),
    "dslr": ("dslr", {"epochs": 2, "link_epochs": 2, "channels": 16, "heads": 2}),
    "analytic, teleport=1": ("analytic", LOCAL),
    "analytic": ("analytic", {}),
}


def main() -> None:
    """Prints a line for every method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--only", choices=METHODS)
    parser.add_argument(
        "--signal", type=float, default=2, help="of the features; at 0.5 analytic propagates scores"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    n, rng = options.nodes, np.random.default_rng(0)
    label = rng.integers(10, size=n)
    x = rng.normal(size=(n, 64)).astype(np.float32)
    x[np.arange(n), label] += options.signal
    order = np.argsort(label, kind="stable")
    place = np.argsort(order)
    near = np.clip(place[:, None] + rng.integers(-500, 500, size=(n, 5)), 0, n - 1)
    edges = np.stack([np.repeat(np.arange(n), 5), order[near].ravel()], axis=1)
    labelled = rng.choice(n, n // 20, replace=False)
    known = dict(zip(labelled.tolist(), label[labelled].tolist(), strict=True))
    for name, (method, settings) in METHODS.items():
        if options.only not in (None, name):
            continue
        size = {} if method == "analytic" else {"buffer_size": 200}
        clf = ContinualNodeClassifier(method, settings=settings, device="cpu", **size)
        clf.learn(np.arange(n), x, edges, known)
        times, spent = [], []
        for at in range(options.repeats):
            new = x[at : at + 1] + 0.1
            joined = [(n + at, int(end)) for end in rng.integers(n, size=5)]
            begin, used = time.perf_counter(), time.process_time()
            found = clf.predict_proba([n + at], new, joined)
            times.append(time.perf_counter() - begin)
            spent.append(time.process_time() - used)
        begin = time.perf_counter()
        clf.learn([n + at], new, joined)
        apart = np.abs(clf.predict_proba([n + at]) - found).max()
        learned = time.perf_counter() - begin
        print(
            f"{name:22s} first {1e3 * times[0]:7.1f} ms, then {1e3 * np.median(times[1:]):.2f} ms "
            f"({1e3 * np.median(spent[1:]):.2f} of a CPU); "
            f"learn and predict {1e3 * learned:8.1f} ms; apart by {apart:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
