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
    pattern: Pattern,
    wx: Tensor,
    att_src: Tensor,
    att_dst: Tensor,
    bias: Tensor,
    slope: float,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Computes an attention layer's output ``[n, H, C]`` and what its backward passes need."""
    wx, bias = wx.contiguous(), bias.float().contiguous()
    (_, heads, channels), n = wx.shape, pattern.num_rows
    scores = wx.flatten(1).float() @ _score_matrix(att_src, att_dst)  # [s, 2 H]
    from_source, at_target = scores[:, :heads].contiguous(), scores[:, heads:].contiguous()
    if own is not None:
        at_target = at_target.index_select(0, own)
    chunks = pattern.chunks
    out, positive = (wx.new_empty(n, heads, channels) for _ in range(2))
    lse, share = (_floats(wx, n, heads) for _ in range(2))
    minus, plus = (_floats(wx, chunks.num_slots, heads, channels) for _ in range(2))
    top, total, above = (_floats(wx, chunks.num_slots, heads) for _ in range(3))
    results = (out, positive, lse, share, minus, plus, top, total, above)
    if n:
        triton_kernels.attend_forward[(chunks.owner.numel(), heads)](
            *(chunks.first, chunks.last, chunks.owner, chunks.slot, pattern.columns),
            *(wx, from_source, at_target, bias, slope, *results),
            **_sizes(heads, channels, ATTEND),
        )
    if chunks.num_slots:
        triton_kernels.attend_join[(chunks.hubs.numel(), heads)](
            chunks.hubs, chunks.parts, bias, *results, **_sizes(heads, channels, ATTEND)
        )
    return out, positive, share, (from_source, at_target, lse)


def attend_backward_targets(
    pattern: Pattern,
    grad: Tensor,
    shown: tuple[Tensor, float],
    saved: tuple[Tensor, Tensor],
    bias: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns gradient times output, the gradient of the target scores, and that of the bias."""
    positive, share = saved
    n, heads, channels = grad.shape
    delta, grad_target = torch.empty_like(share), torch.empty_like(share)
    grad = grad.contiguous()
    if n:
        triton_kernels.attend_backward_targets[(triton.cdiv(n, ROWS), heads)](
            *(grad, *shown, positive, share, bias.float().contiguous()),
            *(slope, delta, grad_target, n),
            **_sizes(heads, channels, {"block_rows": ROWS}),
        )
    return delta, grad_target, grad.sum(dim=0, dtype=torch.float32).to(bias.dtype)


def attend_backward_sources(
    transpose: Pattern,
    grad: Tensor,
    inputs: tuple[Tensor, Tensor, Tensor],
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of ``wx``, ``att_src`` and ``att_dst``."""
    wx, att_src, att_dst = inputs
    *scores, delta, grad_target = saved
    wx, grad = wx.contiguous(), grad.contiguous()
    n, heads, channels = wx.shape
    chunks = transpose.chunks
    grad_wx, grad_source = torch.empty_like(wx), torch.empty_like(grad_target)
    part_wx = _floats(wx, chunks.num_slots, heads, channels)
    part_source = _floats(wx, chunks.num_slots, heads)
    results = (grad_wx, grad_source, part_wx, part_source)
    if n:
        triton_kernels.attend_backward_sources[(chunks.owner.numel(), heads)](
            *(chunks.first, chunks.last, chunks.owner, chunks.slot, transpose.columns),
            *(grad, wx, *scores, delta, slope, *results),
            **_sizes(heads, channels, ATTEND),
        )
    if chunks.num_slots:
        triton_kernels.join_sums[(chunks.hubs.numel(), heads)](
            chunks.hubs, chunks.parts, *results, **_sizes(heads, channels, ATTEND)
        )
    by_score = torch.cat([grad_source, grad_target], dim=1)  # [s, 2 H]
    flat, grad_flat = wx.flatten(1).float(), grad_wx.flatten(1).float()
    grad_flat.addmm_(by_score, _score_matrix(att_src, att_dst).t())
    grad_att = (by_score.t() @ flat).view(2, heads, heads, channels)
    grad_src, grad_dst = (torch.diagonal(part, dim1=0, dim2=1).t() for part in grad_att)
    return grad_flat.view_as(wx).to(wx.dtype), grad_src, grad_dst


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
    loss, grad = unit.new_empty(n), torch.empty_like(unit)
    if n == 0:
        return loss, grad
    # Non-edges are drawn anew every step and have no hubs: cutting them would wait for the device.
    chunks = pairs.chunks if positive else _whole(pairs)
    part_loss = unit.new_empty(chunks.num_slots)
    part_grad = unit.new_empty(chunks.num_slots, width)
    triton_kernels.pair_terms[(chunks.owner.numel(),)](
        *(chunks.first, chunks.last, chunks.owner, chunks.slot, pairs.columns),
        *(unit, margin, loss, grad, part_loss, part_grad),
        positive=positive,
        width=width,
        block_width=triton.next_power_of_2(width),
        **PAIRS,
    )
    if chunks.num_slots:
        triton_kernels.join_sums[(chunks.hubs.numel(), 1)](
            *(chunks.hubs, chunks.parts, grad, loss, part_grad, part_loss),
            **_sizes(1, width, PAIRS),
        )
    return loss, grad


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


def count_within(a: Tensor, b: Tensor, radius: Tensor) -> Tensor:
    """Counts for each row of ``b`` the rows of ``a`` nearer than a scalar radius, ``[n_b]``."""
    return _over_spans(a, b, radius.float(), torch.int32)


def distance_sums(a: Tensor, b: Tensor) -> Tensor:
    """Adds up for each row of ``b`` its distances to all of ``a``, float64 ``[n_b]``."""
    return _over_spans(a, b, a, torch.float64)


def _over_spans(a: Tensor, b: Tensor, radius: Tensor, dtype: torch.dtype) -> Tensor:
    """Adds up what is found in each span of ``a``, ``[n_b]``: distances, or as integers, counts."""
    parts, span = _spans(a, b)
    out = torch.zeros(parts, b.shape[0], dtype=dtype, device=a.device)
    if a.shape[0] and b.shape[0]:
        first = _columns(a)
        second = first if b is a else _columns(b)
        triton_kernels.reduce_distances[(triton.cdiv(b.shape[0], SIDE), parts)](
            *(first, second, radius, out, a.shape[0], b.shape[0]),
            *(first.shape[1], second.shape[1], first.shape[0], span),
            counts=dtype == torch.int32,
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
    first, last, none = pairs.indptr[:-1], pairs.indptr[1:], rows[:0]
    return Chunks(first, last, rows, torch.full_like(rows, -1), none, none, num_slots=0)


def _score_matrix(att_src: Tensor, att_dst: Tensor) -> Tensor:
    """Lays both out as ``[H * C, 2 H]``, each head in its own rows: one product scores all."""
    heads = att_src.shape[0]
    own = torch.eye(heads, device=att_src.device)[:, None, :]  # [H, 1, H]
    blocks = [att.float()[:, :, None] * own for att in (att_src, att_dst)]
    return torch.cat(blocks, dim=2).flatten(0, 1)


def _floats(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _sizes(heads: int, channels: int, program: dict[str, int]) -> dict[str, int]:
    width = triton.next_power_of_2(channels)
    return {"heads": heads, "channels": channels, "block_channels": width, **program}
