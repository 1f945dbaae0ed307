"""Settings per dataset: the paper's hyper-parameters, and what it leaves open as tuned."""

from __future__ import annotations

from typing import Any

#: Keys apply to every method that has them, so that a comparison differs in the method alone;
#: only what a method lists in ``own_keys`` stays its own.
PRESETS: dict[str, dict[str, Any]] = {
    "cora": {
        "buffer_size": 100,
        "beta": 0.1,
        "dropout": 0.5,
        "head_init": "default",
        "label_smoothing": 0.1,
        "replay_weights": "balanced",
        "lam": 1.0,
        "num_neighbors": 3,
        "num_candidates": 25,
        "tau": 0.75,
        "r": 0.2,
    },
    "citeseer": {
        "buffer_size": 100,
        "beta": 0.1,
        "dropout": 0.5,
        "head_init": "uniform",
        "label_smoothing": 0.2,
        "lam": 1.0,
        "num_neighbors": 5,
        "num_candidates": 75,
        "tau": 0.95,
        "r": 0.1,
    },
    "amazon-computers": {
        "buffer_size": 200,
        "beta": 0.3,
        "dropout": 0.2,
        "head_init": "default",
        "label_smoothing": 0.1,
        "lam": 1.0,
        "num_neighbors": 3,
        "num_candidates": 25,
        "tau": 0.75,
        "r": 0.2,
    },
    "ogbn-arxiv": {"buffer_size": 3000, "beta": 0.05, "r": 0.15},
    "reddit": {"buffer_size": 3000, "beta": 0.05, "r": 0.15},
}
