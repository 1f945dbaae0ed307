"""The frontier: what accuracy costs in bytes kept and in seconds, for every method.

A point is a method on a dataset, averaged over seeds. It is on the frontier of bytes (or of
seconds) when no other point of its dataset is at least as accurate for at most as much, and
better in one of the two. A method that reads old labels sets the mark and does not compete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from evergraph.errors import InputError
from evergraph.experiments.config import Variant
from evergraph.experiments.files import read_json
from evergraph.experiments.presets import PRESETS
from evergraph.experiments.summary import summarise_grid
from evergraph.methods import method_class
from evergraph.stream.datasets import DATASETS

#: What is compared unless methods are named: the analytic learner down to kilobytes, the paper's
#: method, replay, and the two ends of the scale.
METHODS = (
    "analytic",
    "analytic:statistics=refresh@analytic-refresh",
    "analytic:precision=single@analytic-single",
    "analytic:precision=single,rank=64@analytic-rank-64",
    "analytic:precision=single,rank=15@analytic-rank-15",  # within the paper's buffer
    "analytic:precision=single,rank=3@analytic-rank-3",
    "analytic:precision=single,rank=15,projection=256@analytic-256-rank-15",
    "analytic:precision=single,rank=7,projection=64@analytic-64-rank-7",
    "dslr",
    "replay:selector=mf@replay-mf",
    "replay:selector=cd@replay-cd",
    "replay",
    "joint",
    "finetune",
)
DATASET_NAMES = ("cora", "citeseer", "amazon-computers")
Cost = Literal["bytes", "seconds"]


@dataclass(frozen=True)
class Point:
    """One method on one dataset: means over seeds, the most bytes kept, seconds of a run."""

    dataset: str
    label: str
    method: str
    seeds: int
    pm: float
    pm_std: float | None
    fm: float | None
    bytes: int
    seconds: float
    device: str
    reference: bool = False  # reads old labels
    frontier: tuple[Cost, ...] = ()


def collect_points(folder: Path) -> list[Point]:
    """Reads the finished runs below a folder and marks who is on a frontier.

    Methods are averaged over the seeds that all of a dataset's have, so that nobody has easier
    splits than the others.
    """
    results = []
    devices: dict[tuple[str, str], set[str]] = {}
    seeds: dict[tuple[str, str], set[int]] = {}
    for path in sorted(folder.glob("**/results.json")):
        result = read_json(path)
        results.append(result)
        place = path.with_name("environment.json")
        name = read_json(place)["device_name"] if place.exists() else "unknown"
        cell = (result["dataset"], result["label"])
        devices.setdefault(cell, set()).add(name)
        seeds.setdefault(cell, set()).add(result["seed"])
    shared = {
        dataset: set.intersection(*(own for (d, _), own in seeds.items() if d == dataset))
        for dataset, _ in seeds
    }
    fair = [result for result in results if result["seed"] in shared[result["dataset"]]]
    if len({result["dataset"] for result in fair}) < len(shared):
        raise InputError(
            f"Expected the methods of a dataset to share a seed (got none in '{folder}'); run the "
            "missing ones."
        )
    points = mark_frontiers(_point(entry, devices) for entry in summarise_grid(fair))
    rank = {name: place for place, name in enumerate(DATASET_NAMES)}
    return sorted(points, key=lambda point: rank.get(point.dataset, len(rank)))


def mark_frontiers(points: Iterable[Point]) -> list[Point]:
    """Says of every point which frontiers of its dataset it is on."""
    known = list(points)
    marked = []
    for point in known:
        rivals = [p for p in known if p.dataset == point.dataset and not p.reference]
        costs: tuple[Cost, ...] = () if point.reference else ("bytes", "seconds")
        on = tuple(cost for cost in costs if not any(_beats(r, point, cost) for r in rivals))
        marked.append(Point(**{**vars(point), "frontier": on}))
    return marked


def table_rows(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Lists the points as plain values, the most accurate of each dataset first."""
    order = {name: place for place, name in enumerate(dict.fromkeys(p.dataset for p in points))}
    ranked = sorted(points, key=lambda point: (order[point.dataset], -point.pm))
    return [{**asdict(point), "frontier": list(point.frontier)} for point in ranked]


def buffer_bytes(dataset: str) -> int | None:
    """Counts the paper's buffer: ids and labels of its nodes, and their features as float32."""
    name = Variant.parse_dataset(dataset).name
    size = PRESETS.get(name, {}).get("buffer_size")
    if size is None or name not in DATASETS:
        return None
    return int(size) * (8 + 8 + 4 * DATASETS[name].features)


def _point(entry: dict[str, Any], devices: dict[tuple[str, str], set[str]]) -> Point:
    return Point(
        dataset=entry["dataset"],
        label=entry["label"],
        method=entry["method"],
        seeds=len(entry["seeds"]),
        pm=entry["pm"]["mean"],
        pm_std=entry["pm"]["std"],
        fm=entry["fm"]["mean"],
        bytes=entry["memory_bytes"],
        seconds=entry["seconds"]["mean"],
        reference="old_labels" in method_class(entry["method"]).needs,
        device=" and ".join(sorted(devices[entry["dataset"], entry["label"]])),
    )


def _beats(other: Point, point: Point, cost: Cost) -> bool:
    """Tells whether one point is at least as good in both respects and better in one."""
    theirs, ours = getattr(other, cost), getattr(point, cost)
    return other.pm >= point.pm and theirs <= ours and (other.pm > point.pm or theirs < ours)
