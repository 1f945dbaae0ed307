"""Ridge from moments: the joint solution whatever the batches, and leaving one out for real."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form.moments import Moments
from evergraph.closed_form.ridge import Gram, GramFactor, Ridge, RidgeSystem


def data(m: int, d: int, k: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(m, d, generator=generator, dtype=torch.float64)
    labels = torch.cat([torch.arange(k), torch.randint(k, (m - k,), generator=generator)])
    rows[torch.arange(m), labels % d] += 2
    return rows, labels


def joint_ridge(rows, labels, strength, weight=None):
    """Weighted least squares as one learns it: all rows at once, normal equations."""
    counts = torch.bincount(labels)
    weight = (counts * counts.numel())[labels].double().reciprocal() if weight is None else weight
    targets = torch.nn.functional.one_hot(labels, counts.numel()).double()
    left = rows.t() @ (weight[:, None] * rows) + strength * torch.eye(rows.shape[1]).double()
    return torch.linalg.solve(left, rows.t() @ (weight[:, None] * targets))


def moments_of(rows, labels, parts) -> Moments:
    moments = Moments()
    for part in parts:
        moments.update(rows[part], labels[part])
    return moments


@given(
    cuts=st.lists(st.integers(1, 59), max_size=8, unique=True),
    d=st.sampled_from([3, 10, 90]),  # 90 columns: more than rows, the other decomposition
    order=st.integers(0, 3),
)
def test_ridge_is_joint_ridge_in_any_batching_with_classes_recurring(cuts, d, order):
    rows, labels = data(60, d, 4)
    shuffled = torch.randperm(60, generator=torch.Generator().manual_seed(order))
    moments = moments_of(rows, labels, torch.tensor_split(shuffled, sorted(cuts)))
    for strength in (1e-3, 1.0):
        weights = Ridge(RidgeSystem(moments), strength).weights
        expected = joint_ridge(rows, labels, strength)
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)


def test_ridge_by_hand():
    # Class 0 at 1, class 1 at -1 and -3: G = (1 + (1 + 9)/2)/2 = 3, M = [1, -2]/2.
    moments = Moments()
    rows = torch.tensor([[1.0], [-1.0], [-3.0]], dtype=torch.float64)
    moments.update(rows, torch.tensor([0, 1, 1]))
    weights = Ridge(RidgeSystem(moments), 2.0).weights
    torch.testing.assert_close(weights, torch.tensor([[0.1, -0.2]], dtype=torch.float64))


@pytest.mark.parametrize("d", [4, 50])
def test_leave_one_out_error_is_that_of_solving_without_each_row(d):
    rows, labels = data(20, d, 3)
    moments = moments_of(rows, labels, [torch.arange(20)])
    weight = (3 * torch.bincount(labels))[labels].double().reciprocal()
    current = torch.arange(8, 20)  # only these are looked at
    for strength in (0.01, 1.0):
        expected = torch.zeros(20, dtype=torch.float64)
        for i in current.tolist():
            rest = torch.arange(20) != i
            without = joint_ridge(rows[rest], labels[rest], strength, weight[rest])
            target = torch.nn.functional.one_hot(labels[i], 3)
            expected[i] = (rows[i] @ without - target).square().sum()
        groups = [expected[current][labels[current] == c].mean() for c in range(3)]
        system = RidgeSystem(moments)
        train = system.training_rows(rows[current], labels[current])
        error = system.leave_one_out_errors(train, [strength])[strength]
        assert error == pytest.approx(float(sum(groups) / 3), rel=1e-9)


@pytest.mark.parametrize("d", [4, 50])
def test_weights_without_a_group_are_those_of_solving_without_it(d):
    rows, labels = data(20, d, 3)
    weight = (3 * torch.bincount(labels))[labels].double().reciprocal()
    group = torch.tensor([3, 4, 8, 15, 19])
    rest = torch.ones(20, dtype=torch.bool)
    rest[group] = False
    for strength in (0.01, 1.0):
        system = RidgeSystem(moments_of(rows, labels, [torch.arange(20)]))
        without = system.training_rows(rows[group], labels[group])
        found = Ridge(system, strength).weights_without(without)
        expected = joint_ridge(rows[rest], labels[rest], strength, weight[rest])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_weights_without_a_group_stay_finite_when_moments_are_rounded():
    rows, labels = data(20, 50, 3)
    moments = Moments(rank=1, dtype=torch.float32)
    moments.update(rows, labels)
    system = RidgeSystem(moments)
    group = system.training_rows(rows[:9], labels[:9])
    assert Ridge(system, 1e-12).weights_without(group).isfinite().all()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)], ids=["tall", "wide"])
def test_gram_solves_ridge_regression_whatever_its_shape(shape):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = rows[:, :2] ** 2
    inverse = torch.linalg.inv(rows.t() @ rows + 0.3 * torch.eye(shape[1]))
    gram = Gram(rows)
    factor, products = GramFactor(gram, 0.3), gram.products(rows)
    torch.testing.assert_close(factor.regress(targets), inverse @ rows.t() @ targets)
    torch.testing.assert_close(factor.solve(rows, products), rows @ inverse)
    hat = (rows @ inverse @ rows.t()).diagonal()
    torch.testing.assert_close(factor.leverage(rows, products), hat)
    torch.testing.assert_close(factor.own_leverage(), hat)


def test_ridge_spreads_what_a_rank_dropped():
    rows, labels = data(40, 6, 2)
    whole, ranked = Moments(), Moments(rank=1)
    for moments in (whole, ranked):
        moments.update(rows, labels)
    traces = []
    for moments in (whole, ranked):
        system = RidgeSystem(moments)
        traces.append(float(system.matrix.trace()) + 6 * system.floor)
    assert traces[0] == pytest.approx(traces[1])


def test_leave_one_out_error_stays_finite_when_moments_are_rounded():
    rows, labels = data(30, 40, 3)
    moments = Moments(rank=1, dtype=torch.float32)
    moments.update(rows, labels)
    system = RidgeSystem(moments)
    errors = system.leave_one_out_errors(system.training_rows(rows, labels), [1e-12, 1e-4])
    assert list(errors) == [1e-12, 1e-4]
    assert all(error < 1e12 for error in errors.values())


@pytest.mark.parametrize("columns", [3, 30], ids=["tall", "wide"])
def test_solve_is_the_inverse_times_rows(columns):
    x, labels = data(12, columns, 3)
    moments = Moments()
    moments.update(x, labels)
    system = RidgeSystem(moments)
    gram = system.rows.t() @ system.rows + 0.1 * torch.eye(columns, dtype=x.dtype)
    expected = torch.linalg.solve(gram, x.t()).t()
    torch.testing.assert_close(
        Ridge(system, 0.1).solve(x, system.products(x)), expected, rtol=1e-9, atol=1e-9
    )
