"""Calibration on test nodes: expected calibration error (15 bins) and accuracies, mean over seeds.

    python benchmarks/calibration.py --dataset cora --method analytic --method replay --seeds 5-9
    python benchmarks/calibration.py --dataset ubuntu-packages --method replay --set backbone=gcn

An estimator with the dataset's preset learns a stream task by task and judges all test nodes after
the last one. ``before`` is the error of the logits as they are. Prints a line of JSON per run and
one per method.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from evergraph import ContinualNodeClassifier
from evergraph.config import parse_settings, read_presets
from evergraph.metrics import calibration_error, probability_scores
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph


def measure(dataset: str, method: str, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Learns a stream and judges its test nodes."""
    stream = TaskStream(load_graph(dataset), protocol_for(dataset), seed=seed)
    given = {} if method == "analytic" else settings
    preset = dataset if dataset in read_presets() else None
    clf = ContinualNodeClassifier(method, preset=preset, seed=seed, settings=given, device="cpu")
    started, nodes, edges = time.perf_counter(), 0, 0
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
    judged = [stream.evaluation(task) for task in range(stream.num_tasks)]
    rows, labels = (torch.cat([getattr(j, name) for j in judged]) for name in ("nodes", "labels"))
    column = np.argsort(clf.classes_)  # classes are numbers; every one of them has been learned
    proba, truth = clf.predict_proba(rows.tolist())[:, column], labels.numpy()
    entry = clf.history_[-1]
    plain = softmax(np.log(proba.clip(min=1e-300)) * entry["temperature"], axis=1)
    scores = probability_scores(proba, truth)
    return {
        "accuracy": 100 * float((proba.argmax(axis=1) == truth).mean()),
        "before": calibration_error(plain, truth),
        **{key: value for key, value in scores.items() if isinstance(value, float)},
        "held_out": entry["accuracy"],
        "told_ece": entry["calibration_error"],
        "temperature": entry["temperature"],
        "seconds": time.perf_counter() - started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--method", action="append", required=True)
    parser.add_argument("--seeds", default="0-4", help="first and last")
    parser.add_argument("--set", action="append", default=[], help="key=value for networks")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    first, last = map(int, options.seeds.split("-"))
    settings = parse_settings(options.set)
    for method in options.method:
        found = []
        for seed in range(first, last + 1):
            found.append(measure(options.dataset, method, seed, settings))
            shown = {key: round(value, 4) for key, value in found[-1].items()}
            print(json.dumps({"method": method, "seed": seed, **shown}), flush=True)
        mean = {key: round(float(np.mean([run[key] for run in found])), 4) for key in found[0]}
        what = {"dataset": options.dataset, "method": method, "seeds": options.seeds}
        print(json.dumps({**what, **mean}), flush=True)


if __name__ == "__main__":
    main()
