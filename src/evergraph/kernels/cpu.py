"""The CPU's kernels: calls on tensors, and the loops below that numba compiles for them.

Every row is written by one thread in a fixed order, and sums over rows are made block by
block, so that results are the same bits whatever the number of threads. Decision 0012 has
the equations.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from evergraph.stream.adjacency import BLOCKS, Pattern

Tensors = tuple[Tensor, ...]
#: What compiled code is given: views of tensors, and numbers of their precision.
Array = np.ndarray[Any, np.dtype[Any]]
Arrays = tuple[Array, ...]
Number = Any  # NumPy's scalars have no common type that arithmetic keeps

#: Reordering inside a row is allowed; infinities and NaN keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}
#: numba's own thread pool serves one caller at a time.
_pool = threading.Lock()
_told = threading.local()  # how many threads numba was told to use, which it keeps by thread
_MOST_THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]


def attend_forward(
    pattern: Pattern, wx: Tensor, vectors: Tensors, slope: float, own: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensors]:
    """Computes an attention layer's output ``[n, H, C]`` and what its backward passes need.

    Given are the projected rows ``[s, H, C]``, the vectors ``att_src``, ``att_dst`` and ``bias``
    and, if not all rows are nodes, which one each node is itself, ``[n]``. What is needed later is
    the output's part from scores above zero, ``[n, H, C]``, and their share of the weight,
    ``[n, H]``; the scores as source ``[s, H]``, as target and the log-sums, ``[n, H]``.
    """
    att_src, att_dst, bias = vectors
    (s, heads, channels), n = wx.shape, pattern.num_rows
    from_source, at_target = (wx.new_empty(s, heads) for _ in range(2))
    lse, share = (wx.new_empty(n, heads) for _ in range(2))
    out, positive = (wx.new_empty(n, heads, channels) for _ in range(2))
    rows = np.arange(BLOCKS + 1) * s // BLOCKS
    _run(_attend_scores, rows, wx, (att_src, att_dst), (from_source, at_target))
    if own is not None:
        at_target = at_target.index_select(0, own)
    scores, results = (from_source, at_target), (out, positive, lse, share)
    _run(_attend_forward, _rows(pattern), wx, scores, bias, _scalar(slope, wx), results)
    return out, positive, share, (from_source, at_target, lse)


def attend_backward_targets(
    pattern: Pattern, grad: Tensor, shown: tuple[Tensor, float], saved: Tensors, slope: float
) -> Tensors:
    """Returns gradient times output, the gradient of the target scores, and that of the bias.

    ``shown`` is what the layer showed and the factor that makes it the output again wherever the
    gradient is not zero; ``saved`` are ``positive`` and ``share`` of :func:`attend_forward`, and
    the bias.
    """
    _, share, bias = saved
    delta, grad_target = torch.empty_like(share), torch.empty_like(share)
    parts = grad.new_empty(pattern.blocks.numel() - 1, *bias.shape)
    given, results = (grad, shown[0], *saved), (delta, grad_target, parts)
    factors = _scalar(shown[1], grad), _scalar(slope, grad)
    _run(_attend_backward_targets, pattern.blocks, given, factors, results)
    return delta, grad_target, parts.sum(dim=0)


def attend_backward_sources(
    transpose: Pattern, grad: Tensor, inputs: Tensors, saved: Tensors, slope: float
) -> Tensors:
    """Returns the gradients of ``wx``, ``att_src`` and ``att_dst``, which ``inputs`` are.

    ``saved`` are both scores and the log-sums of :func:`attend_forward`, then gradient times output
    and the gradient of the target scores of :func:`attend_backward_targets`; the first and the last
    are the sources', the others the nodes'.
    """
    wx, att_src, _ = inputs
    grad_wx = torch.empty_like(wx, memory_format=torch.contiguous_format)
    parts = wx.new_empty(2, transpose.blocks.numel() - 1, *att_src.shape)
    given, results = (grad, *inputs, *saved), (grad_wx, parts[0], parts[1])
    _run(_attend_backward_sources, _rows(transpose), given, _scalar(slope, wx), results)
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
    _run(_drop, np.uint64(seed), dropped, out.view(-1), scale, rectify)
    return out


def times(pattern: Pattern, values: Tensor, dense: Tensor, out: Tensor | None = None) -> Tensor:
    """Multiplies a sparse matrix by ``dense`` from the left, ``[rows, width]``."""
    out = dense.new_empty(pattern.num_rows, dense.shape[1]) if out is None else out
    _run(_times, _rows(pattern), values, dense, out)
    return out


def load_kernels() -> None:
    """Loads what multiplies, compiled once and for all, and SciPy: the first call takes longer."""
    import scipy.optimize  # noqa: F401, PLC0415 - slow to import, and large

    one = torch.ones(1, 1)
    times(Pattern(torch.tensor([0, 1]), torch.tensor([0], dtype=torch.int32)), one[0], one)


def pair_terms(
    pairs: Pattern, unit: Tensor, positive: bool, margin: float
) -> tuple[Tensor, Tensor]:
    """Returns every row's cross-entropy ``[n]`` and the gradient of their sum ``[n, d]``."""
    loss, grad = unit.new_empty(unit.shape[0]), unit.new_empty(unit.shape)
    _run(_pair_terms, _rows(pairs), unit, positive, _scalar(margin, unit), (loss, grad))
    return loss, grad


