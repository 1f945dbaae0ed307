"""A graph of any size in arrays on disk, and how long workers take to learn and predict it.

python benchmarks/scale.py make --nodes 1e6 --edges 1e7 --output graph
python benchmarks/scale.py run --graph graph --workers 1 2
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

#: Nodes and edges that are made at a time.
BLOCK = 1 << 20


def make(
    folder: Path, nodes: int, edges: int, *, features: int, classes: int, labelled: float
) -> None:
    """Writes a graph whose nodes come class by class; of four edges three stay in a class."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    label = np.arange(nodes) * classes // nodes
    first = np.searchsorted(label, np.arange(classes + 1))
    shown = np.where(random.random(nodes) < labelled, label, -1)
    np.save(folder / "y.npy", shown)
    np.save(folder / "truth.npy", label)
    centres = random.normal(size=(classes, features)).astype(np.float32)
    x = open_memmap(folder / "x.npy", "w+", np.float32, (nodes, features))
    for begin in range(0, nodes, BLOCK):
        some = label[begin : begin + BLOCK]
        noise = random.standard_normal((some.size, features), dtype=np.float32)
        x[begin : begin + BLOCK] = 0.3 * centres[some] + noise
    x.flush()
    pairs = open_memmap(folder / "edges.npy", "w+", np.int32, (edges, 2))
    for begin in range(0, edges, BLOCK):
        count = min(BLOCK, edges - begin)
        one, other = random.integers(0, nodes, (2, count))
        near = label[one]
        inside = first[near] + random.integers(0, 1 << 40, count) % (first[near + 1] - first[near])
        pairs[begin : begin + count, 0] = one
        pairs[begin : begin + count, 1] = np.where(random.random(count) < 0.75, inside, other)
    pairs.flush()


def timed(*words: str, torchrun: int = 0) -> tuple[float, str]:
    """Runs a command on one thread for each worker; returns its seconds and what it prints."""
    begin = time.perf_counter()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    start = ("torch.distributed.run", "--standalone", "--nproc-per-node", str(torchrun), "-m")
    words = (sys.executable, "-m", *(start if torchrun else ()), "evergraph", *words)
    told = subprocess.run(words, check=True, env=environment, capture_output=True, text=True)
    return time.perf_counter() - begin, told.stdout


def run(graph: Path, workers: list[int], order: str, torchrun: bool, only: str | None) -> None:
    """Prints the seconds of cutting, learning and predicting with so many workers.

    ``learn`` and ``predict`` are whole commands, which start Python and may compile kernels first;
    ``stages`` are those of the learning itself; of these ``start`` loads compiled code, and
    ``work`` is all that follows.
    """
    for count in workers:
        parts = graph.with_name(f"{graph.name}-{count}")
        shutil.rmtree(parts, ignore_errors=True)
        how = ("--parts", str(count), "--order", order, "-o", str(parts))
        many = () if torchrun else ("--workers", str(count))
        started = count if torchrun else 0
        told: dict[str, object] = {"workers": count, "cut": timed("partition", str(graph), *how)[0]}
        told["learn"], printed = timed("learn", str(parts), *many, "--json", torchrun=started)
        told["stages"] = {k: round(v, 2) for k, v in json.loads(printed)["seconds"].items()}
        if only != "learn":
            where = ("-o", str(parts / "predicted"))
            told["predict"] = timed("predict", str(parts), *many, *where, torchrun=started)[0]
        told["peak_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
        print(json.dumps(told), flush=True)
        shutil.rmtree(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("--nodes", type=float, default=1e6)
    making.add_argument("--edges", type=float, default=1e7)
    making.add_argument("--features", type=int, default=128)
    making.add_argument("--classes", type=int, default=40)
    making.add_argument("--labelled", type=float, default=0.1)
    making.add_argument("--output", type=Path, required=True)
    running = commands.add_parser("run")
    running.add_argument("--graph", type=Path, required=True)
    running.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    running.add_argument("--order", default="arrival")
    running.add_argument("--torchrun", action="store_true", help="in place of --workers")
    running.add_argument("--only", choices=["learn"], help="leave out predict")
    given = parser.parse_args()
    if given.command == "make":
        how = {"features": given.features, "classes": given.classes, "labelled": given.labelled}
        make(given.output, int(given.nodes), int(given.edges), **how)
    else:
        run(given.graph, given.workers, given.order, given.torchrun, given.only)


if __name__ == "__main__":
    main()
