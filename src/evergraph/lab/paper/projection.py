"""Embeddings in the plane: by t-SNE, and of a run's first task as Figure 1 shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evergraph.lab.folder import read_checkpoint


def first_task_plane(folders: Mapping[str, Path], seed: int = 0) -> dict[str, Any] | None:
    """Projects the training nodes of the first task with t-SNE, from run folders by title.

    Runs of one seed that differ in their selector alone share the model of the first task, so
    that one plane serves all; each brings the nodes that it kept. Returns ``{"places", "labels",
    "kept"}`` as lists, None where a checkpoint is gone.
    """
    states = {}
    for title, folder in folders.items():
        state = read_checkpoint(folder / "checkpoint")
        if state is None:
            return None
        states[title] = state
    classes: Mapping[str, Mapping[str, Tensor]]
    classes = next(iter(states.values()))["done"][0]["embeddings"]
    h, nodes = (torch.cat([part[key] for part in classes.values()]) for key in ("h", "nodes"))
    labels = [int(label) for label, part in classes.items() for _ in part["nodes"]]
    kept = {}
    for title, state in states.items():
        picks: Mapping[str, Tensor] = state["method"]["buffer"]["picks"]
        kept[title] = torch.isin(nodes, torch.cat(list(picks.values()))).tolist()
    return {"places": project(h, seed), "labels": labels, "kept": kept}


def project(h: Tensor, seed: int = 0) -> list[list[float]]:
    """Lays points out in the plane by t-SNE, ``[n, 2]``; fewer than four stay where they are."""
    if h.shape[0] < 4 or h.shape[1] < 2:
        return [[*map(float, point), 0.0, 0.0][:2] for point in h]
    from sklearn.manifold import TSNE  # noqa: PLC0415 - a second of import that few commands need

    perplexity = min(30.0, max(1.0, (h.shape[0] - 1) / 3))
    places = TSNE(random_state=seed, init="pca", perplexity=perplexity, n_jobs=1).fit_transform(
        h.numpy()
    )
    return [[round(float(x), 2), round(float(y), 2)] for x, y in places]
