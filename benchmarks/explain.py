"""Explanations: does taking away the five nodes named change the decision oftener than five others?

    python benchmarks/explain.py --dataset cora --method analytic --method replay --nodes 200

An estimator with the dataset's preset learns a stream task by task. Of test nodes with at least ten
other nodes that have a part in their margin, those named are the five that add most to it, itself
apart; the others are drawn from the rest that are as many steps away as the named ones, as far as
there are so many. All edges of five nodes are taken away and the node is predicted anew with the
same weights. Prints a line of JSON per run: how often the class changed, in percent, and by how
much the margin fell on average, of its mean.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from evergraph import ContinualNodeClassifier
from evergraph.config import parse_settings, read_presets
from evergraph.estimator.explanation import Explanation
from evergraph.estimator.state import State
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

TAKEN = 5


def learned(dataset: str, method: str, seed: int, settings: dict[str, Any], device: str) -> Any:
    """Learns a stream; returns the estimator and the test nodes."""
    stream = TaskStream(load_graph(dataset), protocol_for(dataset), seed=seed)
    preset = dataset if dataset in read_presets() else None
    given = {} if method == "analytic" else settings
    clf = ContinualNodeClassifier(method, preset=preset, seed=seed, settings=given, device=device)
    nodes, edges = 0, 0
    for task in stream.tasks:
        rows = torch.arange(nodes, task.num_nodes)
        labels = stream.labels[task.train_nodes].tolist()
        clf.learn(
            rows.tolist(),
            stream.features[rows],
            stream.edges[:, edges : task.num_edges].T.tolist(),
            dict(zip(task.train_nodes.tolist(), labels, strict=True)),
        )
        nodes, edges = task.num_nodes, task.num_edges
    judged = [stream.evaluation(task).nodes for task in range(stream.num_tasks)]
    return clf, torch.cat(judged)


def choose(
    found: Explanation, generator: np.random.Generator, most_steps: int
) -> tuple[list[int], list[int]] | None:
    """Returns the nodes that add most and others as far away; None if there are too few."""
    rest = (found.steps > 0) & (found.steps <= most_steps)
    nodes, added, steps = np.array(found.nodes)[rest], found.by_node[rest], found.steps[rest]
    order = np.argsort(-added, kind="stable")
    named, others = order[:TAKEN], []
    if nodes.size < 2 * TAKEN or added[named[-1]] <= 0:
        return None
    left = generator.permutation(order[TAKEN:])
    for at in named:  # the nearest in distance of those that are left, at random among equals
        pick = left[np.argmin(np.abs(steps[left] - steps[at]))]
        left = left[left != pick]
        others.append(pick)
    return nodes[named].tolist(), nodes[others].tolist()


def without(state: State, row: int, nodes: list[int], device: torch.device) -> torch.Tensor:
    """Predicts a node on the graph in which some nodes are on their own."""
    edges = state.graph.edges.tensor.long().T
    cut = edges[:, torch.isin(edges, torch.tensor(nodes)).any(dim=0)]
    learner = replace(state.learner, context=None)
    after = replace(state, graph=state.graph.without_edges(cut), learner=learner)
    return after.logits(device, torch.tensor([row]))[0]


def measure(
    clf: Any, nodes: torch.Tensor, count: int, seed: int, *, most_steps: int, device: str
) -> dict[str, float]:
    generator, state = np.random.default_rng(seed), clf._now()
    changed, fell, margins, missing = [], [], [], []
    seconds, explained, device = 0.0, 0, torch.device(device)
    for row in generator.permutation(nodes.numpy()).tolist():
        started = time.perf_counter()
        found = clf.explain([row])[0]
        seconds, explained = seconds + time.perf_counter() - started, explained + 1
        chosen = choose(found, generator, most_steps)
        if chosen is None or found.against is None:
            continue
        before = [state.classes.index(name) for name in (found.label, found.against)]
        after = [without(state, row, taken, device) for taken in chosen]
        changed.append([int(logits.argmax()) != before[0] for logits in after])
        fell.append([found.margin - float(z[before[0]] - z[before[1]]) for z in after])
        margins.append(found.margin)
        missing.append(abs(found.missing))
        if len(changed) == count:
            break
    share, loss = 100 * np.mean(changed, axis=0), np.mean(fell, axis=0) / np.mean(margins)
    only = np.array(changed)
    return {
        "nodes": len(changed),
        "changed by named": share[0],
        "changed by others": share[1],
        "by named alone": int((only[:, 0] & ~only[:, 1]).sum()),
        "by others alone": int((~only[:, 0] & only[:, 1]).sum()),
        "margin lost by named": 100 * loss[0],
        "margin lost by others": 100 * loss[1],
        "most missing": max(missing),
        "seconds each": seconds / explained,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--method", action="append", required=True)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--most-steps", type=int, default=99, help="1: direct neighbours alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="key=value for networks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = parse_settings(options.set)
    for method in options.method:
        clf, nodes = learned(options.dataset, method, options.seed, settings, options.device)
        asked = {"most_steps": options.most_steps, "device": options.device}
        found = measure(clf, nodes, options.nodes, options.seed, **asked)
        shown = {key: round(float(value), 6) for key, value in found.items()}
        what = {"dataset": options.dataset, "method": method, "seed": options.seed}
        what["most steps"] = options.most_steps
        print(json.dumps({**what, **shown}), flush=True)


if __name__ == "__main__":
    main()
