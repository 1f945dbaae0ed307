"""What a batch costs as a graph grows: the rows ``growth-*``.

    python benchmarks/growth_batches.py --row growth-graph --nodes 1e4 1e5 1e6 --threads 1

A synthetic graph (64 features, 10 classes, five edges per node) is brought to a size, then batches
of 1,000 nodes and 5,000 edges are learned and saved; another process opens the state and predicts.
Everything comes as arrays, ids as whole numbers or, with ``--names``, as text. ``growth-graph``
brings no labels, so that it is graph and store alone. ``--small 1000`` adds that many changes of
five nodes, each saved, and ``--refit`` learns all nodes at once, as one who cannot go on would have
to. What is known is printed as it comes, a line of JSON each, and everything in the last line of a
size; CPU seconds are told beside seconds, for a busy machine. States are written below ``TMPDIR``:
0.35 GB for 10^6 nodes, 3.5 GB for 10^7.
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

Array = np.ndarray[Any, np.dtype[Any]]
WIDTH, CLASSES, EDGES = 64, 10, 5
BATCH, REPEATS, STEP, MANY = 1000, 5, 100_000, 1_000_000
NETWORK = {"epochs": 5, "channels": 8, "heads": 2, "backbone": "gcn"}
ROWS: dict[str, tuple[str, dict[str, Any], float]] = {  # method, settings, share of labels
    "growth-graph": ("finetune", NETWORK, 0.0),
    "growth-replay": ("replay", NETWORK, 1.0),
    "growth-dslr": ("dslr", {**NETWORK, "link_epochs": 5}, 1.0),
    "growth-analytic": ("analytic", {}, 1.0),
}


def batch(first: int, count: int, labelled: float, seed: int, *, names: bool) -> dict[str, Any]:
    """Makes nodes that follow ``first`` others, joined to earlier ones mostly of their class."""
    rng = np.random.default_rng([seed, first])
    rows = np.arange(first, first + count)
    labels = rows % CLASSES
    x = rng.standard_normal((count, WIDTH), dtype=np.float32)
    x[np.arange(count), labels] += 2
    ends = np.repeat(rows, EDGES)
    others = (rng.random(ends.size) * np.maximum(ends, 1)).astype(np.int64)
    alike = others - others % CLASSES + ends % CLASSES  # of the same class
    others = np.where((rng.random(ends.size) < 0.8) & (alike < ends), alike, others)
    shown = rows[rng.random(count) < labelled]
    return {
        "ids": called(rows, names),
        "x": x,
        "edges": called(np.stack([ends, others], axis=1), names),
        "labels": dict(zip(called(shown, names).tolist(), (shown % CLASSES).tolist(), strict=True)),
    }


def called(rows: Array, names: bool) -> Array:
    """Returns the ids of rows: themselves, or as text."""
    return np.char.add("n", rows.astype(str)) if names else rows


def steps(nodes: int) -> Iterator[tuple[int, int]]:
    """Yields first node and number of each step that fills a graph, larger ones later."""
    first = 0
    while first < nodes:
        count = min(STEP if first < MANY else MANY, nodes - first)
        yield first, count
        first += count


def say(**found: Any) -> None:
    """Prints what is known by now."""
    print(json.dumps(found), flush=True)


def fill(row: str, nodes: int, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Brings a state to a size, step by step, then by batches; seconds, bytes or counts."""
    import torch  # noqa: PLC0415 - in this process alone

    from evergraph import ContinualNodeClassifier  # noqa: PLC0415

    torch.set_num_threads(given.threads)
    method, settings, labelled = ROWS[row]
    begin, taken = time.perf_counter(), dict[str, list[float]]()
    clf = ContinualNodeClassifier(method, settings=settings, device="cpu")
    for first, count in steps(nodes):
        with timed(taken, "made"):
            new = batch(first, count, min(1.0, 1000 / count), 0, names=given.names)
        with timed(taken, "fill"):
            clf.learn(**new)
        cost = {name: round(values[-1], 2) for name, values in taken.items()}
        say(nodes=first + count, **cost, resident_mb=round(resident()))
    found: dict[str, Any] = {name: sum(values) for name, values in taken.items()}
    taken = {}
    with timed(taken, "first_save"):
        clf.save(folder)
    for at in range(REPEATS):
        new = batch(nodes + at * BATCH, BATCH, labelled, 0, names=given.names)
        with timed(taken, "learn"):
            clf.learn(**new)
        with timed(taken, "save"):
            clf.save(folder)
    found |= {name: statistics.median(values) for name, values in taken.items()}
    found["folder_mb"] = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    say(**found, so_far_s=time.perf_counter() - begin)
    if given.refit:
        del clf
        share, again = min(1.0, 1000 / min(nodes, STEP)), dict[str, list[float]]()
        everything = batch(0, nodes, share, 0, names=given.names)
        with timed(again, "refit"):
            ContinualNodeClassifier(method, settings=settings, device="cpu").learn(**everything)
        found |= {name: value for name, (value,) in again.items()}
    return found


