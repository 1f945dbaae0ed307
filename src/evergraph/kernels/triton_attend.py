"""Attention sums on CUDA as Triton kernels: nothing of edge size is stored.

Imported only where CUDA is: PyTorch's CUDA builds bring Triton along. Sums run in a fixed
order, without atomics, so that results are the same bits every time.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from evergraph.kernels import triton_kernels as kernels
from evergraph.stream.adjacency import Pattern

#: Edges that one program reads at once, and its warps.
EDGES, WARPS = 8, 1
#: Rows that one program of the row-wise kernel reads at once.
ROWS = 16


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

    See :func:`evergraph.kernels.numba_attend.forward` for the arguments.
    """
    wx, bias = wx.contiguous(), bias.float().contiguous()
    (_, heads, channels), n = wx.shape, pattern.num_rows
    scores = wx.flatten(1).float() @ _score_matrix(att_src, att_dst)  # [n, 2 H]
    from_source, at_target = scores[:, :heads].contiguous(), scores[:, heads:].contiguous()
    if own is not None:
        at_target = at_target.index_select(0, own)
    chunks = pattern.chunks
    out, positive = (wx.new_empty(n, heads, channels) for _ in range(2))
    lse, share = (_floats(wx, n, heads) for _ in range(2))
    minus, plus = (_floats(wx, chunks.num_slots, heads, channels) for _ in range(2))
    top, total, above = (_floats(wx, chunks.num_slots, heads) for _ in range(3))
    sizes = _sizes(heads, channels)
    if n:
        kernels.forward[(chunks.owner.numel(), heads)](
            *(chunks.first, chunks.last, chunks.owner, chunks.slot, pattern.columns),
            *(wx, from_source, at_target, bias, slope),
            *(out, positive, lse, share, minus, plus, top, total, above),
            **sizes,
        )
    if chunks.num_slots:
        kernels.join_forward[(chunks.hubs.numel(), heads)](
            *(chunks.hubs, chunks.parts, bias),
            *(out, positive, lse, share, minus, plus, top, total, above),
            **sizes,
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

    See :func:`evergraph.kernels.numba_attend.backward_targets` for the arguments.
    """
    positive, share = saved
    n, heads, channels = grad.shape
    delta, grad_target = torch.empty_like(share), torch.empty_like(share)
    grad = grad.contiguous()
    if n:
        kernels.backward_targets[(triton.cdiv(n, ROWS), heads)](
            *(grad, *shown, positive, share, bias.float().contiguous()),
            *(slope, delta, grad_target, n),
            heads=heads,
            channels=channels,
            block_channels=triton.next_power_of_2(channels),
            block_rows=ROWS,
        )
    return delta, grad_target, grad.sum(dim=0, dtype=torch.float32).to(bias.dtype)


def backward_sources(
    transpose: Pattern,
    grad: Tensor,
    inputs: tuple[Tensor, Tensor, Tensor],
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of ``wx``, ``att_src`` and ``att_dst``.

    See :func:`evergraph.kernels.numba_attend.backward_sources` for the arguments.
    """
    wx, att_src, att_dst = inputs
    from_source, at_target, lse, delta, grad_target = saved
    wx, grad = wx.contiguous(), grad.contiguous()
    n, heads, channels = wx.shape
    chunks = transpose.chunks
    grad_wx, grad_source = torch.empty_like(wx), torch.empty_like(grad_target)
    part_wx = _floats(wx, chunks.num_slots, heads, channels)
    part_source = _floats(wx, chunks.num_slots, heads)
    sizes = _sizes(heads, channels)
    if n:
        kernels.backward_sources[(chunks.owner.numel(), heads)](
            *(chunks.first, chunks.last, chunks.owner, chunks.slot, transpose.columns),
            *(grad, wx, from_source, at_target, lse, delta, slope),
            *(grad_wx, grad_source, part_wx, part_source),
            **sizes,
        )
    if chunks.num_slots:
        kernels.join_backward[(chunks.hubs.numel(), heads)](
            *(chunks.hubs, chunks.parts, grad_wx, grad_source, part_wx, part_source),
            **sizes,
        )
    by_score = torch.cat([grad_source, grad_target], dim=1)  # [n, 2 H]
    flat, grad_flat = wx.flatten(1).float(), grad_wx.flatten(1).float()
    grad_flat.addmm_(by_score, _score_matrix(att_src, att_dst).t())
    grad_att = (by_score.t() @ flat).view(2, heads, heads, channels)
    grad_src, grad_dst = (torch.diagonal(part, dim1=0, dim2=1).t() for part in grad_att)
    return grad_flat.view_as(wx).to(wx.dtype), grad_src, grad_dst


def _score_matrix(att_src: Tensor, att_dst: Tensor) -> Tensor:
    """Lays both out as ``[H * C, 2 H]``, each head in its own rows: one product scores all."""
    heads = att_src.shape[0]
    own = torch.eye(heads, device=att_src.device)[:, None, :]  # [H, 1, H]
    blocks = [att.float()[:, :, None] * own for att in (att_src, att_dst)]
    return torch.cat(blocks, dim=2).flatten(0, 1)


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
