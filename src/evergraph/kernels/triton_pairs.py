"""Cross-entropy of cosines over pairs on CUDA: loss and gradient in one Triton pass.

Triton reads annotations of kernels as code, so that theirs stay without types.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from evergraph.kernels import triton_kernels
from evergraph.stream.adjacency import Chunks, Pattern

#: Pairs that one program reads at once, and its warps.
PAIRS, WARPS = 8, 2


@triton.jit
def terms(  # type: ignore[no-untyped-def]
    first,
    last,
    owner,
    slot,
    columns,
    unit,
    margin,
    loss,
    grad,
    part_loss,
    part_grad,
    positive: tl.constexpr,
    width: tl.constexpr,
    block_width: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Sums the terms of one chunk of a row's pairs."""
    chunk = tl.program_id(0).to(tl.int64)
    begin = tl.load(first + chunk)
    end = tl.load(last + chunk)
    row = tl.load(owner + chunk)
    place = tl.load(slot + chunk)
    channel = tl.arange(0, block_width)
    inside = channel < width
    offset = tl.arange(0, block_edges)
    mine = tl.load(unit + row * width + channel, mask=inside, other=0.0)
    rows = tl.zeros([block_edges, block_width], dtype=tl.float32)
    total = tl.zeros([block_edges], dtype=tl.float32)
    for at in range(begin, end, block_edges):
        pair = at + offset
        column = tl.load(columns + pair, mask=pair < end, other=-1).to(tl.int64)
        real = column >= 0
        position = column[:, None] * width + channel[None, :]
        value = tl.load(unit + position, mask=real[:, None] & inside[None, :], other=0.0)
        score = (tl.sum(value * mine[None, :], axis=1) + 1) * 0.5
        kept = tl.minimum(tl.maximum(score, margin), 1 - margin)
        if positive:
            term = -tl.log(kept)
            slope = -1.0 / kept
        else:
            term = -tl.log(1 - kept)
            slope = 1.0 / (1 - kept)
        total += tl.where(real, term, 0.0)
        # Both ends see the pair, so that each sees half of what it costs: slopes are doubled.
        rows += tl.where(real & (score == kept), slope, 0.0)[:, None] * value
    row_sum = tl.sum(rows, axis=0)
    total_sum = tl.sum(total, axis=0)
    if place < 0:
        tl.store(grad + row * width + channel, row_sum, mask=inside)
        tl.store(loss + row, total_sum)
    else:
        tl.store(part_grad + place * width + channel, row_sum, mask=inside)
        tl.store(part_loss + place, total_sum)


def pair_terms(
    pairs: Pattern, unit: Tensor, positive: bool, margin: float
) -> tuple[Tensor, Tensor]:
    """Returns every row's cross-entropy ``[n]`` and the gradient of their sum ``[n, d]``."""
    n, width = unit.shape
    unit = unit.contiguous()
    loss, grad = unit.new_empty(n), torch.empty_like(unit)
    if n == 0:
        return loss, grad
    # Non-edges are drawn anew every step and have no hubs: cutting them would wait for the device.
    chunks = pairs.chunks if positive else _whole(pairs)
    part_loss = unit.new_empty(chunks.num_slots)
    part_grad = unit.new_empty(chunks.num_slots, width)
    terms[(chunks.owner.numel(),)](
        chunks.first,
        chunks.last,
        chunks.owner,
        chunks.slot,
        pairs.columns,
        unit,
        margin,
        *(loss, grad, part_loss, part_grad),
        positive=positive,
        width=width,
        block_width=triton.next_power_of_2(width),
        block_edges=PAIRS,
        num_warps=WARPS,
    )
    if chunks.num_slots:
        triton_kernels.join_backward[(chunks.hubs.numel(), 1)](
            chunks.hubs,
            chunks.parts,
            *(grad, loss, part_grad, part_loss),
            heads=1,
            channels=width,
            block_channels=triton.next_power_of_2(width),
            block_edges=PAIRS,
            num_warps=WARPS,
        )
    return loss, grad


def _whole(pairs: Pattern) -> Chunks:
    """Takes every row as one chunk."""
    rows = torch.arange(pairs.num_rows, device=pairs.indptr.device)
    none = rows[:0]
    return Chunks(
        pairs.indptr[:-1],
        pairs.indptr[1:],
        rows,
        torch.full_like(rows, -1),
        none,
        none,
        num_slots=0,
    )
