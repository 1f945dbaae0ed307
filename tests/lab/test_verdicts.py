"""Verdicts: intervals worked by hand with tabulated quantiles, and the words that follow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from evergraph.lab.paper.contrasts import Table
from evergraph.lab.paper.experiments import METRICS, Metric, Row, Statement
from evergraph.lab.paper.verdicts import (
    count_words,
    headline_verdict,
    holm,
    judge_number,
    judge_statements,
)

NONE = float("nan")
T_18, T_9 = 2.10092, 2.26216  # 97.5 % quantiles of Student's t
PM, FM, HOMOPHILY = METRICS["pm"], METRICS["fm"], METRICS["homophily"]


def ten(mean: float, std: float) -> list[float]:
    """Ten values with exactly this mean and sample deviation."""
    step = std * math.sqrt(0.9)
    return [mean - step] * 5 + [mean + step] * 5


def judge(
    values: list[float], printed: float, std: float | None, metric: Metric = PM, **options: Any
) -> dict[str, Any]:
    return judge_number(values, {"mean": printed, "std": std}, metric, **options)


def test_judge_number_is_welch_with_ten_printed_seeds():
    judged = judge(ten(81.0, 1.0), 80.0, 1.0)
    half = T_18 * math.sqrt(0.1 + 0.1)
    assert judged["difference"] == pytest.approx(1.0)
    assert judged["low"] == pytest.approx(1.0 - half, abs=1e-4)
    assert judged["high"] == pytest.approx(1.0 + half, abs=1e-4)
    assert judged["verdict"] == "higher (better)"


def test_judge_number_widens_for_splits_that_overlap():
    # n_test / n_train = 3/7: the variance of each mean is s² (1/10 + 3/7).
    judged = judge(ten(81.0, 1.0), 80.0, 1.0, overlap=3 / 7)
    assert judged["high"] == pytest.approx(1.0 + T_18 * math.sqrt(2 * (0.1 + 3 / 7)), abs=1e-4)
    assert judged["verdict"] == "inconclusive"


def test_judge_number_takes_our_deviation_where_none_is_printed():
    without, printed = (judge(ten(81.0, 1.5), 80.0, std) for std in (None, 1.5))
    assert (without["low"], without["high"]) == pytest.approx((printed["low"], printed["high"]))


def test_judge_number_by_unequal_deviations():
    # Printed exactly: all the doubt is ours, 9 degrees of freedom.
    judged = judge(ten(80.0, 1.0), 80.0, 0.0)
    assert judged["high"] == pytest.approx(T_9 * math.sqrt(0.1), abs=1e-4)


@pytest.mark.parametrize(
    ("mean", "std", "metric", "word"),
    [
        (80.5, 1.0, PM, "reproduced"),
        (82.0, 1.0, PM, "higher (better)"),
        (78.0, 1.0, PM, "lower (worse)"),
        (82.0, 1.0, FM, "higher (worse)"),
        (78.0, 1.0, FM, "lower (better)"),
        (81.0, 5.0, PM, "inconclusive"),
        (40.0, 9.0, PM, "lower (worse)"),  # however wide, an interval without zero is none
    ],
)
def test_judge_number_looks_at_the_sign_first(mean: float, std: float, metric: Metric, word: str):
    assert judge(ten(mean, std), 80.0, 1.0, metric)["verdict"] == word


def test_judge_number_counts_points_of_its_metric():
    # A ratio: four points are 0.04.
    assert judge(ten(0.8, 0.02), 0.8, 0.02, HOMOPHILY)["verdict"] == "reproduced"
    assert judge(ten(0.8, 0.03), 0.8, 0.03, HOMOPHILY)["verdict"] == "inconclusive"
    assert judge(ten(0.9, 0.02), 0.8, 0.02, HOMOPHILY)["verdict"] == "higher"  # no good side


def test_judge_number_of_few_seeds_and_exact_values():
    assert judge([], 80.0, 1.0)["verdict"] == "not run"
    assert judge([82.0], 80.0, 1.0)["verdict"] == "not tested"
    assert judge([80.0, 80.0], 80.0, None)["verdict"] == "reproduced"
    assert judge([80.0], 80.0, None, exact=True)["verdict"] == "same"
    assert judge([81.0], 80.0, None, exact=True)["verdict"] == "differs"


def table(**values: list[float]) -> Table:
    """One graph: rows by name, whose PM is given; Current is 90, of ``slack`` 79."""
    rows, seeds = [Row(name, "dslr") for name in values], [0, 1, 2]
    found = {(name, "pm"): np.array([*part, NONE, NONE][:3]) for name, part in values.items()}
    found |= {
        (name, "current"): np.array([79.0 if name == "slack" else 90.0] * 3) for name in values
    }
    return Table("cora", rows, seeds, found, {"pm": 1, "fm": -1})


def statement(first: str, second: Any, **options: Any) -> Statement:
    return Statement(f"{first} above", "here", {"pm": first, "above": second}, ["cora"], **options)


def test_statements_hold_by_their_p_after_holm():
    found = table(a=[1.0, 2.0, 3.0], b=[4.0, 5.1, 5.9], c=[1.0, 2.0, 2.9], d=[0.0, 4.0, 1.0])
    sure, opposite, unsure = judge_statements(
        [statement("b", "a"), statement("c", "b"), statement("d", "a")], [found], {"cora": 0.0}
    )
    assert (sure["verdict"], opposite["verdict"], unsure["verdict"]) == (
        *("holds", "opposite", "not shown"),
    )
    assert sure["p_holm"] == pytest.approx(2 * sure["p"])  # of three the second smallest
    assert sure["seeds"] == [0, 1, 2]
    (alone,) = judge_statements([statement("b", "a")], [found], {"cora": 300.0})
    assert (alone["verdict"], alone["p_holm"]) == ("not shown", alone["p"])  # splits overlap


def test_statements_beyond_the_paper_are_apart():
    found = table(a=[1.0, 2.0, 3.0], b=[4.0, 5.1, 5.9])
    elsewhere = Statement("b above", "here", {"pm": "b", "above": "a"}, ["reddit"])
    entries = judge_statements([statement("b", "a"), elsewhere], [found], {"cora": 0.0})
    assert [entry["in_paper"] for entry in entries] == [True, False]
    assert all(entry["p"] == entry["p_holm"] for entry in entries)  # two families of one


def test_a_row_that_has_not_learnt_is_set_against_nobody():
    found = table(a=[1.0, 2.0, 3.0], b=[4.0, 5.1, 5.9], slack=[9.0, 9.0, 9.0])
    excused, accused, best, own = judge_statements(
        [
            statement("b", "slack"),
            statement("slack", "b"),
            statement("b", {"best": ["a", "slack"]}),  # chosen among those that have
            statement("slack", 0),
        ],
        [found],
        {"cora": 0.0},
    )
    assert excused["verdict"] == accused["verdict"] == "not comparable"
    assert excused["why"] == "slack"
    assert best["verdict"] == "holds"
    assert own["verdict"] != "not comparable"  # against no other row


def test_statements_by_construction_and_of_few_seeds():
    found = table(a=[1.0, 2.0], b=[1.0, 2.0], c=[3.0])
    built = statement("b", "a", by_construction="both are the same")
    entries = judge_statements(
        [built, statement("c", "a"), statement("nobody", "a")], [found], {"cora": 0.0}
    )
    words = [entry["verdict"] for entry in entries]
    assert words == ["by construction", "not tested", "not run"]
    assert entries[0]["why"] == "both are the same"


def test_holm_steps_down():
    first, second, third = holm([0.01, 0.04, 0.03])
    assert first == pytest.approx(0.03)
    assert third == pytest.approx(0.06)
    assert second == pytest.approx(0.06)  # 0.04, but not below the one before
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (["holds", "holds"], "**yes** (2 of 2 hold)"),
        (["holds", "not shown", "not run"], "**in part** (1 of 2 hold)"),
        (["holds", "not comparable"], "**yes** (1 of 1 hold, 1 not comparable)"),
        (["opposite", "not shown"], "**no** (0 of 2 hold, 1 opposite)"),
        (["not shown"], "**not shown** (0 of 1 hold)"),
        (["by construction"], "**not tested** (0 of 0 hold, 1 by construction)"),
        (["not run"], "–"),
    ],
)
def test_headline_says_what_its_statements_say(words: list[str], verdict: str):
    assert headline_verdict([{"verdict": word} for word in words]) == verdict


def test_count_words_in_the_order_they_come():
    assert count_words(["b", "a", "b"]) == "2 b, 1 a"
    assert count_words([]) == "–"
