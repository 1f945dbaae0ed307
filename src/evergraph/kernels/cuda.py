"""Launches the Triton kernels; the functions are those of :mod:`evergraph.kernels.cpu`.

Imported only where CUDA is: PyTorch's CUDA builds bring Triton along.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from torch.nn import functional

from evergraph.kernels import triton_kernels
from evergraph.stream.adjacency import Chunks, Pattern

Tensors = tuple[Tensor, ...]
#: Edges that a program of attention reads at once, and its warps; then those of the link loss.
ATTEND = {"block_edges": 8, "num_warps": 1}
PAIRS = {"block_edges": 8, "num_warps": 2}
#: Rows that one program of the row-wise kernel reads at once.
ROWS = 16
#: Entries that one program of dropout holds.
SHARE = 1024
#: A tile of distances has four axes, ``[each, each, lanes, lanes]``: row ``i * lanes + p`` against
#: column ``j * lanes + q`` is entry ``i, j, p, q``. Triton spreads threads over the last two, so
#: that each thread holds a square of pairs and loads few numbers for many of them.
LANES, EACH = 16, 8
#: Rows of either set that one program compares at once.
SIDE = LANES * EACH
#: Columns of the embeddings between two turns of the loop.
UNROLL = 4
#: Registers few enough for two programs to run side by side on Hopper.
DISTANCES = {"num_warps": 8, "maxnreg": 128}
#: Programs to aim for when the first set is shared out; fixed, so that sums do not depend on
#: the device.
PROGRAMS = 2048


def attend_forward(
    pattern: Pattern, wx: Tensor, vectors: Tensors, slope: float, own: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensors]:
    """Computes an attention layer's output ``[n, H, C]`` and what its backward passes need."""
    att_src, att_dst, bias = vectors
    wx, n = wx.contiguous(), pattern.num_rows
    _, heads, channels = wx.shape
    scores = wx.flatten(1) @ _score_matrix(att_src, att_dst)  # [s, 2 H]
    from_source, at_target = scores[:, :heads].contiguous(), scores[:, heads:].contiguous()
    if own is not None:
        at_target = at_target.index_select(0, own)
    chunks = pattern.chunks
    places = n + chunks.hub_of.numel()
    out, positive = (wx.new_empty(places, heads, channels) for _ in range(2))
    lse, share = (wx.new_empty(places, heads) for _ in range(2))
    if n:
        triton_kernels.attend_forward[(chunks.owner.numel(), heads)](
            *(chunks.bounds, chunks.owner, chunks.place, pattern.columns),
            *(wx, from_source, at_target, bias.contiguous(), slope, out, positive, lse, share),
            **_sizes(heads, channels, ATTEND),
        )
    if chunks.hubs.numel():
        # A chunk weighs as much as its exponentials add up to.
        top = _per_hub(chunks, lse[n:], "max")
        weight = torch.exp(lse[n:] - top[chunks.hub_of])
        total = _per_hub(chunks, weight, "sum")
        lse = lse.index_copy_(0, chunks.hubs, top + total.log())[:n]
        weight /= total[chunks.hub_of]
        out, positive = (_joined(chunks, part, n, weight) for part in (out, positive))
        share = _joined(chunks, share[:, :, None], n, weight)[:, :, 0]
    return out, positive, share, (from_source, at_target, lse)


def attend_backward_targets(
    pattern: Pattern, grad: Tensor, shown: tuple[Tensor, float], saved: Tensors, slope: float
) -> Tensors:
    """Returns gradient times output, the gradient of the target scores, and that of the bias."""
    positive, share, bias = saved
    n, heads, channels = grad.shape
    delta, grad_target = torch.empty_like(share), torch.empty_like(share)
    grad = grad.contiguous()
    if n:
        triton_kernels.attend_backward_targets[(triton.cdiv(n, ROWS), heads)](
            *(grad, *shown, positive, share, bias.contiguous()),
            *(slope, delta, grad_target, n),
            **_sizes(heads, channels, {"block_rows": ROWS}),
        )
    return delta, grad_target, grad.sum(dim=0)


