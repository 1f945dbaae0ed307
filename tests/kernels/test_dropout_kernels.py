"""Dropout by a hash: CUDA and CPU draw the same mask from the same seed."""

from __future__ import annotations

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("rectify", [False, True])
@pytest.mark.parametrize("size", [(3, 700), (1, 5), (0, 4)])
def test_triton_drops_what_numba_drops(size, rectify):
    pytest.importorskip("triton", reason="needs Triton")
    pytest.importorskip("numba", reason="needs numba")
    from evergraph.kernels import numba_dropout, triton_dropout

    rows = torch.randn(size, generator=torch.Generator().manual_seed(0))
    seed = 7_234_567_890_123_456_789
    on_device = torch.tensor([seed], device=DEVICE)
    expected = numba_dropout.drop(rows, seed, 77, rectify=rectify)
    found = triton_dropout.drop(rows.to(DEVICE), on_device, 77, rectify=rectify)
    torch.testing.assert_close(found.cpu(), expected)
    again = triton_dropout.drop(
        rows.to(DEVICE).clone(), on_device, 77, rectify=rectify, in_place=True
    )
    assert torch.equal(again, found)
    if rectify:
        grad = torch.randn(size, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(
            triton_dropout.pass_where_positive(grad.to(DEVICE), found, 77).cpu(),
            numba_dropout.pass_where_positive(grad, expected, 77),
        )
