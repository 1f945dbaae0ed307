"""Dropout on the CPU: masks are a hash of a seed and the position, so none has to be kept."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from evergraph.kernels.numba_threads import FAST, Array, Number, run, scalar, view

#: Entries that one share of the work holds; a hash gives the random bytes of eight.
SHARE = 8192

# The constants of SplitMix64.
STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
A, B, C = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(cache=True)
def _random_bytes(seed: Number, share: int) -> Array:
    words = np.empty(SHARE // 8, np.uint64)
    for k in range(words.size):
        word = seed + np.uint64(share * (SHARE // 8) + k) * STEP
        word = (word ^ (word >> A)) * FIRST
        word = (word ^ (word >> B)) * SECOND
        words[k] = word ^ (word >> C)
    return words.view(np.uint8)


@njit(parallel=True, fastmath=FAST, cache=True)
def _drop(
    seed: Number, dropped: int, rows: Array, scale: Number, rectify: bool, out: Array
) -> None:
    zero = scale - scale
    for share in prange((rows.size + SHARE - 1) // SHARE):
        begin = share * SHARE
        end = min(begin + SHARE, rows.size)
        kept = _random_bytes(seed, share)
        source, target = rows[begin:end], out[begin:end]
        for k in range(end - begin):
            value = source[k] * scale if kept[k] >= dropped else zero
            target[k] = zero if rectify and value < zero else value


# With one array for input and output the loop above runs entry by entry: 20 times slower.
@njit(parallel=True, fastmath=FAST, cache=True)
def _drop_in_place(seed: Number, dropped: int, rows: Array, scale: Number, rectify: bool) -> None:
    zero = scale - scale
    for share in prange((rows.size + SHARE - 1) // SHARE):
        begin = share * SHARE
        end = min(begin + SHARE, rows.size)
        kept = _random_bytes(seed, share)
        target = rows[begin:end]
        for k in range(end - begin):
            value = target[k] * scale if kept[k] >= dropped else zero
            target[k] = zero if rectify and value < zero else value


@njit(parallel=True, fastmath=FAST, cache=True)
def _pass_where_positive(grad: Array, out: Array, scale: Number, result: Array) -> None:
    zero = scale - scale
    for share in prange((grad.size + SHARE - 1) // SHARE):
        begin = share * SHARE
        end = min(begin + SHARE, grad.size)
        source, shown, target = grad[begin:end], out[begin:end], result[begin:end]
        for k in range(end - begin):
            target[k] = source[k] * scale if shown[k] > 0 else zero


def draw_seed(generator: torch.Generator) -> int:
    """Draws a seed."""
    return int(torch.randint(2**63 - 1, (), generator=generator))


def drop(
    rows: Tensor, seed: int, dropped: int, *, rectify: bool = False, in_place: bool = False
) -> Tensor:
    """Zeroes ``dropped`` of 256 entries and rescales the rest, after a ReLU if ``rectify``."""
    rows = rows.contiguous()
    about = (np.uint64(seed), dropped, view(rows).reshape(-1))
    scale = scalar(256 / (256 - dropped), rows)
    if in_place:
        run(_drop_in_place, *about, scale, rectify)
        return rows
    out = torch.empty_like(rows)
    run(_drop, *about, scale, rectify, view(out).reshape(-1))
    return out


def pass_where_positive(grad: Tensor, out: Tensor, dropped: int) -> Tensor:
    """Returns the gradient of :func:`drop` after a ReLU, given its output."""
    grad = grad.contiguous()
    result = torch.empty_like(grad)
    run(
        _pass_where_positive,
        view(grad).reshape(-1),
        view(out).reshape(-1),
        scalar(256 / (256 - dropped), grad),
        view(result).reshape(-1),
    )
    return result
