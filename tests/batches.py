"""What tests of the estimator share: a stream cut into batches, and small settings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.content import state_content
from evergraph.estimator.graph import Grown
from evergraph.files import checksum
from evergraph.methods import METHODS
from evergraph.stream import TaskStream

SMALL = {"epochs": 3, "channels": 4, "heads": 2}


def settings_of(method: str, buffer_size: int = 12) -> dict[str, Any]:
    """Returns settings that make any method quick."""
    known = METHODS[method].Config.model_fields
    wanted = {"buffer_size": buffer_size, "link_epochs": 3, "controller_steps": 2}
    wanted |= {"condense_steps": 3}
    wanted |= {"statistics": "follow", "constant": False}  # as in runs
    return {**SMALL, **{key: value for key, value in wanted.items() if key in known}}


def quick(method: str = "replay", **parameters: Any) -> ContinualNodeClassifier:
    """Makes an estimator that learns in no time."""
    settings = {**settings_of(method), **parameters.pop("settings", {})}
    return ContinualNodeClassifier(method, settings=settings, device="cpu", **parameters)


def batches(stream: TaskStream) -> Iterator[dict[str, Any]]:
    """Cuts a stream into what an estimator is given: ids are rows, classes are numbers."""
    first = edge = 0
    for task in stream.tasks:
        rows = range(first, task.num_nodes)
        labels = stream.labels[task.train_nodes].tolist()
        yield {
            "ids": list(rows),
            "x": stream.features[stream.original_ids.new_tensor(list(rows))],
            "edges": stream.edges[:, edge : task.num_edges].T.tolist(),
            "labels": dict(zip(task.train_nodes.tolist(), labels, strict=True)),
        }
        first, edge = task.num_nodes, task.num_edges


def stored(clf: ContinualNodeClassifier) -> str:
    """Returns a checksum of what would be saved of an estimator, but predictions: they follow."""
    content = state_content(clf._now())
    return checksum(plain({key: part for key, part in content.items() if key != "predicted"}))


def plain(content: Any) -> Any:
    """Returns content with arrays that grow as tensors."""
    if isinstance(content, dict):
        return {key: plain(part) for key, part in content.items()}
    return content.tensor if isinstance(content, Grown) else content


def contents(folder: Path) -> list[tuple[str, int, Any]]:
    """Lists the checksums of all that a state holds: they cover every array and every value."""
    with closing(sqlite3.connect(folder / "state.sqlite")) as db:
        queries = [f"SELECT '{t}', number, sha256 FROM {t}" for t in ("version", "pending")]
        queries.append("SELECT base, start, crc32 FROM block ORDER BY base, start")
        return [row for query in queries for row in db.execute(query).fetchall()]
