"""Summaries of many runs: mean ± std over seeds, and how sure a mean is.

Every seed splits the same graph anew, so that the training and the test sets of two seeds overlap
and their values are not independent. All intervals and p-values here are those of the corrected
resampled t-test (Nadeau and Bengio, 2003): the variance of a mean over n seeds is
s² (1/n + n_test / n_train) instead of s²/n.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from evergraph.errors import InputError
from evergraph.lab.folder import finished_runs
from evergraph.lab.tables import METRICS, PAPER_SEEDS, STREAM_METRICS
from evergraph.stream import Protocol

CONFIDENCE = 0.95
#: Bytes kept from task to task, with the graph at hand and without it.
MEMORY = ("memory_bytes", "memory_bytes_without_graph")
#: What runs of one summary share, as their results name it.
SHARED = ["dataset", "method", "label", "overrides", "settings", "protocol_hash", "evaluated_on"]
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Groups items by a key of theirs, in order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def collect_results(folder: Path) -> list[dict[str, Any]]:
    """Reads every finished run below a folder, in a fixed order, with its protocol's overlap."""
    runs = finished_runs(folder)
    return [{**run.results, "overlap": overlap(run.config.protocol)} for run in runs]


def overlap(protocol: Protocol) -> float:
    """Returns n_test / n_train, by which the splits of two seeds overlap; 0 for a fixed split.

    It is averaged over the classes, as PM averages tasks: their shares of test nodes may differ.
    """
    if protocol.split_seed is not None:
        return 0.0
    held_out = protocol.validation_fraction
    if protocol.evaluate == "validation":
        return held_out / (1 - held_out)
    share = protocol.test_share
    shares = [share] if isinstance(share, float) else share
    return statistics.fmean(part / (1 - part) for part in shares) / (1 - held_out)


def summarise_grid(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups runs that differ in their seed alone, in order of dataset and label."""
    summary = []
    for (dataset, label), part in grouped(results, lambda r: (r["dataset"], r["label"])).items():
        if len({run["variant_hash"] for run in part}) > 1:
            raise InputError(
                f"Expected all runs of '{label}' on '{dataset}' to share their settings (they "
                "differ); give the variants different labels with @label or another --output."
            )
        runs = sorted(part, key=lambda run: int(run["seed"]))
        entry = {key: runs[0][key] for key in SHARED}
        entry["seeds"] = [run["seed"] for run in runs]
        entry |= {key: mean_std([run[key] for run in runs]) for key in METRICS}
        entry["seconds"] = mean_std([run["seconds"]["total"] for run in runs])
        entry |= most_memory(runs)
        if all("stream" in run for run in runs):
            entry["stream"] = {
                key: mean_std([run["stream"][key] for run in runs]) for key in STREAM_METRICS
            }
        summary.append(entry)
    return summary


def most_memory(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Finds the most bytes kept, with the graph at hand and without; 0.1.0 counted one: None."""
    counts: dict[str, list[Any]] = {key: [run.get(key) for run in results] for key in MEMORY}
    return {key: None if None in part else max(part) for key, part in counts.items()}


def compare_pairs(
    results: Iterable[dict[str, Any]], reference: str, metric: str = "pm"
) -> list[dict[str, Any]]:
    """Compares one label with all others, seed by seed, on each dataset.

    The verdict says where the reference stands: ``above``, ``below``, or ``not distinguishable``
    when the 95 % interval of the mean difference holds zero or fewer than two seeds are common.
    """
    comparisons = []
    measured = [result for result in results if result[metric] is not None]
    for dataset, part in grouped(measured, lambda result: result["dataset"]).items():
        shared = max(result["overlap"] for result in part)  # the largest, where protocols differ
        values: dict[str, dict[int, float]] = {}
        for result in part:
            values.setdefault(result["label"], {})[result["seed"]] = result[metric]
        mine = values.pop(reference, {})
        for label, theirs in values.items() if mine else ():
            seeds = sorted(mine.keys() & theirs.keys())
            found = estimate([mine[seed] - theirs[seed] for seed in seeds], shared)
            entry = {"dataset": dataset, "metric": metric, "reference": reference, "other": label}
            entry |= {"seeds": seeds, "difference": found["mean"]}
            entry |= {"low": found["low"], "high": found["high"]}
            comparisons.append({**entry, "verdict": verdict(found["low"], found["high"])})
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


def estimate(values: Sequence[float | None], overlap: float = 0.0) -> dict[str, Any]:
    """Computes n, mean, sample standard deviation, the mean's 95 % interval and its p-value.

    Args:
        values: One per seed; None is left out.
        overlap: n_test / n_train of the splits (:func:`overlap`), 0 for independent values.

    Returns:
        ``{"n", "mean", "std", "low", "high", "p"}``; ``p`` is two-sided, against a mean of zero.
        The last three are None below two values.
    """
    known = [value for value in values if value is not None]
    found: dict[str, Any] = {"n": len(known), **mean_std(known)}
    if len(known) < 2:
        return {**found, "low": None, "high": None, "p": None}
    from scipy import stats  # noqa: PLC0415 - a second of import that few commands need

    mean, error = found["mean"], found["std"] * math.sqrt(1 / len(known) + overlap)
    half = quantile(len(known) - 1) * error
    p = 2 * stats.t.sf(abs(mean) / error, len(known) - 1) if error else mean == 0
    return {**found, "low": mean - half, "high": mean + half, "p": float(p)}


def difference_to_claim(
    values: Sequence[float | None], claim: Mapping[str, Any], overlap: float = 0.0
) -> dict[str, Any]:
    """Compares a measured mean with a printed one by Welch's 95 % interval.

    The printed mean counts as one of ten seeds whose splits overlap as ours do. Where the paper
    prints no standard deviation, or there are fewer than two runs, there is a difference but no
    interval.
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"difference": None, "low": None, "high": None}
    difference = statistics.fmean(known) - claim["mean"]
    if len(known) < 2 or claim["std"] is None:
        return {"difference": difference, "low": None, "high": None}
    n = len(known)
    mine = statistics.variance(known) * (1 / n + overlap)
    theirs = claim["std"] ** 2 * (1 / PAPER_SEEDS + overlap)
    half = 0.0
    if mine + theirs > 0:
        freedom = (mine + theirs) ** 2 / (mine**2 / (n - 1) + theirs**2 / (PAPER_SEEDS - 1))
        half = quantile(freedom) * math.sqrt(mine + theirs)
    return {"difference": difference, "low": difference - half, "high": difference + half}


def quantile(freedom: float) -> float:
    """Returns Student's quantile for a two-sided 95 % interval."""
    from scipy import stats  # noqa: PLC0415 - a second of import that few commands need

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
