"""`make bench`: ours against the obvious alternative on the CPU, time and peak memory, in one run.

    python benchmarks/bench.py [--quick] [--only NAME ...] [--output bench.json]

Two threads for each, the same optimiser, dropout and self-loops, nothing set up inside a step,
10 steps to warm up and 30 timed, one after the other in turns, medians. Peak memory is a fresh
process's maximum RSS less its RSS before the first step. `--quick` takes fewer steps and sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import naive_dslr
import torch
from helpers import THREADS, compare_steps, fit_exponent, make_stream

from evergraph.config import Variant, resolve
from evergraph.lab.folder import Run
from evergraph.lab.runs import execute
from evergraph.structure import (
    StructureConfig,
    link_loss,
    link_scores,
    nearest_nodes,
    pair_pattern,
    refine,
    sample_non_edges,
)

HERE = Path(__file__).parent


def bench_step(size: str, quick: bool) -> dict[str, Any]:
    """A training step of the network against PyTorch Geometric's `GATConv`."""
    turn, turns = (5, 2) if quick else (10, 3)
    found = compare_steps(size, ("evergraph", "pyg", "pyg-csr"), turn, turns)
    ours, theirs = found["evergraph"], found["pyg"]
    return {
        **found,
        "times_faster": theirs["ms"] / ours["ms"],
        "share_of_memory": ours["peak_mb"] / theirs["peak_mb"],
    }


def bench_growth(quick: bool) -> dict[str, Any]:
    """How a step grows with the edges: the exponent of a power law fitted to the medians."""
    sizes = (1e4, 1e5, 1e6) if quick else (1e4, 1e5, 1e6, 1e7)
    ms = {}
    for edges in sizes:
        turn = 5 if edges < 1e6 else 2
        ms[edges] = compare_steps(f"edges={edges:g}", ("evergraph",), turn, 2)["evergraph"]["ms"]
    return {"ms": {f"{k:g}": v for k, v in ms.items()}, "exponent": fit_exponent(ms)}


