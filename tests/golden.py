"""Golden trajectories: small runs of every method on every backbone, as 0.1.0 recorded them.

``tests/data/v0.1.0/trajectories.json`` holds the loss of every epoch, the accuracy matrix and the
bytes kept of each case; ``estimators.json`` what classifiers predicted after each of some changes.
Methods run with the settings of then; ``v0.2.0`` holds cases with what could not be set before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

DATASET = (
    "synthetic:nodes=120,classes=6,feature_dim=12,mean_degree=5,homophily=0.7,feature_signal=2"
)
SETTINGS: dict[str, Any] = {
    "epochs": 6,
    "link_epochs": 4,
    "channels": 4,
    "heads": 2,
    "buffer_size": 18,
    "num_candidates": 8,
    "num_neighbors": 2,
    "num_probes": 8,
    "exact_nodes": 4,
    "num_nodes": 16,
    "controller_steps": 2,
}
METHODS = (
    "finetune",
    "joint",
    "replay",
    "er-gnn",
    "gem",
    "dslr",
    "lwf",
    "rclg",
    "ewc",
    "mas",
    "twp",
    "continual-gnn",
    "analytic",
    "homophily-probe",
)
#: What `analytic` does as 0.1.0 did, where its defaults have changed since.
FORMER_ANALYTIC = {
    "statistics": "follow",
    "constant": False,
    "combine": "sum",
    "normalisation": "symmetric",
    "precision": "double",
}
SELECTORS = ("random", "mf", "cm", "cd", "im", "importance")
VARIANTS = (
    "dslr:structure=none",
    "dslr:structure=homophily",
    "dslr:candidates=entire",
    "dslr:addition=threshold",
    "dslr:deletion=lowest",
    "dslr:sl_ratio=0.5",
    "dslr:lam=0.25,tau=0.9",
    "dslr:replay_weights=balanced,label_smoothing=0.1,head_init=default",
    "dslr:beta=none",
    "joint:warm_start=true",
    "finetune:attention=plain",
    "finetune:num_layers=3,dropout=0",
    "analytic:statistics=refresh",
    "analytic:statistics=arrival",
    "analytic:rows=encoder",
    "analytic:rank=3,precision=single",
    "analytic:projection=8,activation=cos",
    "analytic:projection=8,activation=relu",
    "analytic:combine=concatenate,hops=0+1",
    "analytic:scaling=none,normalisation=mean,self_loops=false",
    "analytic:share=0.5,beliefs='off'",
    "analytic:beliefs='on',strength=0.001",
)


def cases() -> dict[str, str]:
    """Returns every variant as on the command line, by the name of its case."""
    found = {}
    for method in METHODS:
        for backbone in ("gat", "gcn", "sage"):
            if backbone == "gat" or method not in {"rclg", "analytic"}:
                found[f"{method} {backbone}"] = f"{method}:backbone={backbone}"
        if method != "analytic":
            found[f"{method} sampled"] = f"{method}:batch_size=16,fanout=3"
    for selector in SELECTORS:
        found[f"replay {selector}"] = f"replay:selector={selector}"
    return found | {text: text for text in VARIANTS}


def newer_cases() -> dict[str, str]:
    """Returns what 0.1.0 could not do and 0.2.0 recorded, in a file of its own."""
    cases_of = cases()
    heads = [name for name in cases_of if name.split()[0] in {"lwf", "ewc", "mas", "twp"}]
    variants = (
        "lwf:distill_over=seen",
        "twp:squares=node",
        "dslr:link_loss=sum,add_among=any,embedding=logits",
    )
    return {name: cases_of[name] for name in heads} | {text: text for text in variants}


def former(method: str) -> dict[str, Any]:
    """Returns settings that a method must be given to mean what it meant in 0.1.0."""
    return FORMER_ANALYTIC if method.partition(":")[0] == "analytic" else {}


def changes() -> list[tuple[str, dict[str, Any]]]:
    """Lists what happens to an estimator, one after the other: calls with their arguments."""
    rng = np.random.default_rng(0)
    ids = [f"n{i}" for i in range(90)]
    names = ["abcde"[i % 5] for i in range(90)]
    x = rng.normal(size=(90, 6)) + 2 * np.eye(6)[[i % 5 for i in range(90)]]
    ends = [(i, j) for i, j in rng.integers(0, 90, size=(400, 2)).tolist() if i != j]
    near = [(i, j) for i, j in ends if (i - j) % 5 == 0 or (i + j) % 3 == 0]
    gone = range(5, 9)

    def part(first: int, last: int, classes: str) -> dict[str, Any]:
        new = [(i, j) for i, j in near if first <= max(i, j) < last]
        if last == 90:
            new = [(i, j) for i, j in new if i not in gone and j not in gone]
        labels = [n if n in classes and i % 3 else None for i, n in enumerate(names)]
        return {
            "ids": ids[first:last],
            "x": x[first:last],
            "edges": [(ids[i], ids[j]) for i, j in new],
            "labels": labels[first:last],
        }

    return [
        ("learn", part(0, 40, "ab")),
        ("learn", part(40, 70, "cd")),
        ("update", {"ids": ids[10:24], "x": x[11:25], "labels": ["a", "b"] * 7}),
        ("remove", {"ids": [ids[i] for i in gone]}),
        ("learn", part(70, 90, "ae")),
    ]
