"""Settings per dataset: the paper's hyper-parameters, and what it leaves open as tuned."""

from __future__ import annotations

from typing import Any

#: Keys apply to every method that has them, so that a comparison differs in the method alone.
PRESETS: dict[str, dict[str, Any]] = {
    "cora": {
        "buffer_size": 100,
        "beta": 0.1,
        "r": 0.1,
        "dropout": 0.35,
        "head_init": "uniform",
        "label_smoothing": 0.2,
    },
    "citeseer": {
        "buffer_size": 100,
        "beta": 0.1,
        "r": 0.1,
        "dropout": 0.5,
        "head_init": "uniform",
        "label_smoothing": 0.2,
    },
    "amazon-computers": {
        "buffer_size": 200,
        "beta": 0.3,
        "r": 0.1,
        "dropout": 0.2,
        "head_init": "default",
        "label_smoothing": 0.1,
    },
    "ogbn-arxiv": {"buffer_size": 3000, "beta": 0.05, "r": 0.15},
    "reddit": {"buffer_size": 3000, "beta": 0.05, "r": 0.15},
}
