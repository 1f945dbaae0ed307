"""Verdicts: intervals worked by hand with tabulated quantiles, and the words that follow."""

from __future__ import annotations

import math

import pytest

from evergraph.lab.paper.verdicts import holm, judge_number, judge_statement, p_value

T_18, T_9, T_2 = 2.10092, 2.26216, 4.30265  # 97.5 % quantiles of Student's t


def ten(mean: float, std: float) -> list[float]:
    """Ten values with exactly this mean and sample deviation."""
    step = std * math.sqrt(0.9)
    return [mean - step] * 5 + [mean + step] * 5


def test_judge_number_is_welch_with_ten_printed_seeds():
    judged = judge_number(ten(81.0, 1.0), 80.0, 1.0)
    half = T_18 * math.sqrt(0.1 + 0.1)
    assert judged["difference"] == pytest.approx(1.0)
    assert judged["low"] == pytest.approx(1.0 - half, abs=1e-4)
    assert judged["high"] == pytest.approx(1.0 + half, abs=1e-4)
    assert judged["verdict"] == "better"


def test_judge_number_takes_our_deviation_where_none_is_printed():
    without, printed = (judge_number(ten(81.0, 1.5), 80.0, std) for std in (None, 1.5))
    assert (without["low"], without["high"]) == pytest.approx((printed["low"], printed["high"]))


def test_judge_number_by_unequal_deviations():
    # Printed exactly: all the doubt is ours, 9 degrees of freedom.
    judged = judge_number(ten(80.0, 1.0), 80.0, 0.0)
    assert judged["high"] == pytest.approx(T_9 * math.sqrt(0.1), abs=1e-4)


@pytest.mark.parametrize(
    ("mean", "std", "better", "word"),
    [
        (80.5, 1.0, 1, "reproduced"),
        (82.0, 1.0, 1, "better"),
        (78.0, 1.0, 1, "worse"),
        (82.0, 1.0, -1, "worse"),
        (78.0, 1.0, -1, "better"),
        (82.0, 1.0, 0, "higher"),
        (78.0, 1.0, 0, "lower"),
        (80.0, 2.2, 1, "inconclusive"),  # width 2 · 2.10 · 2.2 · √0.2 = 4.13
        (60.0, 2.2, 1, "inconclusive"),  # by the rule, however far away
        (80.0, 2.1, 1, "reproduced"),  # width 3.95
    ],
)
def test_judge_number_words(mean: float, std: float, better: int, word: str):
    assert judge_number(ten(mean, std), 80.0, std, better=better)["verdict"] == word


def test_judge_number_by_points_of_the_unit():
    # A ratio: four points are 0.04.
    assert judge_number(ten(0.8, 0.02), 0.8, 0.02, point=0.01)["verdict"] == "reproduced"
    assert judge_number(ten(0.8, 0.03), 0.8, 0.03, point=0.01)["verdict"] == "inconclusive"


def test_judge_number_of_few_seeds():
    assert judge_number([], 80.0, 1.0)["verdict"] == "not run"
    assert judge_number([82.0], 80.0, 1.0)["verdict"] == "not tested"
    assert judge_number([80.0, 80.0], 80.0, None)["verdict"] == "reproduced"


def test_judge_statement_holds_when_its_interval_is_above_zero():
    half = T_2 / math.sqrt(3)
    judged = judge_statement([1.0, 2.0, 3.0])  # deviation 1
    assert (judged["difference"], judged["verdict"]) == (2.0, "does not hold")
    assert judged["low"] == pytest.approx(2 - half, abs=1e-4)
    assert judge_statement([2.0, 3.0, 4.0])["verdict"] == "holds"  # 3 − 2.48
    assert judge_statement([-2.0, -3.0, -4.0])["verdict"] == "does not hold"
    assert judge_statement([5.0])["verdict"] == "not tested"
    assert judge_statement([])["verdict"] == "not run"


def test_p_value_agrees_with_the_interval():
    assert p_value([1.0, 2.0, 3.0]) == pytest.approx(0.0742, abs=1e-4)  # t = 2√3, 2 degrees
    assert p_value([1.0]) is None
    assert p_value([0.0, 0.0]) == 1.0
    assert p_value([1.0, 1.0]) == 0.0


def test_holm_steps_down():
    first, second, third, none = holm([0.01, 0.04, 0.03, None])
    assert first == pytest.approx(0.03)
    assert third == pytest.approx(0.06)
    assert second == pytest.approx(0.06)  # 0.04, but not below the one before
    assert none is None
    assert holm([0.9, 0.8]) == [1.0, 1.0]
