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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evergraph.lab.summary import paired_interval, welch_half_width
from evergraph.lab.tables import PAPER_SEEDS

#: Widest interval that still says something, in points.
WIDEST = 4.0


@dataclass(frozen=True)
class Judgement:
    """A difference with its 95 % interval, None where there are too few seeds, and the word."""

    difference: float | None
    low: float | None
    high: float | None
    verdict: str


def judge_number(
    values: Sequence[float],
    printed: float,
    printed_std: float | None,
    *,
    point: float = 1.0,
    better: int = 1,
) -> Judgement:
    """Judges measured values against a printed mean.

    Args:
        values: One per seed.
        printed: The paper's mean.
        printed_std: Its deviation over ten seeds, None where none is printed.
        point: What one point is in the metric's unit.
        better: 1 when more is better, −1 when less is, 0 when neither is.
    """
    if not values:
        return Judgement(None, None, None, "not run")
    difference = statistics.fmean(values) - printed
    if len(values) < 2:
        return Judgement(difference, None, None, "not tested")
    std = statistics.stdev(values) if printed_std is None else printed_std
    half = welch_half_width(values, std, PAPER_SEEDS)
    low, high = difference - half, difference + half
    if high - low > WIDEST * point:
        word = "inconclusive"
    elif low <= 0 <= high:
        word = "reproduced"
    elif better == 0:
        word = "higher" if difference > 0 else "lower"
    else:
        word = "better" if difference * better > 0 else "worse"
    return Judgement(difference, low, high, word)


def judge_statement(values: Sequence[float]) -> Judgement:
    """Judges a quantity per seed that is claimed to be positive."""
    if not values:
        return Judgement(None, None, None, "not run")
    mean = statistics.fmean(values)
    low, high = paired_interval(values)
    if low is None:
        return Judgement(mean, None, None, "not tested")
    return Judgement(mean, low, high, "holds" if low > 0 else "does not hold")


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


def holm(p_values: Mapping[Any, float | None]) -> dict[Any, float | None]:
    """Adjusts p-values for being many (Holm's step-down); None stays None."""
    known = sorted((p, key) for key, p in p_values.items() if p is not None)
    adjusted: dict[Any, float | None] = dict.fromkeys(p_values)
    running = 0.0
    for rank, (p, key) in enumerate(known):
        running = max(running, min(1.0, (len(known) - rank) * p))
        adjusted[key] = running
    return adjusted