def use(row: str, nodes: int, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Opens a state, predicts, and learns one batch; tells what is resident after each."""
    import torch  # noqa: PLC0415 - in this process alone

    from evergraph import ContinualNodeClassifier  # noqa: PLC0415

    torch.set_num_threads(given.threads)
    labelled = ROWS[row][2]
    taken, found = dict[str, list[float]](), {"imported_mb": resident()}
    with timed(taken, "open"):
        clf = ContinualNodeClassifier.load(folder, device="cpu")
    rng = np.random.default_rng(1)
    if labelled:
        clf.predict(called(np.ones(1, dtype=int), given.names))  # compiles and caches
    for count, repeats in ((1, 9), (1000, 3)):
        for _ in range(repeats if labelled else 0):
            forget(clf)
            ids = called(rng.integers(nodes, size=count), given.names)
            with timed(taken, f"predict_{count}"):
                clf.predict(ids)
    found |= {name: statistics.median(values) for name, values in taken.items()}
    found |= memory("use")
    clf.learn(**batch(nodes + REPEATS * BATCH, BATCH, labelled, 0, names=given.names)).save(folder)
    found |= memory("learned")
    found["use_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    say(**found)
    if given.small:
        found["small"] = many_small(clf, folder, nodes + (REPEATS + 1) * BATCH, given)
    return found


def forget(clf: Any) -> None:
    """Empties the cache of predictions."""
    clf._now().computed.clear()


def many_small(
    clf: Any, folder: Path, first: int, given: argparse.Namespace
) -> dict[str, list[float]]:
    """Changes of five nodes, saved one by one; figures of every tenth part."""
    count = given.small
    part, found = max(count // 10, 1), {"ms": [], "resident_mb": [], "folder_mb": [], "files": []}
    for start in range(0, count, part):
        begin = time.process_time()
        for at in range(start, start + part):
            new = batch(first + 5 * at, 5, 0.0, 2, names=given.names)
            clf.learn(**new).save(folder)
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


def memory(name: str) -> dict[str, float]:
    """Returns what is resident in MB: all of it, of this process alone, and of files."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    kinds = {"VmRSS:": "resident", "RssAnon:": "anonymous", "RssFile:": "of_files"}
    sizes = {words[0]: int(words[1]) * 1024 / 1e6 for words in lines if words[0] in kinds}
    return {f"{name}_{kinds[key]}_mb": size for key, size in sizes.items()}


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures every row at every size, each in processes of its own."""
    context = multiprocessing.get_context("spawn")
    for name in given.row:
        for size in map(int, given.nodes):
            found: dict[str, Any] = {"row": name, "nodes": size, "threads": given.threads}
            with tempfile.TemporaryDirectory() as place:
                for part in (fill, use):
                    with context.Pool(1) as pool:
                        found |= pool.apply(part, (name, size, Path(place) / "state", given))
            yield found


def main() -> None:
    """Prints one line of JSON for every row and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", nargs="+", choices=ROWS, default=["growth-graph"])
    parser.add_argument("--nodes", nargs="+", type=float, default=[1e4, 1e5])
    parser.add_argument("--small", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--names", action="store_true", help="text as ids")
    parser.add_argument("--refit", action="store_true")
    for found in rows(parser.parse_args()):
        say(**found)


if __name__ == "__main__":
    main()
