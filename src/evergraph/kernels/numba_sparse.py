"""Sparse times dense on the CPU, rows shared among threads by their number of entries."""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from torch import Tensor

from evergraph.kernels.numba_threads import FAST, Array, run, view
from evergraph.stream.adjacency import Pattern


@njit(parallel=True, fastmath=FAST, cache=True)
def _times(
    bounds: Array, indptr: Array, columns: Array, values: Array, dense: Array, out: Array
) -> None:
    width = dense.shape[1]
    for block in prange(bounds.size - 1):
        most = 0
        for i in range(bounds[block], bounds[block + 1]):
            most = max(most, indptr[i + 1] - indptr[i])
        kept = np.empty(most, np.int64)
        for i in range(bounds[block], bounds[block + 1]):
            count = 0
            for e in range(indptr[i], indptr[i + 1]):  # dropped entries cost no branch
                kept[count] = e
                count += values[e] != 0
            row = out[i]
            row[:] = 0
            # Four entries at a time, added in their order: the row is read and written once.
            fours = count // 4 * 4
            for k in range(0, fours, 4):
                e0, e1, e2, e3 = kept[k], kept[k + 1], kept[k + 2], kept[k + 3]
                v0, v1, v2, v3 = values[e0], values[e1], values[e2], values[e3]
                d0, d1 = dense[columns[e0]], dense[columns[e1]]
                d2, d3 = dense[columns[e2]], dense[columns[e3]]
                for c in range(width):
                    row[c] = row[c] + v0 * d0[c] + v1 * d1[c] + v2 * d2[c] + v3 * d3[c]
            for k in range(fours, count):
                value, other = values[kept[k]], dense[columns[kept[k]]]
                for c in range(width):
                    row[c] += value * other[c]


def times(pattern: Pattern, values: Tensor, dense: Tensor) -> Tensor:
    """Multiplies a sparse matrix by ``dense`` from the left, ``[rows, width]``."""
    out = dense.new_empty(pattern.num_rows, dense.shape[1])
    run(
        _times,
        pattern.blocks.numpy(),
        pattern.indptr.numpy(),
        pattern.columns.numpy(),
        view(values),
        view(dense),
        view(out),
    )
    return out
