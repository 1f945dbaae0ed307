"""Ridge from moments: the joint solution whatever the batches, and leaving one out for real."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form.moments import Moments
from evergraph.closed_form.ridge import Judges, Ridge, Spectrum


def data(m: int, d: int, k: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(m, d, generator=generator, dtype=torch.float64)
    labels = torch.cat([torch.arange(k), torch.randint(k, (m - k,), generator=generator)])
    rows[torch.arange(m), labels % d] += 2
    return rows, labels


def joint_ridge(rows, labels, strength, rest=slice(None)):
    """Least squares as one learns it: all rows at once, normal equations."""
    targets = torch.nn.functional.one_hot(labels).double()[rest]
    x, n = rows[rest], labels.numel()
    left = x.t() @ x / n + strength * torch.eye(rows.shape[1]).double()
    return torch.linalg.solve(left, x.t() @ targets / n)


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
        weights = Ridge(moments, weighing=0.0).weights(strength)
        expected = joint_ridge(rows, labels, strength)
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)


def test_ridge_by_hand():
    # Class 0 at 1, class 1 at -1 and -3, mean -2 and scatter 2.
    moments = Moments()
    rows = torch.tensor([[1.0], [-1.0], [-3.0]], dtype=torch.float64)
    moments.update(rows, torch.tensor([0, 1, 1]))
    # Natural: G = (1 + 1 + 9) / 3 = 11/3, M = [1, -4] / 3.
    natural = Ridge(moments, weighing=0.0).weights(1 / 3)
    torch.testing.assert_close(natural, torch.tensor([[1 / 12, -1 / 3]], dtype=torch.float64))
    # Balanced: G = 2/3 + (1 + 4) / 2 = 19/6, M = [1, -2] / 2.
    weights = Ridge(moments, weighing=1.0).weights(5 / 6)
    torch.testing.assert_close(weights, torch.tensor([[0.125, -0.25]], dtype=torch.float64))


@pytest.mark.parametrize("d", [4, 50])
def test_balanced_ridge_is_the_natural_one_where_classes_are_of_one_size(d):
    rows, labels = data(21, d, 3)[0], torch.arange(21) % 3
    moments = moments_of(rows, labels, [torch.arange(21)])
    one, other = (Ridge(moments, balanced).weights(0.1) for balanced in (False, True))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("d", [4, 50])
def test_leave_one_out_error_is_that_of_solving_without_each_row(d):
    rows, labels = data(20, d, 3)
    moments = moments_of(rows, labels, [torch.arange(20)])
    current = torch.arange(8, 20)  # only these are looked at
    ridge = Ridge(moments, weighing=0.0)
    train = ridge.training_rows(rows[current], labels[current])
    judges = Judges(labels[current], rows[current])
    errors = ridge.leave_one_out_errors(train, judges, [0.01, 1.0])
    for strength in (0.01, 1.0):
        expected = []
        for i in current.tolist():
            without = joint_ridge(rows, labels, strength, torch.arange(20) != i)
            target = torch.nn.functional.one_hot(labels[i], 3)
            expected.append(float((rows[i] @ without - target).square().sum()))
        assert errors[strength] == pytest.approx(sum(expected) / 12, rel=1e-6)


def test_balanced_errors_let_classes_weigh_the_same():
    rows, labels = data(30, 4, 3)
    ridge = Ridge(moments_of(rows, labels, [torch.arange(30)]), weighing=1.0)
    train = ridge.training_rows(rows, labels)
    squares = ridge.leave_one_out_residuals(train, 0.1).square().sum(dim=1)
    means = [float(squares[labels == label].mean()) for label in range(3)]
    errors = ridge.leave_one_out_errors(train, Judges(labels, rows), [0.1])
    assert errors[0.1] == pytest.approx(sum(means) / 3)


@pytest.mark.parametrize("d", [4, 50])
def test_weights_without_a_group_are_those_of_solving_without_it(d):
    rows, labels = data(20, d, 3)
    group = torch.tensor([3, 4, 8, 15, 19])
    rest = torch.ones(20, dtype=torch.bool)
    rest[group] = False
    ridge = Ridge(moments_of(rows, labels, [torch.arange(20)]), weighing=0.0)
    without = ridge.training_rows(rows[group], labels[group])
    for strength in (0.01, 1.0):
        found = ridge.weights_without(without, strength)
        expected = joint_ridge(rows, labels, strength, rest)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)


def test_weights_without_a_group_stay_finite_when_moments_are_rounded():
    rows, labels = data(20, 50, 3)
    moments = Moments(rank=1, dtype=torch.float32)
    moments.update(rows, labels)
    ridge = Ridge(moments, weighing=1.0)
    group = ridge.training_rows(rows[:9], labels[:9])
    assert ridge.weights_without(group, 1e-12).isfinite().all()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)], ids=["tall", "wide"])
def test_spectrum_solves_ridge_regression_whatever_its_shape(shape):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.randn(4, shape[1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets = rows.t() @ rows[:, :2] ** 2
    inverse = torch.linalg.inv(rows.t() @ rows + 0.3 * torch.eye(shape[1]))
    spectrum = Spectrum(rows)
    found = spectrum.regress(spectrum.basis.t() @ targets, 0.3)
    torch.testing.assert_close(found, inverse @ targets)
    torch.testing.assert_close(spectrum.solve(x, 0.3), x @ inverse)
    hat = (x @ inverse @ x.t()).diagonal()
    squares = (x @ spectrum.basis).square()
    torch.testing.assert_close(spectrum.leverage(squares, x.square().sum(dim=1), 0.3), hat)


def test_ridge_spreads_what_a_rank_dropped():
    rows, labels = data(40, 6, 2)
    traces = []
    for rank in (None, 1):
        moments = Moments(rank)
        moments.update(rows, labels)
        ridge = Ridge(moments, weighing=0.0)
        traces.append(float(ridge.energy.sum()) + 6 * ridge.floor)
    assert traces[0] == pytest.approx(traces[1])


def test_leave_one_out_error_stays_finite_when_moments_are_rounded():
    rows, labels = data(30, 40, 3)
    moments = Moments(rank=1, dtype=torch.float32)
    moments.update(rows, labels)
    ridge = Ridge(moments, weighing=1.0)
    train = ridge.training_rows(rows, labels)
    errors = ridge.leave_one_out_errors(train, Judges(labels, rows), [1e-12, 1e-4])
    assert list(errors) == [1e-12, 1e-4]
    assert all(error < 1e12 for error in errors.values())
