"""An attention layer on the CPU as four compiled passes: nothing of edge size is stored.

Every row is written by one thread in a fixed order, and sums over rows are made block by
block, so that results are the same bits whatever the number of threads. Decision 0012 has
the equations.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from evergraph.kernels.numba_threads import FAST, Array, Number, run, scalar, view
from evergraph.stream.adjacency import BLOCKS, Pattern


@njit(parallel=True, fastmath=FAST, cache=True)
def _scores(
    bounds: Array, wx: Array, att_src: Array, att_dst: Array, from_source: Array, at_target: Array
) -> None:
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
def _forward(
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
def _backward_targets(
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
def _backward_sources(
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


def forward(
    pattern: Pattern,
    wx: Tensor,
    att_src: Tensor,
    att_dst: Tensor,
    bias: Tensor,
    slope: float,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Computes a layer's output ``[n, H, C]`` and what its backward passes need.

    Args:
        pattern: Which rows every row reads.
        wx: Projected rows, ``[s, H, C]``.
        att_src: Attention vectors of the sources, ``[H, C]``.
        att_dst: Those of the targets.
        bias: Added to every row, ``[H, C]``.
        slope: Of the leaky ReLU below zero.
        own: Which of the rows each node is itself, ``[n]``; None means that all are nodes.

    Returns:
        The output; its part from scores above zero, ``[n, H, C]``, and their share of the
        weight, ``[n, H]``; the scores as source ``[s, H]`` and as target and the log-sums,
        ``[n, H]``.
    """
    (s, heads, channels), n = wx.shape, pattern.num_rows
    from_source, at_target = (wx.new_empty(s, heads) for _ in range(2))
    lse, share = (wx.new_empty(n, heads) for _ in range(2))
    out, positive = (wx.new_empty(n, heads, channels) for _ in range(2))
    run(
        _scores,
        np.arange(BLOCKS + 1) * s // BLOCKS,
        *map(view, (wx, att_src, att_dst, from_source, at_target)),
    )
    if own is not None:
        at_target = at_target.index_select(0, own)
    run(
        _forward,
        pattern.blocks.numpy(),
        pattern.indptr.numpy(),
        pattern.columns.numpy(),
        *map(view, (wx, from_source, at_target, bias)),
        scalar(slope, wx),
        *map(view, (out, positive, lse, share)),
    )
    return out, positive, share, (from_source, at_target, lse)


def backward_targets(
    pattern: Pattern,
    grad: Tensor,
    shown: tuple[Tensor, float],
    saved: tuple[Tensor, Tensor],
    bias: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns gradient times output, the gradient of the target scores, and that of the bias.

    Args:
        pattern: Which rows every row reads.
        grad: Gradient of the output.
        shown: What the layer showed and the factor that makes it the output again, wherever
            the gradient is not zero.
        saved: ``positive`` and ``share`` of :func:`forward`.
        bias: As there.
        slope: As there.
    """
    positive, share = saved
    blocks = pattern.blocks.numpy()
    delta, grad_target = torch.empty_like(share), torch.empty_like(share)
    parts = grad.new_empty(len(blocks) - 1, *bias.shape)
    run(
        _backward_targets,
        blocks,
        *map(view, (grad, shown[0])),
        scalar(shown[1], grad),
        *map(view, (positive, share, bias)),
        scalar(slope, grad),
        *map(view, (delta, grad_target, parts)),
    )
    return delta, grad_target, parts.sum(dim=0)


def backward_sources(
    transpose: Pattern,
    grad: Tensor,
    inputs: tuple[Tensor, Tensor, Tensor],
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of ``wx``, ``att_src`` and ``att_dst``.

    Args:
        transpose: Which rows read every row.
        grad: Gradient of the output.
        inputs: ``wx``, ``att_src`` and ``att_dst``.
        saved: Both scores and the log-sums of :func:`forward`, then gradient times output
            and the gradient of the target scores of :func:`backward_targets`; the first and
            the last of the sources, the others of the nodes.
        slope: As there.
    """
    wx, att_src, att_dst = inputs
    blocks = transpose.blocks.numpy()
    grad_wx = torch.empty_like(wx, memory_format=torch.contiguous_format)
    parts = wx.new_empty(2, len(blocks) - 1, *att_src.shape)
    run(
        _backward_sources,
        blocks,
        transpose.indptr.numpy(),
        transpose.columns.numpy(),
        *map(view, (grad, wx, *saved, att_src, att_dst)),
        scalar(slope, wx),
        *map(view, (grad_wx, parts[0], parts[1])),
    )
    grad_src, grad_dst = parts.sum(dim=1)
    return grad_wx, grad_src, grad_dst
