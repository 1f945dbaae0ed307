"""Sparse times dense on the CPU, rows shared among threads by their number of entries."""

from __future__ import annotations

from numba import njit, prange
from torch import Tensor

from evergraph.nn.kernels.numba_threads import FAST, Array, run, view
from evergraph.stream.pattern import Pattern


@njit(parallel=True, fastmath=FAST, cache=True)
def _times(
    bounds: Array, indptr: Array, columns: Array, values: Array, dense: Array, out: Array
) -> None:
    width = dense.shape[1]
    for block in prange(bounds.size - 1):
        for i in range(bounds[block], bounds[block + 1]):
            row = out[i]
            row[:] = 0
            for e in range(indptr[i], indptr[i + 1]):
                value, other = values[e], dense[columns[e]]
                if value != 0:  # dropped entries cost nothing
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
