"""Attention sums on CUDA as two Triton kernels: nothing of edge × channel size is stored.

Imported only where CUDA is: PyTorch's CUDA builds bring Triton along. Sums run in a fixed
order, so that results are the same bits every time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from evergraph.stream.adjacency import Adjacency

# Triton reads annotations of kernels as code, so that theirs stay without types.

#: Edges that one program reads at once.
EDGES = 16


@triton.jit  # type: ignore[untyped-decorator]
def _weighted_sums(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    chunks,
    columns,
    weights,
    rows,
    out,
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Sums ``weights[e, h] * rows[columns[e], h]`` over one chunk of edges for one head."""
    chunk = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    begin = tl.load(chunks + chunk)
    end = tl.load(chunks + chunk + 1)
    channel = tl.arange(0, block_channels)
    inside = channel < channels
    total = tl.zeros([block_channels], dtype=tl.float32)
    for first in range(begin, end, block_edges):
        edge = first + tl.arange(0, block_edges)
        real = edge < end
        column = tl.load(columns + edge, mask=real, other=0).to(tl.int64)
        weight = tl.load(weights + edge * heads + head, mask=real, other=0.0)
        at = column[:, None] * (heads * channels) + head * channels + channel[None, :]
        value = tl.load(rows + at, mask=real[:, None] & inside[None, :], other=0.0)
        total += tl.sum(value * weight[:, None], axis=0)
    tl.store(out + chunk * (heads * channels) + head * channels + channel, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _edge_products(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    targets,
    sources,
    left,
    right,
    out,
    num_edges,
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Computes ``left[targets[e], h] · right[sources[e], h]`` for a block of edges, one head."""
    edge = tl.program_id(0).to(tl.int64) * block_edges + tl.arange(0, block_edges)
    head = tl.program_id(1)
    real = edge < num_edges
    channel = tl.arange(0, block_channels)
    wanted = real[:, None] & (channel < channels)[None, :]
    width = heads * channels
    target = tl.load(targets + edge, mask=real, other=0).to(tl.int64)
    source = tl.load(sources + edge, mask=real, other=0).to(tl.int64)
    offset = head * channels + channel[None, :]
    a = tl.load(left + target[:, None] * width + offset, mask=wanted, other=0.0)
    b = tl.load(right + source[:, None] * width + offset, mask=wanted, other=0.0)
    tl.store(out + edge * heads + head, tl.sum(a * b, axis=1), mask=real)


def weighted_sums(
    pointers: tuple[Tensor, Tensor], columns: Tensor, weights: Tensor, rows: Tensor
) -> Tensor:
    """Computes for every node the sum of ``weights[e] * rows[columns[e]]`` over its edges.

    Args:
        pointers: Chunks of edges and of nodes; see ``chunk_pointers``.
        columns: The other end of every edge, ``[E]`` int32.
        weights: ``[E, H]``.
        rows: ``[n, H, C]``.

    Returns:
        ``[n, H, C]``. Chunks of a hub are summed side by side and then added up.
    """
    chunks, segments = pointers
    _, heads, channels = rows.shape
    partial = rows.new_empty(chunks.numel() - 1, heads, channels)
    if partial.shape[0]:
        _weighted_sums[(partial.shape[0], heads)](
            chunks,
            columns,
            weights.contiguous(),
            rows.contiguous(),
            partial,
            heads=heads,
            channels=channels,
            block_channels=triton.next_power_of_2(channels),
            block_edges=EDGES,
        )
    return torch.segment_reduce(partial, "sum", offsets=segments, axis=0, initial=0, unsafe=True)


def edge_products(graph: Adjacency, left: Tensor, right: Tensor) -> Tensor:
    """Computes ``left[i, h] · right[j, h]`` for every edge j → i, ``[E, H]``."""
    _, heads, channels = left.shape
    out = left.new_empty(graph.num_edges, heads)
    if graph.num_edges:
        _edge_products[(triton.cdiv(graph.num_edges, EDGES), heads)](
            graph.dst,
            graph.src,
            left.contiguous(),
            right.contiguous(),
            out,
            graph.num_edges,
            heads=heads,
            channels=channels,
            block_channels=triton.next_power_of_2(channels),
            block_edges=EDGES,
        )
    return out
