"""Euclidean distances on CUDA as Triton kernels: counted or summed without being stored.

Every kernel takes its distances from one function, which adds squared differences column by
column: a pair has the same bits in every kernel, whatever the tile and whichever row comes
first. Imported only where CUDA is.

Triton reads annotations of kernels as code, so that theirs stay without types.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

#: A tile has four axes, ``[each, each, lanes, lanes]``: row ``i * lanes + p`` against column
#: ``j * lanes + q`` is entry ``i, j, p, q``. Triton spreads threads over the last two, so that
#: each thread holds a square of pairs and loads few numbers for many of them.
LANES, EACH, WARPS = 16, 8, 8
#: Rows of either set that one program compares at once.
SIDE = LANES * EACH
#: Columns of the embeddings between two turns of the loop.
UNROLL = 4
#: Few enough for two programs to run side by side on Hopper.
REGISTERS = 128
#: Programs to aim for when the first set is shared out; fixed, so that sums do not depend on
#: the device.
PROGRAMS = 2048


@triton.jit
def places(block, each: tl.constexpr, lanes: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the rows of one block, ``[each, lanes]``."""
    begin = block * each * lanes
    return begin + tl.arange(0, each)[:, None] * lanes + tl.arange(0, lanes)[None, :]


@triton.jit
def tile(  # type: ignore[no-untyped-def]
    a,
    b,
    row,
    column,
    padded_a,
    padded_b,
    depth,
    each_a: tl.constexpr,
    each_b: tl.constexpr,
    lanes: tl.constexpr,
    unroll: tl.constexpr,
):
    """Computes the distances of one tile, ``[each_a, each_b, lanes, lanes]``."""
    total = tl.zeros([each_a, each_b, lanes, lanes], dtype=tl.float32)
    for _ in range(0, depth, unroll):
        for _ in tl.static_range(unroll):
            mine = tl.load(a + row)[:, None, :, None]
            difference = mine - tl.load(b + column)[None, :, None, :]
            # Spelled out: left to the compiler, kernels could round differently.
            total = tl.fma(difference, difference, total)
            a += padded_a
            b += padded_b
    return tl.sqrt_rn(total)


