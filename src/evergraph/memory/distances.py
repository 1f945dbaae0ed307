"""Euclidean distances in row blocks: exact, symmetric, never a whole ``n × n`` matrix."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

#: Distances held at once; bounds memory at 64 MB whatever the number of rows.
BLOCK_ENTRIES = 1 << 24


def distance_blocks(a: Tensor, b: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yields ``(begin, distances)``, the rows of ``a`` from ``begin`` on against all of ``b``.

    Differences are squared and summed directly: the usual expansion into inner products is
    faster but loses the symmetry that covers and ties rely on.
    """
    step = max(1, BLOCK_ENTRIES // max(b.shape[0], 1))
    for begin in range(0, a.shape[0], step):
        rows = a[begin : begin + step]
        yield begin, torch.cdist(rows, b, compute_mode="donot_use_mm_for_euclid_dist")


def mean_pairwise_distance(h: Tensor) -> Tensor:
    """Averages the distance between distinct rows of ``h``; a float64 scalar, 0 for one row."""
    total = torch.zeros((), dtype=torch.float64, device=h.device)
    for _, block in distance_blocks(h, h):
        total += block.sum(dtype=torch.float64)  # the diagonal adds exactly zero
    return total / max(h.shape[0] * (h.shape[0] - 1), 1)
