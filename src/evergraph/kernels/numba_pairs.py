"""Cross-entropy of cosines over pairs on the CPU: loss and gradient in one compiled pass."""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from evergraph.kernels.numba_threads import FAST, Array, Number, run, scalar, view
from evergraph.stream.adjacency import Pattern


@njit(parallel=True, fastmath=FAST, cache=True)
def _pair_terms(
    bounds: Array,
    indptr: Array,
    columns: Array,
    unit: Array,
    positive: bool,
    margin: Number,
    loss: Array,
    grad: Array,
) -> None:
    width = unit.shape[1]
    zero = margin - margin
    half = zero + np.float32(0.5)
    one = half + half
    for block in prange(bounds.size - 1):
        for i in range(bounds[block], bounds[block + 1]):
            mine, row = unit[i], grad[i]
            row[:] = 0
            total = zero
            for e in range(indptr[i], indptr[i + 1]):
                j = columns[e]
                if j < 0:
                    continue
                other = unit[j]
                cosine = zero
                for c in range(width):
                    cosine += mine[c] * other[c]
                score = (cosine + one) * half
                kept = min(max(score, margin), one - margin)
                if positive:
                    total -= math.log(kept)
                    slope = -half / kept
                else:
                    total -= math.log1p(-kept)
                    slope = half / (one - kept)
                if score == kept:
                    # Both ends see the pair, so that each sees half of what it costs.
                    slope += slope
                    for c in range(width):
                        row[c] += slope * other[c]
            loss[i] = total


def pair_terms(
    pairs: Pattern, unit: Tensor, positive: bool, margin: float
) -> tuple[Tensor, Tensor]:
    """Returns every row's cross-entropy ``[n]`` and the gradient of their sum ``[n, d]``."""
    loss, grad = unit.new_empty(unit.shape[0]), torch.empty_like(unit)
    run(
        _pair_terms,
        pairs.blocks.numpy(),
        pairs.indptr.numpy(),
        pairs.columns.numpy(),
        view(unit),
        positive,
        scalar(margin, unit),
        view(loss),
        view(grad),
    )
    return loss, grad
