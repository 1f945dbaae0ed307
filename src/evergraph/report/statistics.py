"""What a reviewer asks of a mean: how many runs, how they spread, how sure it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from evergraph.experiments.paper import Claim
from evergraph.experiments.summary import CONFIDENCE, mean_std, paired_interval

#: Runs behind each number that the paper prints.
PAPER_RUNS = 10

Estimate = dict[str, float | int | None]


def estimate(values: Sequence[float | None]) -> Estimate:
    """Computes n, mean, sample standard deviation and Student's 95 % interval of the mean."""
    known = [value for value in values if value is not None]
    low, high = paired_interval(known)
    return {"n": len(known), **mean_std(known), "low": low, "high": high}


def difference_to_claim(values: Sequence[float | None], claim: Claim) -> Estimate:
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
    mine, theirs = statistics.variance(known) / len(known), claim.std**2 / PAPER_RUNS
    if mine + theirs == 0:
        return {"difference": difference, "low": difference, "high": difference}
    freedom = (mine + theirs) ** 2 / (mine**2 / (len(known) - 1) + theirs**2 / (PAPER_RUNS - 1))
    half = quantile(freedom) * math.sqrt(mine + theirs)
    return {"difference": difference, "low": difference - half, "high": difference + half}


def quantile(freedom: float) -> float:
    """Returns Student's quantile for a two-sided 95 % interval."""
    from scipy import stats  # noqa: PLC0415 - a second of import that few commands need

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
