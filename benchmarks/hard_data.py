"""Data that are hard: rare classes, neighbours that mislead, wrong labels taken back, membership.

Prints a line for each case, method and seed, beside logistic regression on the same features::

    python benchmarks/hard_data.py imbalance --method auto --method replay --seeds 3
    python benchmarks/hard_data.py neighbours --method auto --method dslr --seeds 3
    python benchmarks/hard_data.py wrong-labels
    python benchmarks/hard_data.py membership --method replay --method dslr --seeds 3
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from evergraph import ContinualNodeClassifier

Array = np.ndarray[Any, np.dtype[Any]]
METRICS = ("accuracy", "balanced_accuracy")


def settings_of(method: str, epochs: int) -> dict[str, Any]:
    """Returns few epochs for networks."""
    return {} if method in {"auto", "analytic"} else {"epochs": epochs}


def learned(
    method: str, graph: tuple[Array, Array, Array], shown: Array, seed: int, **settings: Any
) -> ContinualNodeClassifier:
    """Learns the labels of some nodes; the others are there without."""
    x, labels, edges = graph
    known = [int(label) if one else None for label, one in zip(labels, shown, strict=True)]
    clf = ContinualNodeClassifier(method, seed=seed, device="cpu", settings=settings)
    return clf.learn(list(range(len(labels))), x, edges, known)


def joined(rng: np.random.Generator, labels: Array, degree: int, alike: float) -> Array:
    """Draws edges, a share of them within classes."""
    source = np.repeat(np.arange(labels.size), degree)
    target = rng.integers(0, labels.size, source.size)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        at = np.flatnonzero((labels[source] == label) & (rng.random(source.size) < alike))
        target[at] = rng.choice(mine, at.size)
    return np.stack([source, target], axis=1)


def imbalance(method: str, seed: int, epochs: int) -> None:
    """Two classes of a weak signal, one rare; accuracy as if the nodes asked were as uneven."""
    for ratio, rare in ((100, 50), (1000, 20)):
        rng = np.random.default_rng([seed, ratio])
        counts = (ratio * rare, rare, 2_000, 200)  # learned, then asked
        labels = np.repeat([0, 1, 0, 1], counts)
        shown = np.arange(labels.size) < sum(counts[:2])
        x = rng.normal(size=(labels.size, 8)) + 0.8 * labels[:, None]
        graph = x, labels, joined(rng, labels, 3, 0.5)
        for metric in METRICS:
            weight = None if metric == "accuracy" else "balanced"
            plain = LogisticRegression(max_iter=1000, class_weight=weight)
            plain.fit(x[shown], labels[shown])
            clf = learned(method, graph, shown, seed, metric=metric, **settings_of(method, epochs))
            told = []
            for found in (plain.predict(x[~shown]), clf.predict()[~shown]):
                right = found == labels[~shown]
                recall = [right[labels[~shown] == label].mean() for label in (0, 1)]
                shares = (ratio, 1) if metric == "accuracy" else (1, 1)
                told.append(100 * float(np.average(recall, weights=shares)))
            print(
                f"{ratio}:1 {metric:17} {method:9} seed {seed}: plain {told[0]:.2f} "
                f"ours {told[1]:.2f}"
            )


def neighbours(method: str, seed: int, epochs: int) -> None:
    """Five classes whose neighbours are of any class, or of the next one."""
    for kind, signal in (("random", 0.3), ("random", 0.75), ("ring", 0.3), ("ring", 0.75)):
        rng = np.random.default_rng([seed, int(100 * signal)])
        labels = rng.integers(0, 5, 2_000)
        x = signal * rng.normal(size=(5, 16))[labels] + rng.normal(size=(2_000, 16))
        edges = joined(rng, labels, 4, 0.0)
        if kind == "ring":
            members = [np.flatnonzero(labels == label) for label in range(5)]
            edges[:, 1] = [rng.choice(members[(labels[at] + 1) % 5]) for at in edges[:, 0]]
        shown = rng.random(2_000) < 0.5
        plain = LogisticRegression(max_iter=1000).fit(x[shown], labels[shown])
        clf = learned(method, (x, labels, edges), shown, seed, **settings_of(method, epochs))
        ours = 100 * float((clf.predict() == labels)[~shown].mean())
        theirs = 100 * plain.score(x[~shown], labels[~shown])
        said = any("mislead" in text for text in clf.diagnose()["warnings"])
        print(
            f"{kind:6} signal {signal} {method:9} seed {seed}: plain {theirs:.1f} ours {ours:.1f}"
            f"{' (said)' if said else ''}"
        )


def wrong_labels(method: str, seed: int, epochs: int) -> None:
    """4,000 nodes with their labels, then 4,000 with any, removed or corrected."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, 10_000)
    x = rng.normal(size=(10, 32))[labels] + 1.5 * rng.normal(size=(10_000, 32))
    edges = joined(rng, labels, 3, 0.6)
    names = np.arange(10_000)
    first = (edges < 4_000).all(axis=1) | (edges >= 8_000).any(axis=1) & ~(
        (edges >= 4_000) & (edges < 8_000)
    ).any(axis=1)
    good = np.concatenate([names[:4_000], names[8_000:]])
    known = [
        int(label) if name < 4_000 else None for name, label in zip(good, labels[good], strict=True)
    ]
    clf = ContinualNodeClassifier(
        method, seed=seed, device="cpu", settings=settings_of(method, epochs)
    )
    clf.learn(good.tolist(), x[good], edges[first], known)
    asked, truth = names[8_000:].tolist(), labels[8_000:].tolist()
    told = {"before": clf.score(asked, truth)}
    bad = names[4_000:8_000].tolist()
    state = clf.learn(bad, x[bad], edges[~first], rng.integers(0, 10, 4_000).tolist())._now()
    told["wrong"] = clf.score(asked, truth)
    told["removed"] = clf.remove(bad).score(asked, truth)
    clf._state = state
    told["corrected"] = clf.update(bad, labels=labels[bad].tolist()).score(asked, truth)
    print(f"{method} seed {seed}:", ", ".join(f"{k} {100 * v:.2f}" for k, v in told.items()))