def _rows(pattern: Pattern) -> tuple[Tensor, Tensor, Tensor]:
    """What a kernel reads of a pattern: the rows of every block, their edges, whom these read."""
    return pattern.blocks, pattern.indptr, pattern.columns


def _run(kernel: Any, *arguments: Any) -> None:
    """Calls a compiled kernel, which shares the tensors' memory, with PyTorch's threads."""
    arrays = [_array(value) for value in arguments]
    threads = torch.get_num_threads()
    with _pool:
        if getattr(_told, "threads", None) != threads:
            numba.set_num_threads(min(threads, _MOST_THREADS))
            _told.threads = threads
        kernel(*arrays)
    if torch.get_num_threads() != threads:
        # Both may share one OpenMP, whose number of threads numba sets when it starts.
        torch.set_num_threads(threads)


def _array(value: Any) -> Any:
    """Turns a tensor into an array, also those of a tuple."""
    if isinstance(value, tuple):
        return tuple(map(_array, value))
    if not isinstance(value, Tensor):
        return value
    if value.requires_grad:  # detaching all of them would take as long as a small kernel
        value = value.detach()
    return value.contiguous().numpy()


def _scalar(value: float, like: Tensor) -> Any:
    """Gives a number the precision of the rows, so that nothing is computed wider."""
    return np.float64(value) if like.dtype == torch.float64 else np.float32(value)


@njit(parallel=True, fastmath=FAST, cache=True)
def _attend_scores(bounds: Array, wx: Array, vectors: Arrays, scores: Arrays) -> None:
    """Scores every row as a source and as a target."""
    (att_src, att_dst), (from_source, at_target) = vectors, scores
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
def _attend_forward(
    rows: Arrays, wx: Array, scores: Arrays, bias: Array, slope: Number, results: Arrays
) -> None:
    """Adds up every row's neighbours; those with scores above zero apart from the rest."""
    bounds, indptr, columns = rows
    from_source, at_target = scores
    out, positive, lse, share = results
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
def _attend_backward_targets(
    bounds: Array, given: Arrays, factors: tuple[Number, Number], results: Arrays
) -> None:
    """Multiplies gradient and output of every row."""
    grad, shown, positive, share, bias = given
    undo, slope = factors
    delta, grad_target, part_bias = results
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
def _attend_backward_sources(rows: Arrays, given: Arrays, slope: Number, results: Arrays) -> None:
    """Collects the gradients of every source over the rows that read it."""
    bounds, indptr, columns = rows
    grad, wx, att_src, att_dst, from_source, at_target, lse, delta, grad_target = given
    grad_wx, part_src, part_dst = results
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


