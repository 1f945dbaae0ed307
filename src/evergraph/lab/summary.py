"""Summaries of many runs: mean ± std over seeds, and how sure a difference of means is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.files import read_json
from evergraph.lab.folder import finished_runs
from evergraph.lab.tables import PAPER_SEEDS, STREAM_METRICS, Claim

CONFIDENCE = 0.95


def collect_results(folder: Path) -> list[dict[str, Any]]:
    """Reads every finished run below a folder, in a fixed order."""
    return [read_json(run / "results.json") for run in finished_runs(folder)]


def summarise_grid(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups runs that differ in their seed alone, in order of dataset and label."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["dataset"], result["label"]), []).append(result)
    summary = []
    for (dataset, label), runs in groups.items():
        if len({run["variant_hash"] for run in runs}) > 1:
            raise InputError(
                f"Expected all runs of '{label}' on '{dataset}' to share their settings (they "
                "differ); give the variants different labels with @label or another --output."
            )
        runs.sort(key=lambda run: int(run["seed"]))
        summary.append(
            {
                "dataset": dataset,
                "method": runs[0]["method"],
                "label": label,
                "overrides": runs[0]["overrides"],
                "settings": runs[0]["settings"],
                "protocol_hash": runs[0]["protocol_hash"],
                "evaluated_on": runs[0]["evaluated_on"],
                "seeds": [run["seed"] for run in runs],
                "pm": mean_std([run["pm"] for run in runs]),
                "fm": mean_std([run["fm"] for run in runs]),
                "current": mean_std([run["current"] for run in runs]),
                "seconds": mean_std([run["seconds"]["total"] for run in runs]),
                "memory_bytes": max(run["memory_bytes"] for run in runs),
                "memory_bytes_without_graph": most_without_graph(runs),
            }
        )
        if all("stream" in run for run in runs):
            streams = [run["stream"] for run in runs]
            summary[-1]["stream"] = {
                key: mean_std([stream[key] for stream in streams]) for key in STREAM_METRICS
            }
    return summary


def most_without_graph(counted: Sequence[dict[str, Any]]) -> int | None:
    """Finds the most bytes kept without the graph; 0.1.0 did not count them: None."""
    name = "memory_bytes_without_graph"
    if any(entry.get(name) is None for entry in counted):
        return None
    return max(int(entry[name]) for entry in counted)


def compare_pairs(
    results: Iterable[dict[str, Any]], reference: str, metric: str = "pm"
) -> list[dict[str, Any]]:
    """Compares one label with all others, seed by seed, on each dataset.

    The interval is Student's for the mean of the paired differences, 95 %. The verdict says
    where the reference stands: ``above``, ``below``, or ``not distinguishable`` when the
    interval holds zero or there are fewer than two common seeds.
    """
    by_label: dict[tuple[str, str], dict[int, float]] = {}
    for result in results:
        if result[metric] is not None:
            values = by_label.setdefault((result["dataset"], result["label"]), {})
            values[result["seed"]] = result[metric]
    comparisons = []
    for (dataset, label), values in by_label.items():
        mine = by_label.get((dataset, reference))
        if label == reference or mine is None:
            continue
        seeds = sorted(mine.keys() & values.keys())
        differences = [mine[seed] - values[seed] for seed in seeds]
        low, high = paired_interval(differences)
        comparisons.append(
            {
                "dataset": dataset,
                "metric": metric,
                "reference": reference,
                "other": label,
                "seeds": seeds,
                "difference": statistics.fmean(differences) if differences else None,
                "low": low,
                "high": high,
                "verdict": verdict(low, high),
            }
        )
    return comparisons


def verdict(low: float | None, high: float | None) -> str:
    """Puts an interval of differences into words."""
    if low is not None and low > 0:
        return "above"
    if high is not None and high < 0:
        return "below"
    return "not distinguishable"


def mean_std(values: Sequence[float | None]) -> dict[str, float | None]:
    """Computes mean and sample standard deviation (ddof 1); None where undefined."""
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
    }


def estimate(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Computes n, mean, sample standard deviation and Student's 95 % interval of the mean."""
    known = [value for value in values if value is not None]
    low, high = paired_interval(known)
    return {"n": len(known), **mean_std(known), "low": low, "high": high}


def paired_interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Returns the 95 % interval of the mean difference; (None, None) below two pairs."""
    n = len(differences)
    if n < 2:
        return None, None
    mean = statistics.fmean(differences)
    half = quantile(n - 1) * statistics.stdev(differences) / math.sqrt(n)
    return mean - half, mean + half


def difference_to_claim(values: Sequence[float | None], claim: Claim) -> dict[str, float | None]:
    """Compares a measured mean with a printed one by Welch's 95 % interval.

    Where the paper prints no standard deviation, or there are fewer than two runs, there is a
    difference but no interval.
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"difference": None, "low": None, "high": None}
    difference = statistics.fmean(known) - claim.mean
    if len(known) < 2 or claim.std is None:
        return {"difference": difference, "low": None, "high": None}
    half = welch_half_width(known, claim.std, PAPER_SEEDS)
    return {"difference": difference, "low": difference - half, "high": difference + half}


def welch_half_width(values: Sequence[float], std: float, count: int) -> float:
    """Computes half of Welch's 95 % interval of the difference of two means.

    Args:
        values: One sample, at least two.
        std: Standard deviation of the other.
        count: How many values the other has.
    """
    mine, theirs = statistics.variance(values) / len(values), std**2 / count
    if mine + theirs == 0:
        return 0.0
    freedom = (mine + theirs) ** 2 / (mine**2 / (len(values) - 1) + theirs**2 / (count - 1))
    return quantile(freedom) * math.sqrt(mine + theirs)


def quantile(freedom: float) -> float:
    """Returns Student's quantile for a two-sided 95 % interval."""
    from scipy import stats  # noqa: PLC0415 - a second of import that few commands need

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
