"""Verdicts by stated rules: a measured number against a printed one, and statements.

A *number* is judged by the 95 % interval of measured minus printed (Welch; the printed mean is
taken as one of ten seeds, its deviation as the measured one where none is printed):
``inconclusive`` when the interval is wider than four points, ``reproduced`` when it holds zero,
else ``better`` or ``worse``, or ``higher`` and ``lower`` for what has no good side.

A *statement* is a quantity per seed that is positive where the statement is true. It ``holds``
when the 95 % interval of its mean over the seeds lies above zero, and ``does not hold``
otherwise. One seed judges nothing: ``not tested``. Tests of one experiment are many, so that
each carries its p-value after Holm as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from evergraph.lab.summary import difference_to_claim, mean_std, paired_interval
from evergraph.lab.tables import Claim

#: Widest interval that still says something, in points.
WIDEST = 4.0


def judge_number(
    values: Sequence[float],
    printed: float,
    printed_std: float | None,
    *,
    point: float = 1.0,
    better: int = 1,
) -> dict[str, Any]:
    """Judges measured values against a printed mean: difference, 95 % interval and the word.

    Args:
        values: One per seed.
        printed: The paper's mean.
        printed_std: Its deviation over ten seeds, None where none is printed.
        point: What one point is in the metric's unit.
        better: 1 when more is better, −1 when less is, 0 when neither is.
    """
    if printed_std is None and len(values) > 1:
        printed_std = statistics.stdev(values)
    found = difference_to_claim(values, Claim(printed, printed_std))
    difference, low, high = found["difference"], found["low"], found["high"]
    if difference is None or low is None or high is None:
        word = "not tested" if values else "not run"
    elif high - low > WIDEST * point:
        word = "inconclusive"
    elif low <= 0 <= high:
        word = "reproduced"
    elif better == 0:
        word = "higher" if difference > 0 else "lower"
    else:
        word = "better" if difference * better > 0 else "worse"
    return {**found, "verdict": word}


def judge_statement(values: Sequence[float]) -> dict[str, Any]:
    """Judges a quantity per seed that is claimed to be positive."""
    low, high = paired_interval(values)
    word = "holds" if low is not None and low > 0 else "does not hold"
    if low is None:
        word = "not tested" if values else "not run"
    mean = mean_std(values)["mean"]
    return {"difference": mean, "low": low, "high": high, "verdict": word}


def p_value(values: Sequence[float]) -> float | None:
    """Computes the two-sided p-value of Student's test that the mean is zero."""
    from scipy import stats  # noqa: PLC0415 - a second of import that few commands need

    if len(values) < 2:
        return None
    std = statistics.stdev(values)
    mean = statistics.fmean(values)
    if std == 0:
        return 1.0 if mean == 0 else 0.0
    t = abs(mean) / (std / math.sqrt(len(values)))
    return float(2 * stats.t.sf(t, len(values) - 1))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusts p-values for being many (Holm's step-down); None stays None."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, place) in enumerate(known):
        running = max(running, min(1.0, (len(known) - rank) * p))
        adjusted[place] = running
    return adjusted
