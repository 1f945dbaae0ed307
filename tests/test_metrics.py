"""PM, FM and Current: oracles by hand, and the identity that binds them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import mstats

from evergraph.metrics import (
    Scores,
    StreamScores,
    calibration_error,
    evened,
    fit_exponent,
    fit_temperature,
    probability_scores,
    quantile,
    scores,
    shift_weights,
    stream_scores,
)

# Three tasks. PM = (60 + 70 + 95)/3, FM = ((90 − 60) + (80 − 70))/2, Current = (90 + 80 + 95)/3.
MATRIX = [[90.0], [75.0, 80.0], [60.0, 70.0, 95.0]]


def test_scores_by_hand():
    result = scores(MATRIX)
    assert result == Scores(pm=225 / 3, fm=20.0, current=265 / 3)


def test_scores_of_one_task_have_no_forgetting():
    assert scores([[87.5]]) == Scores(pm=87.5, fm=None, current=87.5)


def test_scores_forgetting_is_measured_from_when_a_task_was_learned_not_from_its_best():
    # Task 0 improves to 90 in between and comes back to 70: it has lost nothing since.
    assert scores([[70.0], [90.0, 50.0], [70.0, 50.0, 50.0]]).fm == 0


def test_scores_forgetting_may_be_negative():
    assert scores([[50.0], [80.0, 60.0]]).fm == -30


def test_scores_of_classes_by_hand():
    # Tasks of classes (0, 1) and (2,). Classes 0 and 1 lose 40 and 10; class 2 is new.
    matrix = [[90.0, 70.0], [50.0, 60.0, 100.0]]
    result = scores(matrix, learned_at=[0, 0, 1])
    assert result == Scores(pm=70.0, fm=25.0, current=260 / 3)


def test_scores_of_classes_of_a_single_task_have_no_forgetting():
    assert scores([[90.0, 70.0]], learned_at=[0, 0]) == Scores(pm=80.0, fm=None, current=80.0)


def test_scores_pm_is_per_task_not_per_class():
    # Task 0: class 0 with 9 test nodes, all right, class 1 with 1, wrong: 90 %. Task 1: 50 %.
    # The authors' code prints the mean over classes, (100 + 0 + 50)/3, under the same name.
    by_task = scores([[90.0], [90.0, 50.0]])
    by_class = scores([[100.0, 0.0], [100.0, 0.0, 50.0]], learned_at=[0, 0, 1])
    assert by_task.pm == 70
    assert by_class.pm == 50


def test_scores_is_the_same_for_tasks_with_their_own_learned_at():
    assert scores(MATRIX, learned_at=[0, 1, 2]) == scores(MATRIX)


percent = st.floats(0, 100)
matrices = st.integers(1, 8).flatmap(
    lambda size: st.tuples(*(st.lists(percent, min_size=i, max_size=i) for i in range(1, size + 1)))
)


@given(matrices)
def test_scores_identity(matrix):
    result, size = scores(matrix), len(matrix)
    if size == 1:
        assert result.fm is None
        assert result.pm == result.current
    else:
        assert result.pm == pytest.approx(
            result.current - (size - 1) / size * result.fm, rel=0, abs=1e-9
        )


@given(matrices)
def test_scores_of_a_perfect_memory_forget_nothing(matrix):
    last = matrix[-1]
    kept = [last[: i + 1] for i in range(len(matrix))]
    assert scores(kept).fm in {None, 0}


def test_stream_scores_by_hand():
    # Three steps. new = (90 + 80 + 95)/3, AAUC = (90 + 78 + 72)/3, FWT = (40 + 60)/2,
    # BWT = ((60 − 90) + (70 − 80))/2.
    found = stream_scores(MATRIX, [90.0, 78.0, 72.0], [None, 40.0, 60.0])
    assert found == StreamScores(new=265 / 3, seen=72.0, aauc=80.0, fwt=50.0, bwt=-20.0)


def test_stream_scores_of_one_step_have_no_transfer():
    found = stream_scores([[87.5]], [87.5], [None])
    assert found == StreamScores(new=87.5, seen=87.5, aauc=87.5, fwt=None, bwt=None)


# Four nodes of three classes: the third is given to class 0, the last has no majority.
PROBABILITIES = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.7, 0.1, 0.2], [0.3, 0.3, 0.4]])


def test_probability_scores_by_hand():
    found = probability_scores(PROBABILITIES, np.array([0, 1, 2, 2]))
    # Right, right, wrong, right, each in a bin of its own.
    assert found["ece"] == pytest.approx((0.1 + 0.2 + 0.7 + 0.6) / 4)
    assert found["brier"] == pytest.approx((0.02 + 0.08 + 1.14 + 0.54) / 4)
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.2, 0.4]).mean())
    assert found["balanced_accuracy"] == pytest.approx(100 * (1 + 1 + 0.5) / 3)
    assert found["macro_f1"] == pytest.approx(100 * (2 / 3 + 1 + 2 / 3) / 3)
    bins = [[1, 0.4, 1.0], [1, 0.7, 0.0], [1, 0.8, 1.0], [1, 0.9, 1.0]]
    assert found["reliability"] == bins
    assert found["confusion"] == [[1, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_no_confusion_matrix_of_many_classes():
    assert probability_scores(np.eye(61), np.arange(61))["confusion"] is None


def test_calibration_error_weighs_nodes():
    labels = np.array([0, 1, 2, 2])
    alone = calibration_error(PROBABILITIES[2:3], labels[2:3])
    assert calibration_error(PROBABILITIES, labels, np.array([0, 0, 5.0, 0])) == alone


def test_temperature_brings_overconfident_logits_back():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3))
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (proba.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1)
    ones = np.ones(4000)
    assert fit_temperature(7 * logits, labels, ones) == pytest.approx(7, rel=0.1)
    impossible = np.hstack([7 * logits, np.full((4000, 1), -1e9)])
    assert fit_temperature(impossible, labels, ones) == pytest.approx(7, rel=0.1)


def test_exponent_evens_rows_whose_scale_tells_nothing():
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(4000, 5))
    labels = (softmax(logits, axis=1).cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1)
    ones, scale = np.ones(4000), np.exp(rng.normal(size=(4000, 1)))
    assert fit_exponent(logits, labels, ones) < 0.15
    assert fit_exponent(scale * logits, labels, ones) > 0.6
    slight = scale**0.3 * logits  # the loss falls gently from the temperature alone
    slight /= fit_temperature(slight, labels, ones)
    assert 0.2 < fit_exponent(slight, labels, ones) < 0.3
    few = np.arange(8)
    assert fit_exponent((scale * logits)[few], labels[few], ones[few]) < 0.3
    even = evened(scale * logits, 1.0)
    assert (even.argmax(axis=1) == logits.argmax(axis=1)).all()
    assert np.allclose(even, evened(logits, 1.0))
    error = {}
    for exponent in (0.0, fit_exponent(scale * logits, labels, ones)):
        shown = evened(scale * logits, exponent)
        proba = softmax(shown / fit_temperature(shown, labels, ones), axis=1)
        error[exponent > 0] = calibration_error(proba, labels)
    assert error[True] < error[False] / 2


def test_a_few_nodes_that_are_right_make_nothing_certain():
    logits, labels = np.array([[1.0, 0.0]] * 3), np.zeros(3, dtype=int)
    temperature = fit_temperature(logits, labels, np.ones(3))
    # Two nodes that are of either class are added: 3 + 2 / 2 of 3 + 2 are right.
    assert 1 / (1 + np.exp(-1 / temperature)) == pytest.approx(0.8, abs=1e-6)
    twice = fit_temperature(logits, labels, np.array([1.0, 1.0, 0.0]))  # as good as two nodes
    assert 1 / (1 + np.exp(-1 / twice)) == pytest.approx(3 / 4, abs=1e-6)


def test_weights_follow_the_class_shares_of_the_nodes_to_predict():
    rng = np.random.default_rng(0)

    def draw(shares: list[float]) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.choice(2, 2000, p=shares)
        return 3 * np.eye(2)[labels] + rng.normal(size=(2000, 2)), labels

    (held, labels), (others, _) = draw([0.5, 0.5]), draw([0.9, 0.1])
    ones = np.ones(2000)
    weights = shift_weights(held, labels, ones, others)
    # The whole ratio would leave 61 % of the nodes' effective number: a power of it leaves 80 %.
    power = np.log(weights[labels == 0][0]) / np.log(0.9 / 0.5)
    assert 0.4 < power < 0.8
    assert weights[labels == 1] == pytest.approx((0.1 / 0.5) ** power, rel=0.1)
    assert 0.8 <= weights.sum() ** 2 / (2000 * np.square(weights).sum()) < 0.85
    (some, _) = draw([0.6, 0.4])
    slight = shift_weights(held, labels, ones, some)
    assert slight[labels == 0] == pytest.approx(0.6 / 0.5, rel=0.05)
    assert shift_weights(held, labels, ones, held) == pytest.approx(1, rel=0.05)
    assert shift_weights(held, labels, ones, others[:0]).tolist() == [1] * 2000


def test_quantile_is_harrell_and_davis_where_all_weigh_the_same():
    values = np.random.default_rng(0).random(40)
    for share in (0.05, 0.5, 0.95):
        oracle = mstats.hdquantiles(values, [share])[0]
        assert quantile(values, np.full(40, 3.0), share) == pytest.approx(oracle)


@given(st.lists(st.floats(0.2, 5), min_size=19, max_size=60))
def test_quantile_is_finite_and_among_the_values_whatever_they_weigh(weights):
    values = np.linspace(0, 1, len(weights))
    found = quantile(values, np.array(weights), 0.95)
    assert 0.2 < found <= 1
    assert found >= quantile(values, np.array(weights), 0.9)


def test_quantile_of_skewed_values_is_exceeded_as_often_as_it_should_be():
    rng, kept = np.random.default_rng(0), []
    for _ in range(2000):
        kept.append(1 - np.exp(-quantile(rng.exponential(size=93), np.ones(93), 0.95)))
    assert np.mean(kept) == pytest.approx(0.95, abs=0.002)
    assert np.std(kept) < 0.021  # the conformal quantile: 0.022
