"""Moments: exact under any cutting into batches, bounded under a rank, counted to the byte."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form import moments as module
from evergraph.closed_form.moments import Moments


def drawn(m: int, d: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(m, d, generator=generator, dtype=torch.float64)


def scatter(rows: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
    """The slow way: one outer product per row, around the mean of its class."""
    total = torch.zeros(rows.shape[1], rows.shape[1], dtype=rows.dtype)
    for label in [None] if labels is None else labels.unique().tolist():
        mine = rows if labels is None else rows[labels == label]
        for row in mine:
            total += torch.outer(row - mine.mean(dim=0), row - mine.mean(dim=0))
    return total


def of(rows: torch.Tensor, labels: torch.Tensor | None = None, **options) -> Moments:
    moments = Moments(**options)
    moments.update(rows, torch.zeros(rows.shape[0]).long() if labels is None else labels)
    return moments


def matrix(moments: Moments) -> torch.Tensor:
    kept = moments.scatter
    return kept if kept.shape[0] == kept.shape[1] else kept.t() @ kept


def test_moments_of_three_points_by_hand():
    moments = of(torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]], dtype=torch.float64))
    assert moments.counts.tolist() == [3]
    assert moments.means.tolist() == [[2.0, 2.0]]
    expected = torch.tensor([[8.0, 6.0], [6.0, 6.0]], dtype=torch.float64)
    torch.testing.assert_close(matrix(moments), expected)


def test_moments_of_one_row_have_no_scatter():
    moments = of(torch.tensor([[3.0, -1.0]], dtype=torch.float64))
    assert moments.means.tolist() == [[3.0, -1.0]]
    assert moments.scatter.shape == (0, 2)


@given(
    cuts=st.lists(st.integers(1, 39), max_size=6, unique=True),
    d=st.integers(1, 60),
    seed=st.integers(0, 5),
)
def test_moments_do_not_depend_on_the_batches(cuts, d, seed):
    rows = drawn(40, d, seed) + 5  # far from zero, where careless sums cancel
    labels = torch.randint(3, (40,), generator=torch.Generator().manual_seed(seed)) * 2
    moments = Moments()
    for part in torch.tensor_split(torch.arange(40), sorted(cuts)):
        moments.update(rows[part], labels[part])
    assert moments.labels == labels.unique().tolist()
    assert moments.counts.tolist() == labels.unique(return_counts=True)[1].tolist()
    means = [rows[labels == label].mean(dim=0) for label in moments.labels]
    torch.testing.assert_close(moments.means, torch.stack(means), rtol=0, atol=1e-12)
    torch.testing.assert_close(matrix(moments), scatter(rows, labels), rtol=0, atol=1e-9)
    assert moments.scatter.shape[0] <= d


def test_moments_take_large_batches_in_blocks(monkeypatch):
    rows, labels = drawn(50, 4), torch.arange(50) % 3
    whole = of(rows, labels)
    monkeypatch.setattr(module, "ROWS", 7)
    parts = of(rows, labels)
    torch.testing.assert_close(whole.means, parts.means)
    torch.testing.assert_close(whole.scatter, parts.scatter)


def test_moments_keep_no_row_of_a_class():
    rows = drawn(5, 9)
    centred = rows - rows.mean(dim=0)
    factor = of(rows).scatter
    distance = torch.cdist(factor, torch.cat([rows, centred]))
    assert distance.min() > 0.1
    assert torch.equal(factor, factor.triu())  # what the scatter tells, and no rotation besides


def test_moments_share_one_scatter_among_classes():
    rows = drawn(200, 4)
    few, many = of(rows, torch.arange(200) % 2), of(rows, torch.arange(200) % 20)
    assert few.scatter.shape == many.scatter.shape == (4, 4)
    assert many.memory_bytes() - few.memory_bytes() == 18 * (8 * 4 + 16)  # mean, count and label


@pytest.mark.parametrize("m", [5, 30])
def test_moments_of_a_rank_keep_the_strongest_directions(m):
    rows = drawn(m, 8) * torch.arange(8, 0, -1).double()
    moments = of(rows, rank=3)
    values, vectors = torch.linalg.eigh(scatter(rows))
    expected = (vectors[:, -3:] * values[-3:]) @ vectors[:, -3:].t()
    assert moments.scatter.shape == (3, 8)
    torch.testing.assert_close(matrix(moments), expected)
    torch.testing.assert_close(torch.tensor(moments.rest), values[:-3].sum().float() / 8)


def test_moments_of_a_rank_keep_that_many_directions_for_each_class():
    assert of(drawn(30, 20), torch.arange(30) % 4, rank=3).scatter.shape == (12, 20)
    assert of(drawn(30, 10), torch.arange(30) % 4, rank=3).scatter.shape == (10, 10)


def test_moments_of_a_rank_lose_no_energy_over_batches():
    rows, moments = drawn(30, 8), Moments(rank=2)
    for part in torch.split(rows, 10):
        moments.update(part, torch.zeros(10).long())
    kept = moments.scatter.square().sum() + 8 * moments.rest
    torch.testing.assert_close(kept, scatter(rows).trace())


def test_moments_move_classes_without_spreading_them():
    rows, labels = drawn(6, 3), torch.tensor([0, 0, 0, 4, 4, 4])
    moments, before = of(rows, labels), of(rows, labels)
    moments.shift(torch.tensor([1.0, 0.0, -2.0]), 4)
    moments.shift(torch.tensor([0.0, 1.0, 0.0]))
    expected = before.means + torch.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, -2.0]])
    torch.testing.assert_close(moments.means, expected)
    assert torch.equal(before.scatter, moments.scatter)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 8), (torch.float32, 4)])
def test_moments_count_every_byte(dtype, size):
    moments = of(drawn(7, 12), torch.tensor([0, 0, 2, 2, 2, 2, 2]), dtype=dtype)
    # Two means and as many rows of a factor as there were rows; counts and labels.
    assert moments.memory_bytes() == size * 12 * (2 + 7) + 2 * 16
    assert moments.means.dtype == moments.scatter.dtype == dtype


@pytest.mark.parametrize("d", [4, 40])
def test_moments_come_back_from_their_state(d):
    moments, other = of(drawn(9, d), torch.arange(9) % 2, rank=2), Moments(rank=2)
    other.load_state_dict(moments.state_dict())
    for there in (moments, other):
        there.update(drawn(4, d, seed=1), torch.tensor([0, 1, 5, 5]))
    assert other.labels == [0, 1, 5]
    for name in ("counts", "means", "scatter"):
        assert torch.equal(getattr(moments, name), getattr(other, name))


@pytest.mark.parametrize("d", [3, 30])
def test_moments_of_0_1_0_are_added_up(d):
    rows, labels = drawn(12, d), torch.arange(12) % 2
    former = {}
    for label in (0, 1):
        mine = rows[labels == label]
        factor = torch.linalg.qr(mine - mine.mean(dim=0), mode="r").R
        former[str(label)] = {"count": 6, "mean": mine.mean(dim=0), "factor": factor, "rest": 0.0}
    moments, expected = Moments(), of(rows, labels)
    moments.load_state_dict(former)
    assert moments.counts.tolist() == [6, 6]
    torch.testing.assert_close(moments.means, expected.means)
    torch.testing.assert_close(matrix(moments), matrix(expected))


@pytest.mark.parametrize(
    "changed",
    [
        {"labels": [1, 0]},
        {"counts": torch.tensor([5, 0])},
        {"means": torch.zeros(2, 5, dtype=torch.float64)},
        {"scatter": torch.zeros(5, 4, dtype=torch.float64)},
        {"scatter": torch.zeros(4, 4)},
        {"rest": float("nan")},
    ],
    ids=str,
)
def test_moments_refuse_parts_that_do_not_fit(changed):
    state = of(drawn(9, 4), torch.arange(9) % 2).state_dict()
    with pytest.raises(ValueError, match="different rows"):
        Moments().load_state_dict({**state, **changed})
