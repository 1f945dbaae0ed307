"""The vocabulary of experiments: quantities per seed pair up, tables find and fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evergraph.lab.paper.contrasts import Table, contrast, evaluate
from evergraph.lab.paper.experiments import Row

NONE = float("nan")
ROWS = [Row("a", "dslr", "s", 1.0), Row("b", "dslr", "s", 2.0), Row("c", "dslr", "t", 4.0)]
VALUES = {
    ("a", "pm"): np.array([1.0, 5.0, NONE]),
    ("b", "pm"): np.array([3.0, 5.0, 9.0]),
    ("c", "pm"): np.array([4.0, 3.0, NONE]),
    ("a", "fm"): np.array([2.0, NONE, NONE]),
    ("b", "fm"): np.array([7.0, NONE, NONE]),
}
TABLE = Table("cora", ROWS, [0, 1, 2], VALUES, {"pm": 1, "fm": -1})


def known(values: Any) -> dict[int, float]:
    """The seeds that have a value."""
    return {seed: value for seed, value in enumerate(values) if not np.isnan(value)}


def best(names: list[str], metric: str) -> dict[int, float]:
    return known(evaluate(TABLE, metric, {"best": names}))


def test_table_finds_the_best_by_what_is_good():
    assert best(["a", "b", "c"], "pm") == {0: 3.0, 1: 5.0, 2: 9.0}
    assert best(["a", "b"], "fm") == {0: 2.0}
    assert best(["a", "b", "c"], "fm") == {}  # c may turn out to be the best
    assert best(["nobody"], "pm") == {}
    assert known(TABLE("nobody", "pm")) == {}
    assert TABLE.means(["a", "nobody"], "pm") == {"a": 3.0}


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
    assert known(contrast(spec, TABLE)) == pytest.approx(expected)


def test_slope_is_fitted_per_seed():
    # x = 1, 2, 4 around 7/3; y = 1, 3, 4 gives Σ(x − 7/3)y / Σ(x − 7/3)² = (13/3)/(14/3)
    assert evaluate(TABLE, "slope of pm", "all")[0] == pytest.approx(13 / 14)
    assert known(evaluate(TABLE, "slope of pm", "a")) == {}
    assert known(evaluate(TABLE, "slope of fm", "all")) == {}  # c is still to come


def test_deviation_is_from_the_median():
    assert known(evaluate(TABLE, "deviation of pm", "b")) == {0: 2.0, 1: 0.0, 2: 4.0}
    assert known(evaluate(TABLE, "deviation of pm", "a")) == {}  # of two seeds each is as far
    assert TABLE.names("s") == ["a", "b"]
    assert known(evaluate(TABLE, "pm", ["a", "b", "nobody"])) == {0: 2.0, 1: 5.0}
    assert known(evaluate(TABLE, "fm", "all")) == {}


def test_trend_is_one_slope_within_classes():
    # Class s: (0, 10), (1, 8), (2, 8); class t, on another level: (0, 50), (1, 48), (2, 49).
    points = {"s": [(0, 10), (1, 8), (2, 8)], "t": [(0, 50), (1, 48), (2, 49)]}
    rows = [Row(f"{c}{i}", "dslr", c) for c in points for i in range(3)]
    values = {}
    for c, pairs in points.items():
        for i, (x, y) in enumerate(pairs):
            values[f"{c}{i}", "homophily"] = np.array([float(x)])
            values[f"{c}{i}", "forgetting"] = np.array([float(y)])
    table = Table("cora", rows, [0], values, {})
    for half, slope in (("whole", (-2 - 1) / 4), ("lower", -2.0), ("upper", 0.5)):
        assert evaluate(table, "trend of forgetting", half) == pytest.approx([slope])


def test_deviation_takes_each_class_at_its_end():
    rows = [Row("low", "dslr", "s"), Row("high", "dslr", "s")]
    values = {
        ("low", "homophily"): np.array([0.1, 0.2, 0.1]),
        ("high", "homophily"): np.array([0.9, 0.8, 0.9]),
        ("low", "forgetting"): np.array([1.0, 1.0, 2.0]),
        ("high", "forgetting"): np.array([0.0, 5.0, 9.0]),
    }
    table = Table("cora", rows, [0, 1, 2], values, {})
    most, least = (
        evaluate(table, "deviation of forgetting", {end: "homophily"}) for end in ("most", "least")
    )
    assert most.tolist() == [5.0, 0.0, 4.0]
    assert least.tolist() == [0.0, 0.0, 1.0]