#: Entries that one share of the work holds; a hash gives the random bytes of eight.
SHARE = 8192

# The constants of SplitMix64.
STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
A, B, C = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(cache=True)
def _random_bytes(seed: Number, share: int) -> Array:
    words = np.empty(SHARE // 8, np.uint64)
    for k in range(words.size):
        word = seed + np.uint64(share * (SHARE // 8) + k) * STEP
        word = (word ^ (word >> A)) * FIRST
        word = (word ^ (word >> B)) * SECOND
        words[k] = word ^ (word >> C)
    return words.view(np.uint8)


@njit(parallel=True, fastmath=FAST, cache=True)
def _drop(seed: Number, dropped: int, rows: Array, scale: Number, rectify: bool) -> None:
    """Drops entries in place; given one array twice, a loop runs 20 times slower."""
    zero = scale - scale
    for share in prange((rows.size + SHARE - 1) // SHARE):
        begin = share * SHARE
        end = min(begin + SHARE, rows.size)
        kept = _random_bytes(seed, share)
        target = rows[begin:end]
        for k in range(end - begin):
            value = target[k] * scale if kept[k] >= dropped else zero
            target[k] = zero if rectify and value < zero else value


@njit(parallel=True, fastmath=FAST, cache=True)
def _times(rows: Arrays, values: Array, dense: Array, out: Array) -> None:
    """Multiplies a sparse matrix by a dense one."""
    bounds, indptr, columns = rows
    width = dense.shape[1]
    for block in prange(bounds.size - 1):
        most = 0
        for i in range(bounds[block], bounds[block + 1]):
            most = max(most, indptr[i + 1] - indptr[i])
        kept = np.empty(most, np.int64)
        for i in range(bounds[block], bounds[block + 1]):
            count = 0
            for e in range(indptr[i], indptr[i + 1]):  # dropped entries cost no branch
                kept[count] = e
                count += values[e] != 0
            row = out[i]
            row[:] = 0
            # Four entries at a time, added in their order: the row is read and written once.
            fours = count // 4 * 4
            for k in range(0, fours, 4):
                e0, e1, e2, e3 = kept[k], kept[k + 1], kept[k + 2], kept[k + 3]
                v0, v1, v2, v3 = values[e0], values[e1], values[e2], values[e3]
                d0, d1 = dense[columns[e0]], dense[columns[e1]]
                d2, d3 = dense[columns[e2]], dense[columns[e3]]
                for c in range(width):
                    row[c] = row[c] + v0 * d0[c] + v1 * d1[c] + v2 * d2[c] + v3 * d3[c]
            for k in range(fours, count):
                value, other = values[kept[k]], dense[columns[kept[k]]]
                for c in range(width):
                    row[c] += value * other[c]


@njit(parallel=True, fastmath=FAST, cache=True)
def _pair_terms(rows: Arrays, unit: Array, positive: bool, margin: Number, results: Arrays) -> None:
    """Sums the cross-entropy of every row's pairs, and its gradient."""
    bounds, indptr, columns = rows
    loss, grad = results
    width = unit.shape[1]
    zero = margin - margin
    half = zero + np.float32(0.5)
    one = half + half
    for block in prange(bounds.size - 1):
        for i in range(bounds[block], bounds[block + 1]):
            mine, row = unit[i], grad[i]
            row[:] = 0
            total = zero
            for e in range(indptr[i], indptr[i + 1]):
                j = columns[e]
                if j < 0:
                    continue
                other = unit[j]
                cosine = zero
                for c in range(width):
                    cosine += mine[c] * other[c]
                score = (cosine + one) * half
                kept = min(max(score, margin), one - margin)
                if positive:
                    total -= math.log(kept)
                    slope = -half / kept
                else:
                    total -= math.log1p(-kept)
                    slope = half / (one - kept)
                if score == kept:
                    # Both ends see the pair, so that each sees half of what it costs.
                    slope += slope
                    for c in range(width):
                        row[c] += slope * other[c]
            loss[i] = total
