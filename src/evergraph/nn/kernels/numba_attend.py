"""Attention sums on the CPU as two compiled passes: nothing of edge size is stored.

Every row is written by one thread in a fixed order, so that results are the same bits
whatever the number of threads.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from evergraph.nn.kernels.numba_threads import FAST, run, scalar, view
from evergraph.stream.pattern import Pattern


@njit(parallel=True, fastmath=FAST, cache=True)
def _forward(  # type: ignore[no-untyped-def]
    bounds, indptr, columns, wx, from_source, at_target, slope, out, positive, lse, share
):
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
                row, plus = out[i, h], positive[i, h]
                for c in range(channels):
                    plus[c] *= scale
                    row[c] = row[c] * scale + plus[c]


@njit(parallel=True, fastmath=FAST, cache=True)
def _backward_targets(  # type: ignore[no-untyped-def]
    bounds, grad, out, positive, share, slope, delta, grad_target
):
    _, heads, channels = out.shape
    zero = slope - slope
    one = zero + np.float32(1)
    for block in prange(bounds.size - 1):
        for i in range(bounds[block], bounds[block + 1]):
            for h in range(heads):
                g, row, above = grad[i, h], out[i, h], positive[i, h]
                whole, plus = zero, zero
                for c in range(channels):
                    whole += g[c] * row[c]
                    plus += g[c] * above[c]
                delta[i, h] = whole
                grad_target[i, h] = (one - slope) * (plus - whole * share[i, h])


@njit(parallel=True, fastmath=FAST, cache=True)
def _backward_sources(  # type: ignore[no-untyped-def]
    bounds, indptr, columns, grad, wx, from_source, at_target, lse, delta, slope, grad_wx, grad_src
):
    _, heads, channels = wx.shape
    zero = slope - slope
    one = zero + np.float32(1)
    for block in prange(bounds.size - 1):
        for j in range(bounds[block], bounds[block + 1]):
            grad_wx[j] = 0
            grad_src[j] = 0
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
                    grad_src[j, h] += weight * (product - delta[i, h]) * turn


def forward(
    pattern: Pattern, wx: Tensor, from_source: Tensor, at_target: Tensor, slope: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See :func:`evergraph.nn.attention.attend`; returns what the backward pass needs."""
    heads = wx.shape[1]
    out = wx.new_empty(pattern.num_rows, *wx.shape[1:])
    positive = torch.empty_like(out)
    lse, share = wx.new_empty(pattern.num_rows, heads), wx.new_empty(pattern.num_rows, heads)
    run(
        _forward,
        pattern.blocks.numpy(),
        pattern.indptr.numpy(),
        pattern.columns.numpy(),
        view(wx),
        view(from_source),
        view(at_target),
        scalar(slope, wx),
        view(out),
        view(positive),
        view(lse),
        view(share),
    )
    return out, positive, lse, share


def backward_targets(
    pattern: Pattern, grad: Tensor, out: Tensor, positive: Tensor, share: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Returns ``delta`` (gradient times output) and the gradient of the target scores."""
    delta, grad_target = torch.empty_like(share), torch.empty_like(share)
    run(
        _backward_targets,
        pattern.blocks.numpy(),
        view(grad),
        view(out),
        view(positive),
        view(share),
        scalar(slope, out),
        view(delta),
        view(grad_target),
    )
    return delta, grad_target


def backward_sources(
    transpose: Pattern,
    grad: Tensor,
    wx: Tensor,
    from_source: Tensor,
    at_target: Tensor,
    lse: Tensor,
    delta: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor]:
    """Returns the gradients of the rows and of the source scores."""
    grad_wx = torch.empty_like(wx, memory_format=torch.contiguous_format)
    grad_source = torch.empty_like(from_source, memory_format=torch.contiguous_format)
    run(
        _backward_sources,
        transpose.blocks.numpy(),
        transpose.indptr.numpy(),
        transpose.columns.numpy(),
        view(grad),
        view(wx),
        view(from_source),
        view(at_target),
        view(lse),
        view(delta),
        scalar(slope, wx),
        view(grad_wx),
        view(grad_source),
    )
    return grad_wx, grad_source
