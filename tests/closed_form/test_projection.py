"""Projection: a budget in bytes, the strongest directions, and words that nobody had yet."""

from __future__ import annotations

import pytest
import torch

from conftest import to_sparse
from evergraph.closed_form import projection as module
from evergraph.closed_form.projection import (
    fitting_columns,
    principal_directions,
    readable_bytes,
)
from evergraph.errors import InputError
from support import seeded


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (7, 7),
        ("7", 7),
        ("64MB", 64_000_000),
        ("1.5 kB", 1500),
        ("2gb", 2 * 10**9),
        ("3X", None),
        ("0", None),
    ],
)
def test_bytes_are_read_as_written(words, count):
    if count is None:
        with pytest.raises(
            InputError, match=f"Expected 'memory' as a number of bytes .got '{words}'"
        ):
            readable_bytes(words)
    else:
        assert readable_bytes(words) == count


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("memory", [100, 10_000, 200_000])
def test_columns_are_as_many_as_fit(memory, blocks):
    def kept(columns: int) -> int:
        directions = 0 if columns == 50 else 4 * 50 * columns
        return 8 * (blocks * columns) ** 2 + directions

    found = fitting_columns(memory, num_features=50, blocks=blocks, item=8)
    assert 1 <= found <= 50
    assert found == 1 or kept(found) <= memory
    assert found == 50 or kept(found + 1) > memory


@pytest.mark.parametrize("sparse", [False, True])
def test_directions_are_those_of_most_energy(monkeypatch, sparse):
    # Three strong directions of nine columns, which rows of length one are almost made of.
    strong = torch.linalg.qr(torch.randn(9, 3, generator=seeded())).Q
    x = torch.randn(80, 3, generator=seeded(1)) @ strong.t()
    x += 0.01 * torch.randn(80, 9, generator=seeded(2))
    features = to_sparse(x) if sparse else x
    basis = principal_directions(features, 3, seed=0)
    torch.testing.assert_close(basis.t() @ basis, torch.eye(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(basis @ basis.t(), strong @ strong.t(), rtol=0, atol=0.01)
    monkeypatch.setattr(module, "BLOCK", 80)  # a column at a time
    torch.testing.assert_close(principal_directions(features, 3, seed=0), basis)


def test_columns_that_nobody_has_yet_are_not_lost():
    x = torch.randn(30, 6, generator=seeded())
    x[:, 4] = 0
    basis = principal_directions(x, 3, seed=0)
    assert basis[4].norm() > 0.1
    seen = torch.arange(6) != 4
    torch.testing.assert_close(basis[seen].t() @ basis[seen], torch.eye(3), rtol=0, atol=1e-4)


def test_directions_beyond_the_rank_are_random():
    x = torch.randn(4, 20, generator=seeded())  # four rows for eight directions
    basis = principal_directions(x, 8, seed=0)
    torch.testing.assert_close(basis.t() @ basis, torch.eye(8), rtol=0, atol=1e-4)
    torch.testing.assert_close(x @ basis @ basis.t(), x, rtol=0, atol=1e-2)
    other = principal_directions(x, 8, seed=1)
    assert (basis @ basis.t() - other @ other.t()).abs().max() > 0.1
