"""The CUDA kernel of the link loss, interpreted where there is no GPU, against numba's."""

from __future__ import annotations

import pytest
import torch

from evergraph.stream import adjacency as pattern
from evergraph.structure import pair_pattern

MARGIN = 1e-6


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch):
    monkeypatch.setattr(pattern, "CHUNK", 20)


def make_pairs(kind: str, n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if kind == "none":
        return torch.empty(2, 0, dtype=torch.int64)
    if kind == "hub":
        return torch.stack([torch.zeros(n - 1, dtype=torch.int64), torch.arange(1, n)])
    return torch.randint(n // 2, (2, 2 * n), generator=generator)  # half the rows are empty


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("kind", ["random", "hub", "none"])
@pytest.mark.parametrize("width", [4, 6])
def test_triton_equals_numba(kind, positive, width):
    pytest.importorskip("triton", reason="needs Triton")
    pytest.importorskip("numba", reason="needs numba")
    from evergraph.kernels import numba_pairs, triton_pairs

    n, device = 50, "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(n, width, generator=generator)
    z[1] = z[0]  # a score that is clamped
    unit = torch.nn.functional.normalize(z, dim=1)
    pairs = make_pairs(kind, n)
    valid = torch.rand(pairs.shape[1], generator=generator) < 0.8
    expected = numba_pairs.pair_terms(pair_pattern(pairs, n, valid), unit, positive, MARGIN)
    found = triton_pairs.pair_terms(
        pair_pattern(pairs.to(device), n, valid.to(device)), unit.to(device), positive, MARGIN
    )
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=2e-5, atol=2e-5)
