"""Euclidean distances in row blocks: exact, symmetric, never a whole ``n × n`` matrix.

Differences are squared and summed directly, in the same order wherever a pair comes up: the
usual expansion into inner products loses the symmetry that covers and ties rely on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from evergraph.kernels.ops import has_kernels, kernels

#: Distances held at once; bounds memory at 64 MB whatever the number of rows.
BLOCK_ENTRIES = 1 << 24


def distance_blocks(a: Tensor, b: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yields ``(begin, distances)``, the rows of ``a`` from ``begin`` on against all of ``b``."""
    step = max(1, BLOCK_ENTRIES // max(b.shape[0], 1))
    for begin in range(0, a.shape[0], step):
        yield begin, _distances(a[begin : begin + step], b)


def fits_one_block(h: Tensor) -> bool:
    """Tells whether all pairs of rows make a single block."""
    return h.shape[0] ** 2 <= BLOCK_ENTRIES


def count_within(a: Tensor, b: Tensor, radius: Tensor) -> Tensor:
    """Counts for each row of ``b`` the rows of ``a`` nearer than a scalar radius, ``[n_b]``."""
    module = _kernels(a)
    if module is not None:
        found: Tensor = module.count_within(a, b, radius)
        return found
    counts = torch.zeros(b.shape[0], dtype=torch.int64, device=a.device)
    for _, block in distance_blocks(a, b):
        counts += (block < radius).sum(dim=0)
    return counts


def neighbor_counts(h: Tensor, radius: Tensor) -> Tensor:
    """Does :func:`count_within` of ``h`` with itself, computing each pair only once."""
    if _kernels(h) is not None:
        return count_within(h, h, radius)
    counts = torch.zeros(h.shape[0], dtype=torch.int64, device=h.device)
    for begin, block in _half_blocks(h):
        inside, end = block < radius, begin + block.shape[0]
        counts[begin:end] += inside.sum(dim=1)
        counts[end:] += inside[:, block.shape[0] :].sum(dim=0)
    return counts


def mean_pairwise_distance(h: Tensor) -> Tensor:
    """Averages the distance between distinct rows of ``h``; a float64 scalar, 0 for one row."""
    module = _kernels(h)
    if module is not None:
        total: Tensor = module.distance_sums(h, h).sum()
    else:
        total = torch.zeros((), dtype=torch.float64, device=h.device)
        for _, block in _half_blocks(h):
            square, beyond = block[:, : block.shape[0]], block[:, block.shape[0] :]
            total += square.sum(dtype=torch.float64)  # the diagonal adds exactly zero
            total += 2 * beyond.sum(dtype=torch.float64)
    return total / max(h.shape[0] * (h.shape[0] - 1), 1)


def _half_blocks(h: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yields ``(begin, distances)``, rows from ``begin`` on against these and all later ones."""
    begin = 0
    while begin < h.shape[0]:
        step = max(1, BLOCK_ENTRIES // (h.shape[0] - begin))
        yield begin, _distances(h[begin : begin + step], h[begin:])
        begin += step


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Computes one block of distances, ``[n_a, n_b]``."""
    module = _kernels(a)
    if module is None:
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    block: Tensor = module.distances(a, b)
    return block


def _kernels(h: Tensor) -> Any | None:
    """Returns the module of CUDA kernels where it applies."""
    if not h.is_cuda or h.dtype != torch.float32 or not has_kernels(h.device):
        return None
    return kernels(h.device)
