"""The few vectorised operations that every encoder is made of, in plain PyTorch.

Each one is differentiable twice and gives the same bits on every call, on CPU and CUDA:
sums over edges run in a fixed order and random masks come from an explicit generator.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features, SparseRows

with warnings.catch_warnings():
    # PyTorch announces once per process that CSR tensors are in beta; users need not read it.
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], size=(1, 1))


@dataclass(frozen=True)
class Ends:
    """One end of every edge, with the order that groups edges by that end."""

    node: Tensor  # [E]
    order: Tensor | None  # [E] edge positions grouped by node; None when they already are
    indptr: Tensor  # [n + 1]

    @classmethod
    def of(cls, node: Tensor, num_nodes: int) -> Ends:
        """Any list of nodes as ends, in any order."""
        counts = torch.bincount(node, minlength=num_nodes)
        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=node.device)
        torch.cumsum(counts, 0, out=indptr[1:])
        # Only the CUDA path sums group by group.
        return cls(node, torch.argsort(node, stable=True) if node.is_cuda else None, indptr)

    @classmethod
    def targets(cls, adjacency: Adjacency) -> Ends:
        """The destinations of the edges."""
        return cls(adjacency.dst, None, adjacency.indptr)

    @classmethod
    def sources(cls, adjacency: Adjacency) -> Ends:
        """The sources of the edges."""
        return cls(adjacency.src, adjacency.by_source, adjacency.source_indptr)


class _Spread(torch.autograd.Function):
    """Copies node rows to edges; its gradient collects edge rows at nodes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ends: Ends) -> Tensor:
        ctx.ends = ends
        return rows.index_select(0, ends.node)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return collect(grads[0], ctx.ends), None


class _Collect(torch.autograd.Function):
    """Sums edge rows at nodes; its gradient spreads node rows to edges."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ends: Ends) -> Tensor:
        ctx.ends = ends
        if rows.is_cuda:
            # index_add_ would use atomics there, in an order that changes from run to run.
            grouped = rows if ends.order is None else rows.index_select(0, ends.order)
            return torch.segment_reduce(grouped, "sum", offsets=ends.indptr, axis=0, initial=0)
        out = rows.new_zeros(ends.indptr.numel() - 1, *rows.shape[1:])
        return out.index_add_(0, ends.node, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return spread(grads[0], ctx.ends), None


def _call(function: Any, *arguments: Any) -> Tensor:
    """Applies an autograd function; PyTorch leaves ``apply`` without types."""
    out: Tensor = function.apply(*arguments)
    return out


def spread(rows: Tensor, ends: Ends) -> Tensor:
    """Gives each edge the row of its end: ``[n, ...]`` → ``[E, ...]``."""
    return _call(_Spread, rows, ends)


def collect(rows: Tensor, ends: Ends) -> Tensor:
    """Sums edge rows at their ends: ``[E, ...]`` → ``[n, ...]``."""
    return _call(_Collect, rows, ends)


def edge_softmax(scores: Tensor, ends: Ends) -> Tensor:
    """Normalises edge scores ``[E, H]`` over the edges that share an end."""
    num_nodes = ends.indptr.numel() - 1
    index = ends.node[:, None].expand_as(scores)
    highest = scores.new_full((num_nodes, scores.shape[1]), -torch.inf)
    highest = highest.scatter_reduce_(0, index, scores.detach(), "amax")
    weights = torch.exp(scores - highest.index_select(0, ends.node))
    return weights / spread(collect(weights, ends), ends)


class _SparseProduct(torch.autograd.Function):
    """Multiplies a constant sparse matrix, given with its transpose, by a dense one."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.matrix, ctx.transpose = matrix, transpose
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _call(_SparseProduct, grads[0], ctx.transpose, ctx.matrix), None, None


def project(features: Features, weight: Tensor) -> Tensor:
    """Computes ``features @ weight``, ``[n, d] × [d, k]``, never densifying sparse features."""
    if isinstance(features, Tensor):
        return features @ weight
    n, d = features.shape
    matrix = torch.sparse_csr_tensor(features.indptr, features.indices, features.values, (n, d))
    order, indptr, rows = features.by_column
    transpose = torch.sparse_csr_tensor(indptr, rows, features.values[order], (d, n))
    return _call(_SparseProduct, weight, matrix, transpose)


def dropout(features: Features, p: float, generator: torch.Generator | None) -> Features:
    """Zeroes entries with probability ``p`` and rescales the rest; no generator, no dropout.

    The mask spends one random byte per entry, so ``p`` is rounded to a multiple of 1/256
    and the rest is divided by exactly the probability of being kept.
    """
    if generator is None or p == 0:
        return features
    if isinstance(features, SparseRows):
        _ = features.by_column  # derived once here, then shared by every masked copy
        # Entries that are zero stay zero, so only stored values need a mask.
        return features.with_values(_drop(features.values, p, generator))
    return _drop(features, p, generator)


def dense_dropout(rows: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """:func:`dropout` for a dense tensor."""
    return rows if generator is None or p == 0 else _drop(rows, p, generator)


def _drop(rows: Tensor, p: float, generator: torch.Generator) -> Tensor:
    dropped = round(256 * p)
    words = torch.empty((rows.numel() + 7) // 8, dtype=torch.int64, device=rows.device)
    words.random_(-(2**63), None, generator=generator)
    random_bytes = words.view(torch.uint8)[: rows.numel()].view(rows.shape)
    return rows * (random_bytes >= dropped).to(rows.dtype).mul_(256 / (256 - dropped))
