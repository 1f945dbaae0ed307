"""Data as they come: calibration and accuracy on test nodes, with features spoilt or not.

    python benchmarks/calibration.py --dataset cora --method analytic --method replay --seeds 5-9
    python benchmarks/calibration.py --dataset cora --method dslr --spoil year --spoil outlier

An estimator with the dataset's preset learns a stream task by task and judges all test nodes after
the last one. ``before`` is the expected calibration error (15 bins) of the logits as they are.
``--spoil`` takes the features as they come and adds a column with a year, multiplies them by ten
or makes one row of the first task 1e10. Prints a line of JSON per run and one per method.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from evergraph import ContinualNodeClassifier
from evergraph.config import parse_settings, read_presets
from evergraph.metrics import calibration_error, probability_scores
from evergraph.stream import Features, SparseRows, TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

SPOILT = ("clean", "year", "times ten", "outlier")


def spoil(features: Features, how: str, row: int) -> Features:
    """Returns features as data come; ``row`` is the one that is absurd."""
    x = features.dense() if isinstance(features, SparseRows) else features.clone()
    if how == "year":
        years = torch.randint(1990, 2024, (len(x), 1), generator=torch.Generator().manual_seed(0))
        x = torch.cat([x, years], dim=1)
    if how == "outlier":
        x[row] = 1e10
    return 10 * x if how == "times ten" else x


def measure(
    dataset: str,
    method: str,
    seed: int,
    settings: dict[str, Any],
    *,
    how: str | None,
    device: str,
    share: Any,
) -> dict[str, float]:
    """Learns a stream and judges its test nodes."""
    graph = load_graph(
        dataset, None, {"nodes": 2000, "classes": 6} if dataset == "synthetic" else {}
    )
    protocol = protocol_for(dataset)
    if how is not None:
        protocol = protocol.model_copy(update={"features": "none"})
    stream = TaskStream(graph, protocol, seed=seed)
    features = stream.features
    if how is not None:
        features = spoil(features, how, int(stream.tasks[0].train_nodes[seed]))
    given = {} if method == "analytic" else settings
    preset = dataset if dataset in read_presets() else None
    given = {"settings": given, "validation_fraction": share}
    clf = ContinualNodeClassifier(method, preset=preset, seed=seed, device=device, **given)
    started, nodes, edges = time.perf_counter(), 0, 0
    for task in stream.tasks:
        rows = torch.arange(nodes, task.num_nodes)
        labels = stream.labels[task.train_nodes].tolist()
        clf.learn(
            rows.tolist(),
            features[rows],
            stream.edges[:, edges : task.num_edges].T.tolist(),
            dict(zip(task.train_nodes.tolist(), labels, strict=True)),
        )
        nodes, edges = task.num_nodes, task.num_edges
    judged = [stream.evaluation(task) for task in range(stream.num_tasks)]
    rows, labels = (torch.cat([getattr(j, name) for j in judged]) for name in ("nodes", "labels"))
    column = np.argsort(clf.classes_)  # classes are numbers; every one of them has been learned
    proba, truth = clf.predict_proba(rows.tolist())[:, column], labels.numpy()
    entry = clf.history_[-1]
    plain = softmax(clf._now().logits(torch.device(device), rows).cpu().double().numpy(), axis=1)
    scores = probability_scores(proba, truth)
    return {
        "accuracy": 100 * float((proba.argmax(axis=1) == truth).mean()),
        "before": calibration_error(plain[:, column], truth),
        **{key: value for key, value in scores.items() if isinstance(value, float)},
        "held_out": entry["accuracy"],
        "judges": entry["held_out"],
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
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--share", default="auto", help="of labels that are held out")
    parser.add_argument("--spoil", action="append", choices=SPOILT, help="features as they come")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    first, last = map(int, options.seeds.split("-"))
    settings = parse_settings(options.set)
    share = parse_settings([f"share={options.share}"])["share"]
    for method, how in itertools.product(options.method, options.spoil or [None]):
        found = []
        for seed in range(first, last + 1):
            asked = {"how": how, "device": options.device, "share": share}
            found.append(measure(options.dataset, method, seed, settings, **asked))
            shown = {key: round(value, 4) for key, value in found[-1].items()}
            print(json.dumps({"method": method, "spoilt": how, "seed": seed, **shown}), flush=True)
        mean = {key: round(float(np.mean([run[key] for run in found])), 4) for key in found[0]}
        what = {"dataset": options.dataset, "method": method, "spoilt": how, "seeds": options.seeds}
        print(json.dumps({**what, **mean}), flush=True)


if __name__ == "__main__":
    main()
