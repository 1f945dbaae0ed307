"""The columns that experiments share: where each value stands in a run's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergraph.lab.paper.experiment import Metric, Results, Row


def _at(*path: str) -> Callable[[Results, Row], float | None]:
    """Reads a value by its path in the results, None where the path ends early."""

    def read(results: Results, row: Row) -> float | None:
        found: Any = results
        for key in path:
            if not isinstance(found, dict):
                return None
            found = found.get(row.view if key == "VIEW" else key)
        return None if found is None else float(found)

    return read


def _per_task(*stages: str) -> Callable[[Results, Row], float | None]:
    """Reads the seconds of some stages per task that has them: all but the last, or the first."""

    def read(results: Results, row: Row) -> float | None:
        known = [results["seconds"][stage] for stage in stages if stage in results["seconds"]]
        tasks = max(len(results["tasks"]) - 1, 1)
        return sum(known) / tasks if known else None

    return read


def _whole_task(unit: float) -> Callable[[Results, Row], float | None]:
    return lambda results, row: results["seconds"]["total"] / len(results["tasks"]) / unit


_DIAGNOSED = "diagnostics"

PM = Metric("pm", "PM ↑", _at("pm"))
FM = Metric("fm", "FM ↓", _at("fm"), better=-1)
CURRENT = Metric("current", "Current ↑", _at("current"))
DIVERSITY = Metric(
    "diversity", "diversity", _at(_DIAGNOSED, "buffer_diversity", "mean"), 0.01, 0, 3
)
CORRECT_DIVERSITY = Metric(
    "correct_diversity",
    "diversity of correct predictions",
    _at(_DIAGNOSED, "correct_diversity", "mean"),
    0.01,
    0,
    3,
)
CENTRE = Metric(
    "centre", "distance from centre", _at(_DIAGNOSED, "distance_from_centre", "mean"), 0.01, 0, 3
)
HOMOPHILY = Metric(
    "homophily", "homophily", _at(_DIAGNOSED, "buffer_homophily", "VIEW", "mean"), 0.01, 0, 3
)
ISOLATED = Metric(
    "isolated", "isolated nodes", _at(_DIAGNOSED, "isolated_buffer_nodes", "VIEW"), None, -1, 1
)
DEGREE = Metric("degree", "mean degree", _at(_DIAGNOSED, "buffer_degree", "VIEW"), None, 0)
LOW_DEGREE = Metric(
    "low_degree", "low-degree accuracy ↑", _at(_DIAGNOSED, "degree_accuracy", "low")
)
HIGH_DEGREE = Metric(
    "high_degree", "high-degree accuracy ↑", _at(_DIAGNOSED, "degree_accuracy", "high")
)
_SECONDS: dict[str, Any] = {"point": None, "better": -1, "digits": 4, "timed": True}
SELECTION = Metric("selection", "selection, s per task", _per_task("selection"), **_SECONDS)
INFERENCE = Metric("inference", "inference, s per task", _per_task("inference"), **_SECONDS)
STRUCTURE = Metric(
    "structure",
    "structure learning, s per task",
    _per_task("structure", "inference", "candidates"),
    None,
    -1,
    3,
    timed=True,
)
TASK = Metric("task", "whole task, s", _whole_task(1.0), None, -1, 3, timed=True)
BYTES = Metric("bytes", "bytes kept", _at("memory_bytes"), None, -1, 0)
SECONDS = Metric("seconds", "seconds", _at("seconds", "total"), None, -1, 1)
MINUTES = Metric("minutes", "minutes per task", _whole_task(60.0), None, -1, 4, timed=True)

#: Homophily of each class in the buffer; the paper counts classes from 1, at most twelve.
CLASS_HOMOPHILY = tuple(
    Metric(
        f"class {label + 1}",
        f"class {label + 1}",
        _at(_DIAGNOSED, "buffer_homophily", "VIEW", "by_class", str(label)),
        0.01,
        0,
        3,
    )
    for label in range(12)
)
