"""What a batch costs as a graph grows: the rows ``growth-*``.

    python benchmarks/growth_batches.py --row growth-graph --nodes 1e4 1e5 1e6 --threads 1

A synthetic graph (64 features, 10 classes, five edges per node) is brought to a size, then batches
of 1,000 nodes and 5,000 edges are learned and saved. ``growth-graph`` brings no labels, so that it
is graph and store alone. ``--small 1000`` adds that many changes of five nodes, each saved, and
``--refit`` learns all nodes at once, as one who cannot go on would have to. Every size is measured
in a process of its own; CPU seconds are told beside seconds, for a busy machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, CLASSES, EDGES = 64, 10, 5
BATCH, REPEATS, STEP = 1000, 5, 100_000
NETWORK = {"epochs": 5, "channels": 8, "heads": 2, "backbone": "gcn"}
ROWS: dict[str, tuple[str, dict[str, Any], float]] = {  # method, settings, share of labels
    "growth-graph": ("finetune", NETWORK, 0.0),
    "growth-replay": ("replay", NETWORK, 1.0),
    "growth-analytic": ("analytic", {}, 1.0),
}


def batch(first: int, count: int, labelled: float, seed: int) -> dict[str, Any]:
    """Makes nodes that follow ``first`` others, joined to earlier ones mostly of their class."""
    rng = np.random.default_rng([seed, first])
    rows = np.arange(first, first + count)
    labels = rows % CLASSES
    x = rng.normal(size=(count, WIDTH)).astype(np.float32)
    x[np.arange(count), labels] += 2
    ends = np.repeat(rows, EDGES)
    others = (rng.random(ends.size) * np.maximum(ends, 1)).astype(np.int64)
    alike = others - others % CLASSES + ends % CLASSES  # of the same class
    others = np.where((rng.random(ends.size) < 0.8) & (alike < ends), alike, others)
    shown = rng.random(count) < labelled
    named = {f"n{row}": int(row % CLASSES) for row in rows[shown].tolist()}
    return {
        "ids": [f"n{row}" for row in rows.tolist()],
        "x": x,
        "edges": [(f"n{a}", f"n{b}") for a, b in zip(ends.tolist(), others.tolist(), strict=True)],
        "labels": named,
    }


def measure(row: str, nodes: int, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measures one size; everything in seconds, bytes or counts."""
    import torch  # noqa: PLC0415 - in this process alone

    from evergraph import ContinualNodeClassifier  # noqa: PLC0415

    torch.set_num_threads(given.threads)
    method, settings, labelled = ROWS[row]
    clf = ContinualNodeClassifier(method, settings=settings, device="cpu")
    for first in range(0, nodes, STEP):
        count = min(STEP, nodes - first)
        clf.learn(**batch(first, count, min(1.0, 1000 / count), 0))
    clf.save(folder)
    taken: dict[str, list[float]] = {}
    for at in range(REPEATS):
        new = batch(nodes + at * BATCH, BATCH, labelled, 0)
        with timed(taken, "learn"):
            clf.learn(**new)
        with timed(taken, "save"):
            clf.save(folder)
    del clf
    with timed(taken, "open"):
        clf = ContinualNodeClassifier.load(folder, device="cpu")
    rng = np.random.default_rng(1)
    clf.predict(["n1"])  # compiles and caches whatever a first prediction needs
    for count, repeats in ((1, 9), (1000, 3)):
        for _ in range(repeats):
            forget(clf)
            ids = [f"n{at}" for at in rng.integers(nodes, size=count)]
            with timed(taken, f"predict_{count}"):
                clf.predict(ids)
    found: dict[str, Any] = {"row": row, "nodes": nodes, "threads": given.threads}
    found |= {name: statistics.median(values) for name, values in taken.items()}
    found["folder_mb"] = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    found["resident_mb"] = resident()
    if given.small:
        found["small"] = many_small(clf, folder, nodes + REPEATS * BATCH, given.small)
    if given.refit:
        del clf
        everything, again = batch(0, nodes, min(1.0, 1000 / min(nodes, STEP)), 0), {}
        with timed(again, "refit"):
            ContinualNodeClassifier(method, settings=settings, device="cpu").learn(**everything)
        found |= {name: value for name, (value,) in again.items()}
    return found


def forget(clf: Any) -> None:
    """Empties the cache of predictions."""
    clf._now().__dict__.pop("_logits", None)


def many_small(clf: Any, folder: Path, first: int, count: int) -> dict[str, list[float]]:
    """Changes of five nodes, saved one by one; figures of every tenth part."""
    part, found = max(count // 10, 1), {"ms": [], "resident_mb": [], "folder_mb": [], "files": []}
    for start in range(0, count, part):
        begin = time.process_time()
        for at in range(start, start + part):
            clf.learn(**batch(first + 5 * at, 5, 0.0, 2)).save(folder)
        found["ms"].append(round(1e3 * (time.process_time() - begin) / part, 2))
        found["resident_mb"].append(round(resident(), 1))
        size = sum(path.stat().st_size for path in folder.iterdir())
        found["folder_mb"].append(round(size / 1e6, 2))
        found["files"].append(len(os.listdir("/proc/self/fd")))
    return found


class timed:
    """Adds seconds, CPU seconds and bytes written under a name."""

    def __init__(self, taken: dict[str, list[float]], name: str) -> None:
        self.taken, self.name = taken, name

    def __enter__(self) -> None:
        self.begin = time.perf_counter(), time.process_time(), written()

    def __exit__(self, *_: object) -> None:
        ends = time.perf_counter(), time.process_time(), written()
        for what, end, begin in zip(("s", "cpu_s", "bytes"), ends, self.begin, strict=True):
            self.taken.setdefault(f"{self.name}_{what}", []).append(end - begin)


def written() -> int:
    """Counts the bytes that this process has handed to the system."""
    words = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(words["wchar"])


def resident() -> float:
    """Returns the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures every row at every size, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    for name in given.row:
        for size in map(int, given.nodes):
            with tempfile.TemporaryDirectory() as place, context.Pool(1) as pool:
                yield pool.apply(measure, (name, size, Path(place) / "state", given))


def main() -> None:
    """Prints one line of JSON for every row and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", nargs="+", choices=ROWS, default=["growth-graph"])
    parser.add_argument("--nodes", nargs="+", type=float, default=[1e4, 1e5])
    parser.add_argument("--small", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--refit", action="store_true")
    for found in rows(parser.parse_args()):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