def membership(method: str, seed: int, epochs: int) -> None:
    """Tells nodes whose labels were learned from others by the loss of their label.

    A member is one of 200 nodes with labels that say nothing of their features, so that to fit
    them is to remember them; the others are drawn alike and never learned. More labels come before
    the members are removed. The attacker puts them back into the graph, without their labels.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, 1_400)
    x = rng.normal(size=(5, 64))[labels] + 1.5 * rng.normal(size=(1_400, 64))
    labels[1_000:] = rng.integers(0, 5, 400)
    edges = joined(rng, labels, 2, 0.3)
    edges = edges[(edges < 1_000).any(axis=1)]
    names, members, late = np.arange(1_400), list(range(1_000, 1_200)), list(range(600, 1_000))
    shown = (names < 600) | np.isin(names, members)
    clf = learned(method, (x, labels, edges), shown, seed, **settings_of(method, epochs))
    clf.update(late, labels=labels[late].tolist())

    def auc() -> float:
        asked = np.arange(1_000, 1_400)
        own = np.searchsorted(clf.classes_, labels[asked])
        sure = clf.predict_proba(asked.tolist())[np.arange(400), own]
        return 100 * float(roc_auc_score(asked < 1_200, sure))

    told = {"learned": auc()}
    kept = {node: int(label) for node, label in enumerate(labels[:1_000])}
    mine = edges[((edges >= 1_000) & (edges < 1_200)).any(axis=1)]
    clf.remove(members).learn(members, x[members], mine)
    told["removed"] = auc()
    held = clf._now().held_out.nodes.tolist()
    clf.refit({node: label for node, label in kept.items() if node not in held})
    told["refit"] = auc()
    print(f"{method} seed {seed}:", ", ".join(f"{k} {v:.1f}" for k, v in told.items()), flush=True)


CASES = {
    "imbalance": imbalance,
    "neighbours": neighbours,
    "wrong-labels": wrong_labels,
    "membership": membership,
}


def main() -> None:
    """Reads the arguments and runs a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--method", action="append")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=100)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for method in given.method or ["auto"]:
        for seed in range(given.seeds):
            begin = time.process_time()
            CASES[given.case](method, seed, given.epochs)
            print(f"  {time.process_time() - begin:.1f} CPU-seconds", flush=True)


if __name__ == "__main__":
    main()
