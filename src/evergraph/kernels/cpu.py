"""Calls the numba kernels on tensors in the CPU's memory."""

from __future__ import annotations

import threading
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from evergraph.kernels import numba_kernels
from evergraph.stream.adjacency import BLOCKS, Pattern

#: numba's own thread pool serves one caller at a time.
_pool = threading.Lock()
_told = threading.local()  # how many threads numba was told to use, which it keeps by thread
_MOST_THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]


def attend_forward(
    pattern: Pattern,
    wx: Tensor,
    att_src: Tensor,
    att_dst: Tensor,
    bias: Tensor,
    slope: float,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Computes an attention layer's output ``[n, H, C]`` and what its backward passes need.

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
    rows = np.arange(BLOCKS + 1) * s // BLOCKS
    _run(numba_kernels.attend_scores, rows, wx, att_src, att_dst, from_source, at_target)
    if own is not None:
        at_target = at_target.index_select(0, own)
    _run(
        numba_kernels.attend_forward,
        *(pattern.blocks, pattern.indptr, pattern.columns),
        *(wx, from_source, at_target, bias, _scalar(slope, wx)),
        *(out, positive, lse, share),
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
    """Returns gradient times output, the gradient of the target scores, and that of the bias.

    Args:
        pattern: Which rows every row reads.
        grad: Gradient of the output.
        shown: What the layer showed and the factor that makes it the output again, wherever
            the gradient is not zero.
        saved: ``positive`` and ``share`` of :func:`attend_forward`.
        bias: As there.
        slope: As there.
    """
    positive, share = saved
    delta, grad_target = torch.empty_like(share), torch.empty_like(share)
    parts = grad.new_empty(pattern.blocks.numel() - 1, *bias.shape)
    _run(
        numba_kernels.attend_backward_targets,
        *(pattern.blocks, grad, shown[0], _scalar(shown[1], grad)),
        *(positive, share, bias, _scalar(slope, grad)),
        *(delta, grad_target, parts),
    )
    return delta, grad_target, parts.sum(dim=0)


def attend_backward_sources(
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
        saved: Both scores and the log-sums of :func:`attend_forward`, then gradient times
            output and the gradient of the target scores of :func:`attend_backward_targets`; the
            first and the last of the sources, the others of the nodes.
        slope: As there.
    """
    wx, att_src, att_dst = inputs
    grad_wx = torch.empty_like(wx, memory_format=torch.contiguous_format)
    parts = wx.new_empty(2, transpose.blocks.numel() - 1, *att_src.shape)
    _run(
        numba_kernels.attend_backward_sources,
        *(transpose.blocks, transpose.indptr, transpose.columns),
        *(grad, wx, *saved, att_src, att_dst, _scalar(slope, wx)),
        *(grad_wx, parts[0], parts[1]),
    )
    grad_src, grad_dst = parts.sum(dim=1)
    return grad_wx, grad_src, grad_dst


def draw_seed(generator: torch.Generator) -> int:
    """Draws a seed."""
    return int(torch.randint(2**63 - 1, (), generator=generator))


def drop(
    rows: Tensor, seed: int, dropped: int, *, rectify: bool = False, in_place: bool = False
) -> Tensor:
    """Zeroes ``dropped`` of 256 entries and rescales the rest, after a ReLU if ``rectify``."""
    out = rows.contiguous() if in_place else rows.clone(memory_format=torch.contiguous_format)
    scale = _scalar(256 / (256 - dropped), rows)
    _run(numba_kernels.drop, np.uint64(seed), dropped, out.view(-1), scale, rectify)
    return out


def times(pattern: Pattern, values: Tensor, dense: Tensor) -> Tensor:
    """Multiplies a sparse matrix by ``dense`` from the left, ``[rows, width]``."""
    out = dense.new_empty(pattern.num_rows, dense.shape[1])
    rows = (pattern.blocks, pattern.indptr, pattern.columns)
    _run(numba_kernels.times, *rows, values, dense, out)
    return out


def pair_terms(
    pairs: Pattern, unit: Tensor, positive: bool, margin: float
) -> tuple[Tensor, Tensor]:
    """Returns every row's cross-entropy ``[n]`` and the gradient of their sum ``[n, d]``."""
    loss, grad = unit.new_empty(unit.shape[0]), unit.new_empty(unit.shape)
    rows = (pairs.blocks, pairs.indptr, pairs.columns)
    _run(numba_kernels.pair_terms, *rows, unit, positive, _scalar(margin, unit), loss, grad)
    return loss, grad


def _run(kernel: Any, *arguments: Any) -> None:
    """Calls a compiled kernel, which shares the tensors' memory, with PyTorch's threads."""
    arrays = [_array(value) if isinstance(value, Tensor) else value for value in arguments]
    threads = torch.get_num_threads()
    with _pool:
        if getattr(_told, "threads", None) != threads:
            numba.set_num_threads(min(threads, _MOST_THREADS))
            _told.threads = threads
        kernel(*arrays)
    if torch.get_num_threads() != threads:
        # Both may share one OpenMP, whose number of threads numba sets when it starts.
        torch.set_num_threads(threads)


def _array(tensor: Tensor) -> Any:
    if tensor.requires_grad:  # detaching all of them would take as long as a small kernel
        tensor = tensor.detach()
    return tensor.contiguous().numpy()


def _scalar(value: float, like: Tensor) -> Any:
    """Gives a number the precision of the rows, so that nothing is computed wider."""
    return np.float64(value) if like.dtype == torch.float64 else np.float32(value)