def bench_links(quick: bool) -> dict[str, Any]:
    """The link loss with its gradient: one pass over the pairs against a row per pair."""
    stream = make_stream("amazon")
    graph = stream.view(0).adjacency
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(graph.num_nodes, 256, generator=generator).requires_grad_()
    pairs, valid = sample_non_edges(graph, graph.num_edges // 2, generator)
    negatives = pair_pattern(pairs, graph.num_nodes, valid)

    def gradient(plain: bool) -> Callable[[], object]:
        return lambda: torch.autograd.grad(link_loss(z, graph.pattern, negatives, plain), z)

    calls = {"evergraph": gradient(False), "rows per pair": gradient(True)}
    return in_turns(calls, 3 if quick else 10)


def bench_inference(quick: bool) -> dict[str, Any]:
    """Refining 200 nodes of an Amazon-size graph, against a loop over candidates and edges."""
    graph = make_stream("amazon").view(0).adjacency
    z = torch.randn(graph.num_nodes, 256, generator=torch.Generator().manual_seed(1))
    nodes = torch.arange(0, graph.num_nodes, graph.num_nodes // 200)[:200]
    candidates = nearest_nodes(z, nodes, 50)
    config = StructureConfig()

    def loop() -> None:
        for node, options in zip(nodes.tolist(), candidates.tolist(), strict=True):
            near = set(graph.src[graph.indptr[node] : graph.indptr[node + 1]].tolist())
            scores = [(float(link_scores(z[node], z[o])), o) for o in options if o not in near]
            sorted(scores, reverse=True)[: config.num_neighbors]
            [other for other in near if float(link_scores(z[node], z[other])) <= config.tau]

    calls = {"evergraph": lambda: refine(graph, nodes, candidates, z, config), "loop": loop}
    return in_turns(calls, 2 if quick else 5)


def bench_whole(quick: bool) -> dict[str, Any]:
    """DSLR on Cora, whole runs, against the same algorithm on PyG with dense features and loops."""
    epochs, link_epochs = (20, 5) if quick else (500, 100)  # the paper's
    options = {"epochs": epochs, "link_epochs": link_epochs}
    variant = Variant(name="dslr", options=options, label="dslr")
    config = resolve(Variant(name="cora", label="cora"), variant, 0)
    with tempfile.TemporaryDirectory() as folder:
        short = variant.model_copy(update={"options": {"epochs": 2, "link_epochs": 2}})
        execute(Run(Path(folder) / "warm", resolve(Variant(name="cora", label="cora"), short, 1)))

        def run(name: str) -> dict[str, float]:
            begin = time.perf_counter()
            results = execute(Run(Path(folder) / name, config))
            return {"seconds": time.perf_counter() - begin, "pm": results["pm"]}

        before = run("before")
        theirs = naive_dslr.run(epochs, link_epochs)
        after = run("after")  # before and after the other, should the machine get slower or faster
    seconds = statistics.fmean([before["seconds"], after["seconds"]])
    return {
        **options,
        "evergraph": [before, after],
        "naive": theirs,
        "times_faster": theirs["seconds"] / seconds,
    }


def bench_selection(quick: bool) -> dict[str, Any]:
    """Coverage-based selection against a greedy search over the dense matrix, growing."""
    sizes = "5000,10000" if quick else "5000,10000,20000"
    command = [sys.executable, str(HERE / "bench_selection.py"), "--dim", "64", "--picks", "100"]
    growth = subprocess.run(
        [*command, "--sizes", sizes], capture_output=True, text=True, check=True
    )
    dense = subprocess.run(
        [*command, "--nodes", "4000", "--dense"], capture_output=True, text=True, check=True
    )
    return {"growth": json.loads(growth.stdout), "dense": json.loads(dense.stdout)}


#: Answers every line with the seconds of a run on Cora.
RUNS = """
import sys, time, evergraph
for _ in sys.stdin:
    begin = time.perf_counter()
    evergraph.run("cora", sys.argv[1])
    print(time.perf_counter() - begin, flush=True)
"""
#: How threads wait: as Evergraph has it, and spinning as long as libgomp does by default.
WAITING = {"sleeping": {}, "spinning": {"GOMP_SPINCOUNT": "300000"}}


def bench_busy(quick: bool) -> dict[str, Any]:
    """How much longer a run takes beside one other busy process, all cores being used.

    The runs of one turn follow each other, so that what else the machine does meets all alike.
    """
    methods = (
        {"dslr": "dslr:epochs=30,link_epochs=10"}
        if quick
        else {
            "dslr": "dslr:epochs=60,link_epochs=20",
            "analytic": "analytic",
        }
    )
    return {name: _beside_another(method, 2 if quick else 5) for name, method in methods.items()}


def _beside_another(method: str, turns: int) -> dict[str, Any]:
    """Median seconds alone and beside a busy process, and their ratio, for each way to wait."""
    workers = {
        name: subprocess.Popen(
            [sys.executable, "-c", RUNS, method],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | extra,
        )
        for name, extra in WAITING.items()
    }

    def ask(name: str) -> float:
        worker = workers[name]
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
        return float(worker.stdout.readline())

    seconds = {name: {"alone": [], "beside": []} for name in workers}
    for name in workers:
        ask(name)
    for _ in range(turns):
        for name, found in seconds.items():
            found["alone"].append(ask(name))
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            found["beside"].append(ask(name))
            other.kill()
            other.wait()
    for worker in workers.values():
        worker.communicate()
    medians = {
        name: {key: statistics.median(values) for key, values in found.items()}
        for name, found in seconds.items()
    }
    return {
        name: {**found, "ratio": found["beside"] / found["alone"]}
        for name, found in medians.items()
    }


def in_turns(calls: dict[str, Callable[[], object]], times: int) -> dict[str, Any]:
    """Median milliseconds of each call and how much faster the first is than the last."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(times + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    ms = {name: 1e3 * statistics.median(values) for name, values in seconds.items()}
    first, *_, last = ms.values()
    return {**ms, "times_faster": last / first}


BENCHES = {
    "step:cora": partial(bench_step, "cora"),
    "step:amazon": partial(bench_step, "amazon"),
    "step:arxiv": partial(bench_step, "arxiv"),
    "growth": bench_growth,
    "links": bench_links,
    "selection": bench_selection,
    "inference": bench_inference,
    "whole": bench_whole,
    "busy": bench_busy,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(BENCHES), default=list(BENCHES))
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.set_flush_denormal(True)
    results: dict[str, Any] = {"threads": THREADS, "torch": torch.__version__}
    skipped = {"step:arxiv"} if arguments.quick else set()
    for name in (name for name in arguments.only if name not in skipped):
        results[name] = BENCHES[name](arguments.quick)
        print(json.dumps({name: results[name]}, indent=2), flush=True)
        arguments.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
