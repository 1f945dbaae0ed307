"""``predict`` for 10,000 ids on an Amazon Computers state against the bare forward pass.

    python benchmarks/bench_predict.py

Needs the raw file under EVERGRAPH_DATA. Cold is the first call after loading, when both derive the
same things of the graph; warm is every later one, with the cache of predictions emptied.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch

from evergraph.device import denormals_flushed
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.state import State
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.datasets import load_graph

DATASET = "amazon-computers"
REPEATS = 9


def main() -> None:
    """Prints seconds and ratios."""
    stream = TaskStream(load_graph(DATASET), protocol_for(DATASET), seed=0)
    settings = {"epochs": 1, "link_epochs": 1}
    clf = ContinualNodeClassifier("dslr", preset=DATASET, settings=settings, device="cpu")
    clf.learn(
        [f"product-{row}" for row in range(stream.labels.numel())],
        stream.features,
        [(f"product-{a}", f"product-{b}") for a, b in stream.edges.T.tolist()],
        stream.labels,
    )
    with tempfile.TemporaryDirectory() as folder:
        clf.save(f"{folder}/state")
        begin = time.perf_counter()
        clf = ContinualNodeClassifier.load(f"{folder}/state", device="cpu")
        print(f"load            {time.perf_counter() - begin:8.4f} s")
        again = ContinualNodeClassifier.load(f"{folder}/state", device="cpu")
    ids = np.random.default_rng(0).choice(clf.ids_, 10_000, replace=False).tolist()
    state = again._now()
    cold = once(lambda: bare(state, fresh=True)), once(lambda: predict(clf, ids))
    print(f"cold: forward   {cold[0]:8.4f} s, predict {cold[1]:.4f} s, × {cold[1] / cold[0]:.2f}")
    pairs = [
        (once(lambda: bare(state, fresh=False)), once(lambda: predict(clf, ids)))
        for _ in range(REPEATS)
    ]
    forward, whole = (float(np.median(times)) for times in zip(*pairs, strict=True))
    print(f"warm: forward   {forward:8.4f} s, predict {whole:.4f} s, × {whole / forward:.2f}")
    cached = once(lambda: clf.predict(ids))
    print(f"asked again     {cached:8.4f} s, × {cached / forward:.2f}")


def bare(state: State, *, fresh: bool) -> None:
    """Runs the network and nothing else."""
    graph, model = state.edits.apply(state.graph.adjacency), state.learner.model
    assert model is not None
    if fresh:
        graph = Adjacency(graph.num_nodes, graph.src, graph.dst, graph.indptr)
    model.eval()
    with torch.no_grad(), denormals_flushed():
        model(state.graph.features, graph)


def predict(clf: ContinualNodeClassifier, ids: list[str]) -> None:
    """Predicts as if nothing had been predicted before."""
    clf._now().computed.clear()
    clf.predict(ids)


def once(call: Callable[[], object]) -> float:
    """Times one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
