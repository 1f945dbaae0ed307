"""What a reviewer asks of a mean: how many runs, how they spread, how sure it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from evergraph.lab.paper.numbers import PAPER_SEEDS, Claim
from evergraph.lab.summary import mean_std, paired_interval, welch_half_width

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
    half = welch_half_width(known, claim.std, PAPER_SEEDS)
    return {"difference": difference, "low": difference - half, "high": difference + half}
