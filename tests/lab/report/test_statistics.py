"""Statistics worked by hand, and against SciPy where it computes the same."""

from __future__ import annotations

import pytest
from scipy import stats

from evergraph.lab.paper.numbers import Claim
from evergraph.lab.report.statistics import difference_to_claim, estimate
from evergraph.lab.summary import quantile


def test_estimate_by_hand():
    # Mean 2, deviations −1 0 1, variance 1; Student's 2.5 % quantile for 2 degrees is 4.302653.
    found = estimate([1.0, 2.0, 3.0, None])
    half = 4.302653 / 3**0.5
    assert found == {
        "n": 3,
        "mean": 2.0,
        "std": 1.0,
        "low": pytest.approx(2 - half),
        "high": pytest.approx(2 + half),
    }


def test_estimate_of_few():
    assert estimate([5.0]) == {"n": 1, "mean": 5.0, "std": None, "low": None, "high": None}
    assert estimate([None]) == {"n": 0, "mean": None, "std": None, "low": None, "high": None}


def test_difference_to_claim_agrees_with_welch():
    values = [80.0, 83.0, 81.5, 84.0, 79.5]
    # Ten numbers with mean 81.59 and standard deviation 1.65.
    theirs = [81.59 + 1.65 * sign * (9 / 10) ** 0.5 for sign in [1, -1] * 5]
    expected = stats.ttest_ind(values, theirs, equal_var=False).confidence_interval()
    found = difference_to_claim(values, Claim(81.59, 1.65))
    assert found["difference"] == pytest.approx(81.6 - 81.59)
    assert (found["low"], found["high"]) == (
        pytest.approx(expected.low),
        pytest.approx(expected.high),
    )


@pytest.mark.parametrize(
    ("values", "claim", "expected"),
    [
        ([70.0, 72.0], Claim(70.0, None), (1.0, None, None)),
        ([71.0], Claim(70.0, 2.0), (1.0, None, None)),
        ([None], Claim(70.0, 2.0), (None, None, None)),
        ([71.0, 71.0], Claim(70.0, 0.0), (1.0, 1.0, 1.0)),
    ],
)
def test_difference_to_claim_without_interval(values, claim, expected):
    assert tuple(difference_to_claim(values, claim).values()) == expected


def test_quantile_of_one_degree_by_hand():
    assert quantile(1) == pytest.approx(12.7062, abs=1e-4)  # tan(0.475 π)
