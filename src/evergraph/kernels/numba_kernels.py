"""The loops that numba compiles: attention, dropout, sparse products and the link loss.

Every row is written by one thread in a fixed order, and sums over rows are made block by
block, so that results are the same bits whatever the number of threads. Decision 0012 has
the equations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

#: What compiled code is given: views of tensors, and numbers of their precision.
Array = np.ndarray[Any, np.dtype[Any]]
Number = Any  # NumPy's scalars have no common type that arithmetic keeps

#: Reordering inside a row is allowed; infinities and NaN keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}


@njit(parallel=True, fastmath=FAST, cache=True)
def attend_scores(
    bounds: Array, wx: Array, att_src: Array, att_dst: Array, from_source: Array, at_target: Array
) -> None:
    """Scores every row as a source and as a target."""
    _, heads, channels = wx.shape
    for block in prange(bounds.size - 1):
        for i in range(bounds[block], bounds[block + 1]):
            for h in range(heads):
                row, src, dst = wx[i, h], att_src[h], att_dst[h]
                source = row[0] - row[0]
                target = source
                for c in range(channels):
                    source += row[c] * src[c]
                    target += row[c] * dst[c]
                from_source[i, h] = source
                at_target[i, h] = target


@njit(parallel=True, fastmath=FAST, cache=True)
def attend_forward(
    bounds: Array,
    indptr: Array,
    columns: Array,
    wx: Array,
    from_source: Array,
    at_target: Array,
    bias: Array,
    slope: Number,
    out: Array,
    positive: Array,
    lse: Array,
    share: Array,
) -> None:
    """Adds up every row's neighbours; those with scores above zero apart from the rest."""
    _, heads, channels = wx.shape
    zero = slope - slope
    one = zero + np.float32(1)
    for block in prange(bounds.size - 1):
        top = np.empty(heads, wx.dtype)
        total = np.empty(heads, wx.dtype)
        above = np.empty(heads, wx.dtype)
        for i in range(bounds[block], bounds[block + 1]):
            top[:] = -np.inf
            total[:] = 0
            above[:] = 0
            out[i] = 0
            positive[i] = 0
            for e in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    top[h] = max(top[h], from_source[columns[e], h])
            for h in range(heads):
                top[h] += at_target[i, h]  # the leaky ReLU keeps the order of scores
                top[h] = top[h] if top[h] > 0 else slope * top[h]
            for e in range(indptr[i], indptr[i + 1]):
                j = columns[e]
                for h in range(heads):
                    score = at_target[i, h] + from_source[j, h]
                    source = wx[j, h]
                    weight = math.exp((score if score > 0 else slope * score) - top[h])
                    total[h] += weight
                    if score > 0:
                        above[h] += weight
                        row = positive[i, h]
                    else:
                        row = out[i, h]
                    for c in range(channels):
                        row[c] += weight * source[c]
            for h in range(heads):
                scale = one / total[h] if total[h] > 0 else zero  # without edges all is zero
                lse[i, h] = top[h] + math.log(total[h]) if total[h] > 0 else zero
                share[i, h] = above[h] * scale
                row, plus, shift = out[i, h], positive[i, h], bias[h]
                for c in range(channels):
                    plus[c] *= scale
                    row[c] = row[c] * scale + plus[c] + shift[c]


@njit(parallel=True, fastmath=FAST, cache=True)
def attend_backward_targets(
    bounds: Array,
    grad: Array,
    shown: Array,
    undo: Number,
    positive: Array,
    share: Array,
    bias: Array,
    slope: Number,
    delta: Array,
    grad_target: Array,
    part_bias: Array,
) -> None:
    """Multiplies gradient and output of every row."""
    _, heads, channels = shown.shape
    zero = slope - slope
    one = zero + np.float32(1)
    for block in prange(bounds.size - 1):
        part_bias[block] = 0
        for i in range(bounds[block], bounds[block + 1]):
            for h in range(heads):
                g, row, above, shift = grad[i, h], shown[i, h], positive[i, h], bias[h]
                part = part_bias[block, h]
                whole, plus = zero, zero
                for c in range(channels):
                    whole += g[c] * (row[c] * undo - shift[c])
                    plus += g[c] * above[c]
                    part[c] += g[c]
                delta[i, h] = whole
                grad_target[i, h] = (one - slope) * (plus - whole * share[i, h])


@njit(parallel=True, fastmath=FAST, cache=True)
def attend_backward_sources(
    bounds: Array,
    indptr: Array,
    columns: Array,
    grad: Array,
    wx: Array,
    from_source: Array,
    at_target: Array,
    lse: Array,
    delta: Array,
    grad_target: Array,
    att_src: Array,
    att_dst: Array,
    slope: Number,
    grad_wx: Array,
    part_src: Array,
    part_dst: Array,
) -> None:
    """Collects the gradients of every source over the rows that read it."""
    _, heads, channels = wx.shape
    zero = slope - slope
    one = zero + np.float32(1)
    for block in prange(bounds.size - 1):
        part_src[block] = 0
        part_dst[block] = 0
        grad_source = np.empty(heads, wx.dtype)
        for j in range(bounds[block], bounds[block + 1]):
            grad_wx[j] = 0
            grad_source[:] = 0
            for e in range(indptr[j], indptr[j + 1]):
                i = columns[e]
                for h in range(heads):
                    target, source, row = grad[i, h], wx[j, h], grad_wx[j, h]
                    score = at_target[i, h] + from_source[j, h]
                    turn = one if score > 0 else slope
                    weight = math.exp(turn * score - lse[i, h])
                    product = zero
                    for c in range(channels):
                        product += target[c] * source[c]
                    for c in range(channels):
                        row[c] += weight * target[c]
                    grad_source[h] += weight * (product - delta[i, h]) * turn
            for h in range(heads):
                source, row = wx[j, h], grad_wx[j, h]
                src, dst = att_src[h], att_dst[h]
                sum_src, sum_dst = part_src[block, h], part_dst[block, h]
                by_source, by_target = grad_source[h], grad_target[j, h]
                for c in range(channels):
                    row[c] += by_source * src[c] + by_target * dst[c]
                    sum_src[c] += by_source * source[c]
                    sum_dst[c] += by_target * source[c]


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
def drop(seed: Number, dropped: int, rows: Array, scale: Number, rectify: bool) -> None:
    """Drops entries in place; given one array twice, a loop runs 20 times slower."""
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
def times(
    bounds: Array, indptr: Array, columns: Array, values: Array, dense: Array, out: Array
) -> None:
    """Multiplies a sparse matrix by a dense one."""
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


@njit(parallel=True, fastmath=FAST, cache=True)
def pair_terms(
    bounds: Array,
    indptr: Array,
    columns: Array,
    unit: Array,
    positive: bool,
    margin: Number,
    loss: Array,
    grad: Array,
) -> None:
    """Sums the cross-entropy of every row's pairs, and its gradient."""
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
