"""Novelty: a class that nobody has labelled, found among nodes of known classes.

    python benchmarks/novelty.py --dataset cora --method analytic --seeds 5-9
    python benchmarks/novelty.py --dataset ubuntu-packages --method analytic --seeds 5-5

An estimator learns all tasks of a stream but the last, whose nodes then arrive without labels.
``auroc`` tells nodes of unknown classes from test nodes of known ones by ``novelty``, ``by_p`` by
the probability of the class they are given. ``kept`` is the share of the latter that
``predict(reject=0.05)`` keeps, in percent, ``found`` that of the former it refuses; ``groups`` are
those of the nodes refused, and ``purity`` the share of unknown ones among these that are of
the commonest class of their group. On packages, which come release by release, nothing is unknown
by itself: ``--sections`` that are not learned, 5 by default, are those that appear last. Prints a
line of JSON per seed and one per method.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from evergraph import ContinualNodeClassifier
from evergraph.config import parse_settings, read_presets
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

PACKAGES = "ubuntu-packages"


def latest_classes(stream: TaskStream, count: int) -> list[int]:
    """Returns the classes whose first node comes last."""
    labels = stream.labels.numpy()
    names, first = np.unique(labels, return_index=True)
    names, first = names[names >= 0], first[names >= 0]
    return sorted(names[np.argsort(first)[-count:]].tolist())


def measure(
    dataset: str, method: str, seed: int, settings: dict[str, Any], *, sections: int, device: str
) -> dict[str, float]:
    """Learns a stream without the labels of some classes and looks for them."""
    stream = TaskStream(load_graph(dataset, None, {}), protocol_for(dataset), seed=seed)
    withheld = set(stream.tasks[-1].classes)
    if dataset == PACKAGES:
        withheld = set(latest_classes(stream, sections))
    given = {} if method == "analytic" else settings
    preset = dataset if dataset in read_presets() and method != "analytic" else None
    clf = ContinualNodeClassifier(method, preset=preset, seed=seed, settings=given, device=device)
    started, nodes, edges = time.perf_counter(), 0, 0
    for task in stream.tasks:
        rows = torch.arange(nodes, task.num_nodes)
        labels = stream.labels[task.train_nodes].tolist()
        pairs = zip(task.train_nodes.tolist(), labels, strict=True)
        clf.learn(
            rows.tolist(),
            stream.features[rows],
            stream.edges[:, edges : task.num_edges].T.tolist(),
            {node: label for node, label in pairs if label not in withheld},
        )
        nodes, edges = task.num_nodes, task.num_edges
    learned = time.perf_counter() - started
    judged = torch.cat([stream.evaluation(task).nodes for task in range(stream.num_tasks)])
    truth = stream.labels.numpy()
    known = judged.numpy()[~np.isin(truth[judged], list(withheld))]
    unknown = np.flatnonzero(np.isin(truth[:nodes], list(withheld)))
    asked = np.concatenate([known, unknown])
    new = np.arange(asked.size) >= known.size
    begun = time.perf_counter()
    novelty = clf.novelty(asked)
    refused = np.array([name is None for name in clf.predict(asked, reject=0.05)])
    seconds = time.perf_counter() - begun
    found = clf.novel_nodes()
    there = np.array(found["id"])
    which = np.isin(there, unknown)
    groups, classes = found["group"][which], truth[there[which]]
    best = [np.unique(classes[groups == one], return_counts=True)[1].max() for one in set(groups)]
    return {
        "auroc": float(roc_auc_score(new, novelty)),
        "by_p": float(roc_auc_score(new, -clf.predict_proba(asked).max(axis=1))),
        "kept": 100 * float(1 - refused[~new].mean()),
        "found": 100 * float(refused[new].mean()),
        "groups": int(found["group"].max(initial=0)),
        "purity": 100 * float(sum(best) / max(len(classes), 1)),
        "accuracy": 100 * float((clf.predict(known) == truth[known]).mean()),
        "known": known.size,
        "unknown": unknown.size,
        "held_out": clf.history_[-1]["held_out"],
        "learn_seconds": learned,
        "novelty_seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--method", action="append", required=True)
    parser.add_argument("--seeds", default="5-9", help="first and last")
    parser.add_argument("--set", action="append", default=[], help="key=value for networks")
    parser.add_argument("--sections", type=int, default=5, help="packages: classes withheld")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    first, last = map(int, options.seeds.split("-"))
    settings = parse_settings(options.set)
    for method in options.method:
        runs = []
        for seed in range(first, last + 1):
            asked = {"sections": options.sections, "device": options.device}
            runs.append(measure(options.dataset, method, seed, settings, **asked))
            shown = {key: round(value, 4) for key, value in runs[-1].items()}
            print(json.dumps({"method": method, "seed": seed, **shown}), flush=True)
        mean = {key: round(float(np.mean([run[key] for run in runs])), 4) for key in runs[0]}
        what = {"dataset": options.dataset, "method": method, "seeds": options.seeds}
        print(json.dumps({**what, **mean}), flush=True)


if __name__ == "__main__":
    main()
