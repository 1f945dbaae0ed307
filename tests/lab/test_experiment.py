"""The vocabulary of experiments: quantities per seed pair up, tables find and fit."""

from __future__ import annotations

from typing import Any

import pytest

from evergraph.lab.paper.contrasts import Table, Values, average, contrast, evaluate
from evergraph.lab.paper.experiment import Row

ROWS = [Row("a", "dslr", "s", 1.0), Row("b", "dslr", "s", 2.0), Row("c", "dslr", "t", 4.0)]
VALUES = {
    ("a", "pm"): Values({0: 1.0, 1: 5.0}),
    ("b", "pm"): Values({0: 3.0, 1: 5.0, 2: 9.0}),
    ("c", "pm"): Values({0: 4.0, 1: 3.0}),
    ("a", "fm"): Values({0: 2.0}),
    ("b", "fm"): Values({0: 7.0}),
}
TABLE = Table("cora", ROWS, VALUES, {"pm": 1, "fm": -1})


def test_values_pair_the_seeds_that_both_have():
    first, second = Values({0: 5.0, 1: 7.0, 3: 1.0}), Values({1: 2.0, 0: 1.0, 2: 9.0})
    assert first - second == {0: 4.0, 1: 5.0}
    assert first + second == {0: 6.0, 1: 9.0}
    assert first - 1.0 == {0: 4.0, 1: 6.0, 3: 0.0}
    assert -first == {0: -5.0, 1: -7.0, 3: -1.0}
    assert second / Values({0: 2.0, 1: 0.0}) == {0: 0.5}  # nothing by zero
    assert Values().mean is None


def test_average_takes_common_seeds():
    assert average([Values({0: 1.0, 1: 2.0}), Values({1: 4.0}), Values()]) == {1: 3.0}
    assert average([]) == {}


def best(names: list[str], metric: str) -> Values:
    return evaluate(TABLE, metric, {"best": names})


def test_table_finds_the_best_by_what_is_good():
    assert best(["a", "b", "c"], "pm") == VALUES["b", "pm"]
    assert best(["a", "b"], "fm") == VALUES["a", "fm"]
    assert best(["a", "b", "c"], "fm") == {}  # c may turn out to be the best
    assert best(["nobody"], "pm") == {}
    assert TABLE("nobody", "pm") == {}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"pm": "b", "above": "a"}, {0: 2.0, 1: 0.0}),
        ({"pm": "b", "below": "a"}, {0: -2.0, 1: 0.0}),
        ({"pm": "b", "above": ["a", "c"], "within": 1.0}, {0: 1.5, 1: 2.0}),
        ({"pm": "a", "below": 5}, {0: 4.0, 1: 0.0}),
        ({"pm": {"series": "s"}, "above": "c"}, {0: -2.0, 1: 2.0}),
        ({"pm": {"inner": "s"}, "above": 0}, {}),  # there is nothing between two rows
        ({"difference of pm": ["b", "a"], "above": ["c", "a"]}, {0: -1.0, 1: 2.0}),
        ({"range of pm": ["a", "b"], "below": 2}, {0: 0.0, 1: 2.0}),
        ({"range of fm": "all", "below": 2}, {}),  # the highest may be still to come
        ({"fm / pm": "a", "above": 0}, {0: 2.0}),
        ({"slope of pm": {"series": "s"}, "above": 0}, {0: 2.0, 1: 0.0}),
    ],
)
def test_contrast_is_positive_where_the_sentence_is_true(
    spec: dict[str, Any], expected: dict[int, float]
):
    assert contrast(spec, TABLE) == pytest.approx(expected)


def test_slope_is_fitted_per_seed():
    # x = 1, 2, 4 around 7/3; y = 1, 3, 4 gives Σ(x − 7/3)y / Σ(x − 7/3)² = (13/3)/(14/3)
    assert evaluate(TABLE, "slope of pm", "all")[0] == pytest.approx(13 / 14)
    assert evaluate(TABLE, "slope of pm", "a") == {}
    assert evaluate(TABLE, "slope of fm", "all") == {}  # c is still to come


def test_deviation_is_from_the_median():
    assert evaluate(TABLE, "deviation of pm", "b") == {0: 2.0, 1: 0.0, 2: 4.0}
    assert evaluate(TABLE, "deviation of pm", "a") == {}  # of two seeds each is as far
    assert TABLE.names("s") == ["a", "b"]
    assert evaluate(TABLE, "pm", ["a", "b", "nobody"]) == {0: 2.0, 1: 5.0}
    assert evaluate(TABLE, "fm", "all") == {}


def test_trend_is_one_slope_within_classes():
    # Class s: (0, 10), (1, 8), (2, 8); class t, on another level: (0, 50), (1, 48), (2, 49).
    points = {"s": [(0, 10), (1, 8), (2, 8)], "t": [(0, 50), (1, 48), (2, 49)]}
    rows = [Row(f"{c}{i}", "dslr", c) for c in points for i in range(3)]
    values = {}
    for c, pairs in points.items():
        for i, (x, y) in enumerate(pairs):
            values[f"{c}{i}", "homophily"] = Values({0: float(x)})
            values[f"{c}{i}", "forgetting"] = Values({0: float(y)})
    table = Table("cora", rows, values, {})
    assert evaluate(table, "trend of forgetting", "whole") == pytest.approx({0: (-2 - 1) / 4})
    assert evaluate(table, "trend of forgetting", "lower") == pytest.approx({0: -2.0})
    assert evaluate(table, "trend of forgetting", "upper") == pytest.approx({0: 0.5})


def test_deviation_takes_each_class_at_its_end():
    rows = [Row("low", "dslr", "s"), Row("high", "dslr", "s")]
    values = {
        ("low", "homophily"): Values({0: 0.1, 1: 0.2, 2: 0.1}),
        ("high", "homophily"): Values({0: 0.9, 1: 0.8, 2: 0.9}),
        ("low", "forgetting"): Values({0: 1.0, 1: 1.0, 2: 2.0}),
        ("high", "forgetting"): Values({0: 0.0, 1: 5.0, 2: 9.0}),
    }
    table = Table("cora", rows, values, {})
    most, least = (
        evaluate(table, "deviation of forgetting", {end: "homophily"}) for end in ("most", "least")
    )
    assert most == {0: 5.0, 1: 0.0, 2: 4.0}
    assert least == {0: 0.0, 1: 0.0, 2: 1.0}