@triton.jit
def write(  # type: ignore[no-untyped-def]
    a,
    b,
    out,
    num_a,
    num_b,
    padded_a,
    padded_b,
    depth,
    each_a: tl.constexpr,
    each_b: tl.constexpr,
    lanes: tl.constexpr,
    unroll: tl.constexpr,
):
    """Writes one tile of distances."""
    across = tl.cdiv(num_b, each_b * lanes)
    row = places(tl.program_id(0) // across, each_a, lanes)
    column = places(tl.program_id(0) % across, each_b, lanes)
    distance = tile(a, b, row, column, padded_a, padded_b, depth, each_a, each_b, lanes, unroll)
    row = row[:, None, :, None]
    column = column[None, :, None, :]
    inside = (row < num_a) & (column < num_b)
    tl.store(out + row.to(tl.int64) * num_b + column, distance, mask=inside)


@triton.jit
def count(  # type: ignore[no-untyped-def]
    a,
    b,
    radius,
    out,
    num_a,
    num_b,
    padded_a,
    padded_b,
    depth,
    span,
    each: tl.constexpr,
    lanes: tl.constexpr,
    unroll: tl.constexpr,
):
    """Counts, for a block of ``b``, the rows in one span of ``a`` that are within the radius."""
    column = places(tl.program_id(0), each, lanes)
    limit = tl.load(radius)
    total = tl.zeros([each, lanes], dtype=tl.int32)
    begin = tl.program_id(1) * span
    for block in range(begin, tl.minimum(begin + span, tl.cdiv(num_a, each * lanes))):
        row = places(block, each, lanes)
        distance = tile(a, b, row, column, padded_a, padded_b, depth, each, each, lanes, unroll)
        inside = (distance < limit) & (row < num_a)[:, None, :, None]
        total += tl.sum(tl.sum(inside.to(tl.int32), axis=0), axis=1)
    place = tl.program_id(1).to(tl.int64) * num_b + column
    tl.store(out + place, total, mask=column < num_b)


@triton.jit
def add(  # type: ignore[no-untyped-def]
    a,
    b,
    out,
    num_a,
    num_b,
    padded_a,
    padded_b,
    depth,
    span,
    each: tl.constexpr,
    lanes: tl.constexpr,
    unroll: tl.constexpr,
):
    """Adds up, for a block of ``b``, the distances to the rows in one span of ``a``."""
    column = places(tl.program_id(0), each, lanes)
    total = tl.zeros([each, lanes], dtype=tl.float64)
    begin = tl.program_id(1) * span
    for block in range(begin, tl.minimum(begin + span, tl.cdiv(num_a, each * lanes))):
        row = places(block, each, lanes)
        distance = tile(a, b, row, column, padded_a, padded_b, depth, each, each, lanes, unroll)
        distance = tl.where((row < num_a)[:, None, :, None], distance, 0.0)
        total += tl.sum(tl.sum(distance.to(tl.float64), axis=0), axis=1)
    place = tl.program_id(1).to(tl.int64) * num_b + column
    tl.store(out + place, total, mask=column < num_b)


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Computes all distances between two sets of float32 rows, ``[n_a, n_b]``."""
    out = torch.empty(a.shape[0], b.shape[0], device=a.device)
    if out.numel():
        each = 1 if a.shape[0] <= LANES else EACH
        programs = triton.cdiv(a.shape[0], LANES * each) * triton.cdiv(b.shape[0], SIDE)
        first, second = _columns(a), _columns(b)
        write[(programs,)](
            *(first, second, out, *_sizes(a, b, first, second)),
            **_shape(each_a=each, each_b=EACH),
        )
    return out


def count_within(a: Tensor, b: Tensor, radius: Tensor) -> Tensor:
    """Counts for each row of ``b`` the rows of ``a`` nearer than a scalar radius, ``[n_b]``."""
    parts, span = _spans(a, b)
    out = torch.zeros(parts, b.shape[0], dtype=torch.int32, device=a.device)
    if a.shape[0] and b.shape[0]:
        first = _columns(a)
        second = first if b is a else _columns(b)
        count[(triton.cdiv(b.shape[0], SIDE), parts)](
            *(first, second, radius.float(), out, *_sizes(a, b, first, second), span),
            **_shape(each=EACH),
        )
    return out.sum(dim=0)


def distance_sums(a: Tensor, b: Tensor) -> Tensor:
    """Adds up for each row of ``b`` its distances to all of ``a``, float64 ``[n_b]``."""
    parts, span = _spans(a, b)
    out = torch.zeros(parts, b.shape[0], dtype=torch.float64, device=a.device)
    if a.shape[0] and b.shape[0]:
        first = _columns(a)
        second = first if b is a else _columns(b)
        add[(triton.cdiv(b.shape[0], SIDE), parts)](
            *(first, second, out, *_sizes(a, b, first, second), span),
            **_shape(each=EACH),
        )
    return out.sum(dim=0)


def _columns(h: Tensor) -> Tensor:
    """Lays rows out column by column, where neighbours are read together.

    Both axes are filled up with zeros to whole tiles, so that no load needs a mask.
    """
    fill = (0, -h.shape[0] % SIDE, 0, -h.shape[1] % UNROLL)
    return functional.pad(h.detach().T, fill).contiguous()


def _spans(a: Tensor, b: Tensor) -> tuple[int, int]:
    """Cuts ``a`` so that there are programs enough even where ``b`` is short.

    Returns the number of parts and the blocks in each.
    """
    blocks = max(triton.cdiv(a.shape[0], SIDE), 1)
    wanted = triton.cdiv(PROGRAMS, max(triton.cdiv(b.shape[0], SIDE), 1))
    span = triton.cdiv(blocks, min(wanted, blocks))
    return triton.cdiv(blocks, span), span


def _sizes(a: Tensor, b: Tensor, first: Tensor, second: Tensor) -> tuple[int, ...]:
    return a.shape[0], b.shape[0], first.shape[1], second.shape[1], first.shape[0]


def _shape(**each: int) -> dict[str, Any]:
    return {
        **each,
        "lanes": LANES,
        "unroll": UNROLL,
        "num_warps": WARPS,
        "maxnreg": REGISTERS,
    }
