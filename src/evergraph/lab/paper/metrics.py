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


def _count(key: str, title: str, *path: str, better: int = -1, digits: int = 2) -> Metric:
    return Metric(key, title, _at(*path), point=None, better=better, digits=digits)


def _seconds(key: str, title: str, read: Read, digits: int) -> Metric:
    return Metric(key, title, read, point=None, better=-1, digits=digits, timed=True)


_ALL = (
    Metric("pm", "PM ↑", _at("pm")),
    Metric("fm", "FM ↓", _at("fm"), better=-1),
    Metric("current", "Current ↑", _at("current")),
    Metric("forgetting", "forgetting ↓", _forgetting, better=-1),
    *(
        Metric(
            f"{end}_degree", f"{end}-degree accuracy ↑", _at("diagnostics", "degree_accuracy", end)
        )
        for end in ("low", "high")
    ),
    _ratio("diversity", "diversity", "buffer_diversity", "mean"),
    _ratio("correct_diversity", "diversity of correct predictions", "correct_diversity", "mean"),
    _ratio("centre", "distance from centre", "distance_from_centre", "mean"),
    _ratio("homophily", "homophily", "buffer_homophily", "VIEW", "mean"),
    *(  # of each class in the buffer; the paper counts classes from 1, at most twelve
        _ratio(f"class {i + 1}", f"class {i + 1}", "buffer_homophily", "VIEW", "by_class", str(i))
        for i in range(12)
    ),
    _count("isolated", "isolated nodes", "diagnostics", "isolated_buffer_nodes", "VIEW", digits=1),
    _count("degree", "mean degree", "diagnostics", "buffer_degree", "VIEW", better=0),
    _seconds("selection", "selection, s per task", _per_task("selection"), 4),
    _seconds("inference", "inference, s per task", _per_task("inference"), 4),
    _seconds(
        "structure",
        "structure learning, s per task",
        _per_task("structure", "inference", "candidates"),
        3,
    ),
    _seconds("task", "whole task, s", _whole_task(1.0), 3),
    _seconds("minutes", "minutes per task", _whole_task(60.0), 4),
    _count("bytes", "bytes kept, graph at hand", "memory_bytes", digits=0),
    _count("bytes_without_graph", "bytes kept, no graph", "memory_bytes_without_graph", digits=0),
    _count("seconds", "seconds", "seconds", "total", digits=1),
)
#: Every metric by the name that the catalogue calls it by.
METRICS = {metric.key: metric for metric in _ALL}
METRICS["probed homophily"] = replace(METRICS["homophily"], read=_probed_homophily)
METRICS["factor"] = replace(
    METRICS["minutes"], key="factor", title="times DSLR", better=0, digits=2, relative_to="dslr"
)
