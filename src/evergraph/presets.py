"""Settings per dataset: the paper's hyper-parameters, and what it leaves open as tuned."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml

from evergraph.lab.paper.numbers import paper_numbers
from evergraph.methods import method_class

Presets = Literal["tuned", "printed"]

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

#: Where a method would not train safely with what all share: dataset → method → settings. With
#: 0.2 a run of DSLR now and then leaves a class of Citeseer unlearnt (decision 0005).
SAFER: dict[str, dict[str, dict[str, Any]]] = {"citeseer": {"dslr": {"label_smoothing": 0.1}}}

#: What the paper does not speak of, switched off: how a run reads to the letter.
PLAIN: dict[str, Any] = {
    "dropout": 0.0,
    "head_init": "uniform",
    "label_smoothing": 0.0,
    "replay_weights": "none",
}


@cache
def tuned() -> dict[str, dict[str, dict[str, Any]]]:
    """Reads what tuning chose, dataset → method → settings; ``scripts/adopt_tuning.py`` writes it.

    A method's own values stand before those that all methods share.
    """
    text = resources.files("evergraph").joinpath("tuned.yaml").read_text("utf-8")
    values: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text) or {}
    return values


def preset_for(dataset: str, method: str, presets: Presets = "tuned") -> dict[str, Any]:
    """Returns a method's settings on a dataset, {} where there are none; some may not be its.

    ``printed`` are those of the paper's Table 10 without what we added to training; methods
    that it compares with then have their own papers' defaults.
    """
    own = method_class(method).own_keys
    if presets == "printed":
        table = paper_numbers()["hyperparameters"].get(dataset, {}).get("dslr", {})
        return {key: value for key, value in (PLAIN | table).items() if key not in own}
    shared = {key: value for key, value in PRESETS.get(dataset, {}).items() if key not in own}
    safer = SAFER.get(dataset, {}).get(method, {})
    return shared | safer | tuned().get(dataset, {}).get(method, {})