def attend_backward_sources(
    transpose: Pattern, grad: Tensor, inputs: Tensors, saved: Tensors, slope: float
) -> Tensors:
    """Returns the gradients of ``wx``, ``att_src`` and ``att_dst``."""
    wx, att_src, att_dst = inputs
    *scores, delta, grad_target = saved
    wx, grad = wx.contiguous(), grad.contiguous()
    n, heads, channels = wx.shape
    chunks = transpose.chunks
    places = n + chunks.hub_of.numel()
    grad_wx, grad_source = wx.new_empty(places, heads, channels), wx.new_empty(places, heads)
    if n:
        triton_kernels.attend_backward_sources[(chunks.owner.numel(), heads)](
            *(chunks.bounds, chunks.owner, chunks.place, transpose.columns),
            *(grad, wx, *scores, delta, slope, grad_wx, grad_source),
            **_sizes(heads, channels, ATTEND),
        )
    grad_wx, grad_source = (
        _joined(chunks, grad_wx, n),
        _joined(chunks, grad_source[:, None], n)[:, 0],
    )
    by_score = torch.cat([grad_source, grad_target], dim=1)  # [s, 2 H]
    flat = grad_wx.flatten(1).addmm_(by_score, _score_matrix(att_src, att_dst).t())
    grad_att = (by_score.t() @ wx.flatten(1)).view(2, heads, heads, channels)
    grad_src, grad_dst = (torch.diagonal(part, dim1=0, dim2=1).t() for part in grad_att)
    return flat.view_as(wx), grad_src, grad_dst


def draw_seed(generator: torch.Generator) -> Tensor:
    """Draws a seed that stays on the device, so that a recorded step draws anew each time."""
    return torch.randint(2**63 - 1, (1,), generator=generator, device=generator.device)


def drop(
    rows: Tensor, seed: Tensor, dropped: int, *, rectify: bool = False, in_place: bool = False
) -> Tensor:
    """Zeroes ``dropped`` of 256 entries and rescales the rest, after a ReLU if ``rectify``."""
    rows = rows.contiguous()
    out = rows if in_place else torch.empty_like(rows)
    if rows.numel():
        triton_kernels.drop[(triton.cdiv(rows.numel(), SHARE),)](
            *(seed, rows, out, rows.numel(), dropped, 256 / (256 - dropped)),
            rectify=rectify,
            share=SHARE,
        )
    return out


