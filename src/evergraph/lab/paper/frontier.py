"""The frontier: what accuracy costs in bytes kept and in seconds, for every method.

A point is a method on a dataset, averaged over seeds. It is on the frontier of bytes (or of
seconds) when no other point of its dataset is at least as accurate for at most as much, and
better in one of the two. A method that reads old labels sets the mark and does not compete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from evergraph.config import Variant, preset_for
from evergraph.methods import method_class
from evergraph.stream.datasets import DATASETS

Cost = Literal["bytes", "seconds"]


@dataclass(frozen=True)
class Point:
    """One method on one dataset: means over seeds of PM, bytes kept and seconds of a run."""

    dataset: str
    label: str
    method: str
    pm: float
    pm_std: float | None
    bytes: int
    seconds: float
    reference: bool = False  # reads old labels
    frontier: tuple[Cost, ...] = ()


def points_of(outcome: Mapping[str, Any]) -> list[Point]:
    """Reads the points of an experiment's outcome and marks who is on a frontier."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in outcome["entries"]:
        if row["seeds"]:
            found.setdefault((row["dataset"], row["row"]), {})[row["metric"]] = row
    points = []
    for (dataset, label), by_metric in found.items():
        pm, kept, seconds = (by_metric[key] for key in ("pm", "bytes", "seconds"))
        method = pm["method"].partition(":")[0]
        reference = "old_labels" in method_class(method).needs
        cost = (round(kept["mean"]), seconds["mean"])
        points.append(Point(dataset, label, method, pm["mean"], pm["std"], *cost, reference))
    return mark_frontiers(points)


def mark_frontiers(points: Iterable[Point]) -> list[Point]:
    """Says of every point which frontiers of its dataset it is on."""
    known = list(points)
    marked = []
    for point in known:
        rivals = [p for p in known if p.dataset == point.dataset and not p.reference]
        costs: tuple[Cost, ...] = () if point.reference else ("bytes", "seconds")
        on = tuple(cost for cost in costs if not any(_beats(r, point, cost) for r in rivals))
        marked.append(replace(point, frontier=on))
    return marked


def buffer_bytes(dataset: str) -> int | None:
    """Counts the paper's buffer: ids and labels of its nodes, and their features as float32."""
    name = Variant.parse_dataset(dataset).name
    size, _ = preset_for(name, "dslr").get("buffer_size", (None, ""))
    if size is None or name not in DATASETS:
        return None
    return int(size) * (8 + 8 + 4 * DATASETS[name].features)


def _beats(other: Point, point: Point, cost: Cost) -> bool:
    """Tells whether one point is at least as good in both respects and better in one."""
    theirs, ours = getattr(other, cost), getattr(point, cost)
    return other.pm >= point.pm and theirs <= ours and (other.pm > point.pm or theirs < ours)
