"""The metrics that experiments share: where each value stands in a run's results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evergraph.lab.paper.experiment import Metric, Results, Row

Read = Callable[[Results, Row], float | None]


def _at(*path: str) -> Read:
    """Reads a value by its path in the results, None where the path ends early."""

    def read(results: Results, row: Row) -> float | None:
        found: Any = results
        for key in path:
            if not isinstance(found, dict):
                return None
            found = found.get(row.view if key == "VIEW" else key)
        return None if found is None else float(found)

    return read


def _per_task(*stages: str) -> Read:
    """Reads the seconds of some stages per task that has them: all but the last, or the first."""

    def read(results: Results, row: Row) -> float | None:
        known = [results["seconds"][stage] for stage in stages if stage in results["seconds"]]
        return sum(known) / max(len(results["tasks"]) - 1, 1) if known else None

    return read


def _whole_task(unit: float) -> Read:
    return lambda results, row: results["seconds"]["total"] / len(results["tasks"]) / unit


def _forgetting(results: Results, row: Row) -> float:
    """Reads what the probed class lost since it was learned, in points."""
    label = results["settings"]["probed_class"]
    matrix = results["by_class"]["accuracy_matrix"]
    fresh = next(seen[label] for seen in matrix if len(seen) > label)
    return float(fresh - matrix[-1][label])


def _probed_homophily(results: Results, row: Row) -> float:
    """Reads the homophily of the nodes kept of the probed class, by all labels."""
    label = str(results["settings"]["probed_class"])
    return float(results["diagnostics"]["buffer_homophily"]["before"]["by_class"][label])


def _ratio(key: str, title: str, *path: str) -> Metric:
    return Metric(key, title, _at("diagnostics", *path), point=0.01, better=0, digits=3)


def _seconds(key: str, title: str, read: Read, digits: int) -> Metric:
    return Metric(key, title, read, point=None, better=-1, digits=digits, timed=True)


def described(titles: dict[str, str], digits: int) -> tuple[Metric, ...]:
    """Makes metrics that are looked up without any run."""
    return tuple(
        Metric(key, title, lambda results, row: None, point=None, better=0, digits=digits)
        for key, title in titles.items()
    )


PM = Metric("pm", "PM ↑", _at("pm"))
FM = Metric("fm", "FM ↓", _at("fm"), better=-1)
CURRENT = Metric("current", "Current ↑", _at("current"))
ACCURACY = (PM, FM, CURRENT)
LOW_DEGREE, HIGH_DEGREE = (
    Metric(f"{end}_degree", f"{end}-degree accuracy ↑", _at("diagnostics", "degree_accuracy", end))
    for end in ("low", "high")
)

DIVERSITY = _ratio("diversity", "diversity", "buffer_diversity", "mean")
CORRECT_DIVERSITY = _ratio(
    "correct_diversity", "diversity of correct predictions", "correct_diversity", "mean"
)
CENTRE = _ratio("centre", "distance from centre", "distance_from_centre", "mean")
HOMOPHILY = _ratio("homophily", "homophily", "buffer_homophily", "VIEW", "mean")
#: Homophily of each class in the buffer; the paper counts classes from 1, at most twelve.
CLASS_HOMOPHILY = tuple(
    _ratio(
        f"class {label + 1}",
        f"class {label + 1}",
        *("buffer_homophily", "VIEW", "by_class", str(label)),
    )
    for label in range(12)
)
PROBED_HOMOPHILY = replace(HOMOPHILY, read=_probed_homophily)
FORGETTING = Metric("forgetting", "forgetting ↓", _forgetting, better=-1)
ISOLATED = Metric(
    "isolated", "isolated nodes", _at("diagnostics", "isolated_buffer_nodes", "VIEW"), None, -1, 1
)
DEGREE = Metric("degree", "mean degree", _at("diagnostics", "buffer_degree", "VIEW"), None, 0)

SELECTION = _seconds("selection", "selection, s per task", _per_task("selection"), 4)
INFERENCE = _seconds("inference", "inference, s per task", _per_task("inference"), 4)
STRUCTURE = _seconds(
    "structure",
    "structure learning, s per task",
    _per_task("structure", "inference", "candidates"),
    3,
)
TASK = _seconds("task", "whole task, s", _whole_task(1.0), 3)
MINUTES = _seconds("minutes", "minutes per task", _whole_task(60.0), 4)
FACTOR = replace(MINUTES, key="factor", title="times DSLR", better=0, digits=2, relative_to="dslr")
BYTES = Metric("bytes", "bytes kept", _at("memory_bytes"), None, -1, 0)
SECONDS = Metric("seconds", "seconds", _at("seconds", "total"), None, -1, 1)