def pair_terms(
    pairs: Pattern, unit: Tensor, positive: bool, margin: float
) -> tuple[Tensor, Tensor]:
    """Returns every row's cross-entropy ``[n]`` and the gradient of their sum ``[n, d]``."""
    n, width = unit.shape
    unit = unit.contiguous()
    # Non-edges are drawn anew every step and have no hubs: cutting them would wait for the device.
    chunks = pairs.chunks if positive else _whole(pairs)
    places = n + chunks.hub_of.numel()
    loss, grad = unit.new_empty(places), unit.new_empty(places, width)
    if n:
        triton_kernels.pair_terms[(chunks.owner.numel(),)](
            *(chunks.bounds, chunks.owner, chunks.place, pairs.columns, unit, margin, loss, grad),
            positive=positive,
            width=width,
            block_width=triton.next_power_of_2(width),
            **PAIRS,
        )
    return _joined(chunks, loss[:, None, None], n)[:, 0, 0], _joined(chunks, grad[:, None], n)[:, 0]


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Computes all distances between two sets of float32 rows, ``[n_a, n_b]``."""
    out = torch.empty(a.shape[0], b.shape[0], device=a.device)
    if out.numel():
        each = 1 if a.shape[0] <= LANES else EACH
        programs = triton.cdiv(a.shape[0], LANES * each) * triton.cdiv(b.shape[0], SIDE)
        first, second = _columns(a), _columns(b)
        triton_kernels.write_distances[(programs,)](
            *(first, second, out, a.shape[0], b.shape[0]),
            *(first.shape[1], second.shape[1], first.shape[0]),
            **{"each_a": each, "each_b": EACH, "lanes": LANES, "unroll": UNROLL, **DISTANCES},
        )
    return out


def reduce_distances(a: Tensor, b: Tensor, radius: Tensor | None = None) -> Tensor:
    """Counts for each row of ``b`` the rows of ``a`` nearer than a scalar radius, int32 ``[n_b]``.

    Without a radius it adds up the distances to all of ``a``, in float64.
    """
    parts, span = _spans(a, b)
    dtype = torch.float64 if radius is None else torch.int32
    out = torch.zeros(parts, b.shape[0], dtype=dtype, device=a.device)
    if a.shape[0] and b.shape[0]:
        first = _columns(a)
        second = first if b is a else _columns(b)
        triton_kernels.reduce_distances[(triton.cdiv(b.shape[0], SIDE), parts)](
            *(first, second, a if radius is None else radius.float(), out),
            *(a.shape[0], b.shape[0]),
            *(first.shape[1], second.shape[1], first.shape[0], span),
            counts=radius is not None,
            **{"each": EACH, "lanes": LANES, "unroll": UNROLL, **DISTANCES},
        )
    return out.sum(dim=0)


def _spans(a: Tensor, b: Tensor) -> tuple[int, int]:
    """Cuts ``a`` so that there are programs enough even where ``b`` is short.

    Returns the number of parts and the blocks in each.
    """
    blocks = max(triton.cdiv(a.shape[0], SIDE), 1)
    wanted = triton.cdiv(PROGRAMS, max(triton.cdiv(b.shape[0], SIDE), 1))
    span = triton.cdiv(blocks, min(wanted, blocks))
    return triton.cdiv(blocks, span), span


def _columns(h: Tensor) -> Tensor:
    """Lays rows out column by column, where neighbours are read together.

    Both axes are filled up with zeros to whole tiles, so that no load needs a mask.
    """
    fill = (0, -h.shape[0] % SIDE, 0, -h.shape[1] % UNROLL)
    return functional.pad(h.detach().T, fill).contiguous()


def _whole(pairs: Pattern) -> Chunks:
    """Takes every row as one chunk."""
    rows = torch.arange(pairs.num_rows, device=pairs.indptr.device)
    return Chunks(pairs.indptr, rows, rows, pairs.indptr, rows[:0], rows[:0], rows[:0])


def _joined(chunks: Chunks, sums: Tensor, n: int, weight: Tensor | None = None) -> Tensor:
    """Adds what stands behind the rows ``[n + s, H, C]`` up at their hubs, by weight ``[s, H]``.

    Returns the rows alone.
    """
    if not chunks.hubs.numel():
        return sums
    _, heads, channels = sums.shape
    triton_kernels.join[(chunks.hubs.numel(), heads)](
        *(chunks.hubs, chunks.parts, chunks.parts if weight is None else weight, sums, n),
        weighed=weight is not None,
        **_sizes(heads, channels, {}),
    )
    return sums[:n].clone()


def _per_hub(chunks: Chunks, parts: Tensor, reduce: str) -> Tensor:
    return torch.segment_reduce(parts, reduce, offsets=chunks.parts, axis=0, unsafe=True)


def _score_matrix(att_src: Tensor, att_dst: Tensor) -> Tensor:
    """Lays both out as ``[H * C, 2 H]``, each head in its own rows: one product scores all."""
    heads = att_src.shape[0]
    own = torch.eye(heads, device=att_src.device)[:, None, :]  # [H, 1, H]
    blocks = [att[:, :, None] * own for att in (att_src, att_dst)]
    return torch.cat(blocks, dim=2).flatten(0, 1)


def _sizes(heads: int, channels: int, program: dict[str, int]) -> dict[str, int]:
    width = triton.next_power_of_2(channels)
    return {"heads": heads, "channels": channels, "block_channels": width, **program}
