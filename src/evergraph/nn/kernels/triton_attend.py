"""Attention sums on CUDA as Triton kernels: nothing of edge size is stored.

Imported only where CUDA is: PyTorch's CUDA builds bring Triton along. Sums run in a fixed
order, without atomics, so that results are the same bits every time.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from evergraph.nn.kernels import triton_kernels as kernels
from evergraph.stream.pattern import Pattern

#: Edges that one program reads at once, and its warps.
EDGES, WARPS = 16, 2
#: Rows that one program of the row-wise kernel reads at once.
ROWS = 16


def forward(
    pattern: Pattern, wx: Tensor, from_source: Tensor, at_target: Tensor, slope: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See :func:`evergraph.nn.attention.attend`; returns what the backward pass needs."""
    heads, channels = wx.shape[1:]
    chunks = pattern.chunks
    out = wx.new_empty(pattern.num_rows, heads, channels)
    positive = torch.empty_like(out)
    lse, share = (_floats(wx, pattern.num_rows, heads) for _ in range(2))
    minus, plus = (_floats(wx, chunks.num_slots, heads, channels) for _ in range(2))
    top, total, above = (_floats(wx, chunks.num_slots, heads) for _ in range(3))
    sizes = _sizes(heads, channels)
    if pattern.num_rows:
        kernels.forward[(chunks.owner.numel(), heads)](
            chunks.first,
            chunks.last,
            chunks.owner,
            chunks.slot,
            pattern.columns,
            wx.contiguous(),
            from_source.float().contiguous(),
            at_target.float().contiguous(),
            slope,
            *(out, positive, lse, share, minus, plus, top, total, above),
            **sizes,
        )
    if chunks.num_slots:
        kernels.join_forward[(chunks.hubs.numel(), heads)](
            chunks.hubs,
            chunks.parts,
            *(out, positive, lse, share, minus, plus, top, total, above),
            **sizes,
        )
    return out, positive, lse, share


def backward_targets(
    pattern: Pattern, grad: Tensor, out: Tensor, positive: Tensor, share: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Returns ``delta`` (gradient times output) and the gradient of the target scores."""
    num_rows, heads, channels = out.shape
    delta, grad_target = torch.empty_like(share), torch.empty_like(share)
    if num_rows:
        kernels.backward_targets[(triton.cdiv(num_rows, ROWS), heads)](
            grad.contiguous(),
            *(out, positive, share, slope, delta, grad_target, num_rows),
            heads=heads,
            channels=channels,
            block_channels=triton.next_power_of_2(channels),
            block_rows=ROWS,
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
    num_rows, heads, channels = wx.shape
    chunks = transpose.chunks
    grad_wx = torch.empty_like(wx, memory_format=torch.contiguous_format)
    grad_source = _floats(wx, num_rows, heads)
    part_wx = _floats(wx, chunks.num_slots, heads, channels)
    part_source = _floats(wx, chunks.num_slots, heads)
    sizes = _sizes(heads, channels)
    if num_rows:
        kernels.backward_sources[(chunks.owner.numel(), heads)](
            chunks.first,
            chunks.last,
            chunks.owner,
            chunks.slot,
            transpose.columns,
            grad.contiguous(),
            wx.contiguous(),
            from_source.float().contiguous(),
            at_target.float().contiguous(),
            *(lse, delta, slope, grad_wx, grad_source, part_wx, part_source),
            **sizes,
        )
    if chunks.num_slots:
        kernels.join_backward[(chunks.hubs.numel(), heads)](
            chunks.hubs,
            chunks.parts,
            *(grad_wx, grad_source, part_wx, part_source),
            **sizes,
        )
    return grad_wx, grad_source.to(from_source.dtype)


def _floats(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _sizes(heads: int, channels: int) -> dict[str, int]:
    return {
        "heads": heads,
        "channels": channels,
        "block_channels": triton.next_power_of_2(channels),
        "block_edges": EDGES,
        "num_warps": WARPS,
    }
