"""Dropout on CUDA: masks are a hash of a seed and the position, so none has to be kept.

Triton reads annotations of kernels as code, so that theirs stay without types.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Entries that one program holds; a hash gives the random bytes of eight.
SHARE = 1024


@triton.jit
def hashed_drop(  # type: ignore[no-untyped-def]
    seed, rows, out, size, dropped, scale, rectify: tl.constexpr, share: tl.constexpr
):
    """Zeroes the entries whose random byte is below ``dropped`` and rescales the rest."""
    at = tl.program_id(0).to(tl.int64) * share + tl.arange(0, share)
    inside = at < size
    # SplitMix64 of the group of eight entries, then the byte of this one.
    word = tl.load(seed).to(tl.uint64) + (at // 8).to(tl.uint64) * 0x9E3779B97F4A7C15
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB
    word = word ^ (word >> 31)
    byte = (word >> ((at % 8) * 8).to(tl.uint64)) & 255
    value = tl.load(rows + at, mask=inside, other=0.0)
    kept = byte.to(tl.int32) >= dropped
    if rectify:
        kept = kept & (value > 0)
    tl.store(out + at, tl.where(kept, value * scale, 0.0), mask=inside)


@triton.jit
def masked_scale(grad, shown, out, size, scale, share: tl.constexpr):  # type: ignore[no-untyped-def]
    """Passes the gradient where something was shown."""
    at = tl.program_id(0).to(tl.int64) * share + tl.arange(0, share)
    inside = at < size
    value = tl.load(grad + at, mask=inside, other=0.0)
    kept = tl.load(shown + at, mask=inside, other=0.0) > 0
    tl.store(out + at, tl.where(kept, value * scale, 0.0), mask=inside)


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
        hashed_drop[(triton.cdiv(rows.numel(), SHARE),)](
            *(seed, rows, out, rows.numel(), dropped, 256 / (256 - dropped)),
            rectify=rectify,
            share=SHARE,
        )
    return out


def pass_where_positive(grad: Tensor, out: Tensor, dropped: int) -> Tensor:
    """Returns the gradient of :func:`drop` after a ReLU, given its output."""
    grad = grad.contiguous()
    result = torch.empty_like(grad)
    if grad.numel():
        masked_scale[(triton.cdiv(grad.numel(), SHARE),)](
            *(grad, out, result, grad.numel(), 256 / (256 - dropped)), share=SHARE
        )
    return result
