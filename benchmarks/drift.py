"""Drift alarms: raised where a frozen model falls, silent where batches are random.

    python benchmarks/drift.py releases             # Ubuntu packages, release by release
    python benchmarks/drift.py random --batches 200  # the packages of the first release, shuffled
    python benchmarks/drift.py labelled --seeds 20   # Cora in random batches with labels

``releases``: ``analytic`` learns the first release; the others come without labels. Printed is, for
each release, the accuracy on the packages that are new in it and the alarms that were raised.
``random``: a model of some of the first release's packages gets the others in random batches
without labels; ``labelled`` learns random batches. Printed is how many changes raised an alarm, by
kind (the stated rate is ``FALSE_ALARMS`` in ``estimator/watch.py``, all kinds together), and how
many had a small p.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter

import numpy as np
import torch

from evergraph import ContinualNodeClassifier
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

#: Of comparisons that are made once a change, such a share is to have less.
SMALL = 0.2


def alarms(clf: ContinualNodeClassifier) -> list[dict[str, object]]:
    return [one for one in clf.history_[-1]["watch"] if one["alarm"]]


def releases(seed: int) -> None:
    """Freezes the model of the first release and lets the others come."""
    stream = TaskStream(load_graph("ubuntu-packages"), protocol_for("ubuntu-packages"), seed=seed)
    clf = ContinualNodeClassifier("analytic", seed=seed, settings={"statistics": "follow"})
    nodes, edges, truth = 0, 0, stream.labels.numpy()
    for number, task in enumerate(stream.tasks):
        rows = torch.arange(nodes, task.num_nodes)
        known = task.train_nodes.tolist() if number == 0 else []
        batch = stream.edges[:, edges : task.num_edges].T.numpy()
        clf.learn(rows.numpy(), stream.features[rows], batch, {row: truth[row] for row in known})
        judged = np.setdiff1d(rows.numpy(), known)
        judged = judged[np.isin(truth[judged], clf.classes_)]
        judged = judged[:: max(1, judged.size // 3000)]
        right = clf.predict(judged) == truth[judged]
        told = {
            "release": number + 1,
            "new": len(rows),
            "accuracy": round(100 * right.mean(), 2),
            "error": round(100 * right.std() / right.size**0.5, 2),
            "watch": [
                [one["kind"], one["where"], one["value"], one["before"], one["p"], one["alarm"]]
                for one in clf.history_[-1]["watch"]
            ],
            "warnings": [text for text in clf.diagnose()["warnings"] if "no held-out" not in text],
        }
        print(json.dumps(told), flush=True)
        nodes, edges = task.num_nodes, task.num_edges


def shuffled(
    dataset: str, seed: int, sizes: tuple[int, int, int], labelled: float = 0.0
) -> tuple[int, Counter[str]]:
    """Takes the nodes of a graph's first time in random order, half of the first batch labelled.

    Sizes are of the first batch and the others, and how many there are. Counts changes and alarms.
    """
    first, size, batches = sizes
    graph = load_graph(dataset)
    there = np.arange(graph.num_nodes) if graph.time is None else np.flatnonzero(graph.time == 0)
    order = np.random.default_rng(seed).permutation(there)
    place = np.full(graph.num_nodes, -1)
    place[order] = np.arange(order.size)
    ends = place[graph.edges.numpy()]
    ends = ends[:, (ends >= 0).all(axis=0)]
    since = ends.max(axis=0)
    clf = ContinualNodeClassifier("analytic", seed=seed, settings={"statistics": "follow"})
    stops = [first + size * number for number in range(batches + 1)]
    count, found = 0, Counter[str]()
    for start, stop in zip([0, *stops], stops, strict=False):
        if stop > order.size:
            break
        rows = np.arange(start, stop)
        edges = ends[:, (since >= start) & (since < stop)].T
        share = 0.5 if start == 0 else labelled
        known = rows[: int(share * rows.size)]
        labels = {int(row): int(graph.y[order[row]]) for row in known}
        clf.learn(rows, graph.x[torch.from_numpy(order[rows])], edges, labels)
        if start:
            count += 1
            found["any"] += bool(alarms(clf))
            found.update({str(one["kind"]) for one in alarms(clf)})
            below = [one for one in clf.history_[-1]["watch"] if one["p"] < SMALL]
            found.update({f"{one['kind']}, p < {SMALL}" for one in below})
    return count, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("releases", "random", "labelled"))
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--size", type=int, default=200, help="nodes in a random batch")
    parser.add_argument("--first", type=int, default=11_000, help="nodes before the first of them")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.what == "releases":
        releases(seed=0)
        return
    count, found = 0, Counter[str]()
    for seed in range(options.seeds):
        if options.what == "random":
            sizes = (options.first, options.size, options.batches)
            more, also = shuffled("ubuntu-packages", seed, sizes)
        else:
            more, also = shuffled("cora", seed, (700, 250, 8), labelled=0.5)
        count, found = count + more, found + also
    print(json.dumps({"what": options.what, "changes": count, "alarms": dict(found)}), flush=True)


if __name__ == "__main__":
    main()
