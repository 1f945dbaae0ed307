"""Moments: exact under any cutting into batches, bounded under a rank, counted to the byte."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form import moments as module
from evergraph.closed_form.moments import ClassMoments, Moments


def drawn(m: int, d: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(m, d, generator=generator, dtype=torch.float64)


def scatter(rows: torch.Tensor) -> torch.Tensor:
    """The slow way: one outer product per row."""
    mean = rows.mean(dim=0)
    return sum(torch.outer(row - mean, row - mean) for row in rows)


def of(rows: torch.Tensor, rank: int | None = None) -> ClassMoments:
    return ClassMoments.empty(rows.shape[1], rows).merge(rows, rank)


def test_moments_of_three_points_by_hand():
    moments = of(torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]], dtype=torch.float64))
    assert moments.count == 3
    assert moments.mean.tolist() == [2.0, 2.0]
    expected = torch.tensor([[8.0, 6.0], [6.0, 6.0]], dtype=torch.float64)
    torch.testing.assert_close(moments.factor.t() @ moments.factor, expected)


def test_moments_of_one_row_have_no_scatter():
    moments = of(torch.tensor([[3.0, -1.0]], dtype=torch.float64))
    assert moments.mean.tolist() == [3.0, -1.0]
    assert moments.factor.abs().max() == 0


@given(
    cuts=st.lists(st.integers(1, 39), max_size=6, unique=True),
    d=st.integers(1, 12),
    seed=st.integers(0, 5),
)
def test_moments_do_not_depend_on_the_batches(cuts, d, seed):
    rows = drawn(40, d, seed) + 5  # far from zero, where careless sums cancel
    merged = ClassMoments.empty(d, rows)
    for part in torch.tensor_split(rows, sorted(cuts)):
        merged = merged.merge(part)
    assert merged.count == 40
    torch.testing.assert_close(merged.mean, rows.mean(dim=0), rtol=0, atol=1e-12)
    torch.testing.assert_close(merged.factor.t() @ merged.factor, scatter(rows), rtol=0, atol=1e-9)
    assert merged.factor.shape[0] <= min(d, 40 + len(cuts) + 1)


def test_moments_take_large_batches_in_blocks(monkeypatch):
    rows = drawn(50, 4)
    whole = of(rows)
    monkeypatch.setattr(module, "ROWS", 7)
    parts = of(rows)
    torch.testing.assert_close(whole.mean, parts.mean)
    torch.testing.assert_close(whole.factor.abs(), parts.factor.abs())


def test_moments_keep_no_row_of_a_class():
    rows = drawn(5, 9)
    centred = rows - rows.mean(dim=0)
    factor = of(rows).factor
    distance = torch.cdist(factor, torch.cat([rows, centred]))
    assert distance.min() > 0.1
    assert torch.equal(factor, factor.triu())  # what the scatter tells, and no rotation besides


@pytest.mark.parametrize("m", [5, 30])
def test_moments_of_a_rank_keep_the_strongest_directions(m):
    rows = drawn(m, 8) * torch.arange(8, 0, -1).double()
    moments = of(rows, rank=3)
    values, vectors = torch.linalg.eigh(scatter(rows))
    expected = (vectors[:, -3:] * values[-3:]) @ vectors[:, -3:].t()
    assert moments.factor.shape == (3, 8)
    torch.testing.assert_close(moments.factor.t() @ moments.factor, expected)
    torch.testing.assert_close(torch.tensor(moments.rest), values[:-3].sum().float() / 8)


def test_moments_of_a_rank_lose_no_energy_over_batches():
    rows = drawn(30, 8)
    merged = ClassMoments.empty(8, rows)
    for part in torch.split(rows, 10):
        merged = merged.merge(part, rank=2)
    kept = merged.factor.square().sum() + 8 * merged.rest
    torch.testing.assert_close(kept, scatter(rows).trace())


def test_moments_move_a_class_without_spreading_it():
    rows = drawn(6, 3)
    moments = Moments()
    moments.update(rows, torch.zeros(6).long())
    before = moments.classes[0]
    moments.shift(0, torch.tensor([1.0, 0.0, -2.0]))
    after = moments.classes[0]
    expected = rows.mean(dim=0) + torch.tensor([1.0, 0.0, -2.0])
    torch.testing.assert_close(after.mean, expected)
    assert torch.equal(before.factor, after.factor)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 8), (torch.float32, 4)])
def test_moments_count_every_byte(dtype, size):
    moments = Moments(dtype=dtype)
    moments.update(drawn(7, 5), torch.tensor([0, 0, 2, 2, 2, 2, 2]))
    # Class 0 has a mean and 3 rows of a factor (two rows and a bridge), class 2 a mean and 5.
    assert moments.memory_bytes() == size * (5 + 15 + 5 + 25) + 2 * 16
    held = [t for part in moments.classes.values() for t in (part.mean, part.factor)]
    assert all(t.dtype == dtype for t in held)
    assert sum(t.numel() * t.element_size() for t in held) + 32 == moments.memory_bytes()


def test_moments_come_back_from_their_state():
    moments, other = Moments(rank=2), Moments(rank=2)
    moments.update(drawn(9, 4), torch.arange(9) % 2)
    other.load_state_dict(moments.state_dict())
    for there in (moments, other):
        there.update(drawn(4, 4, seed=1), torch.tensor([0, 1, 5, 5]))
    assert list(other.classes) == [0, 1, 5]
    for label, part in moments.classes.items():
        assert torch.equal(part.factor, other.classes[label].factor)
        assert torch.equal(part.mean, other.classes[label].mean)
