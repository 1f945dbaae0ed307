"""The few vectorised operations that every encoder is made of, in plain PyTorch.

Each one gives the same bits on every call, on CPU and CUDA: sums over edges run in a fixed
order and random masks come from an explicit generator. All can be differentiated twice.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.stream.adjacency import Adjacency, chunk_pointers
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
    chunks: tuple[Tensor, Tensor] | None = None  # see chunk_pointers; None sums in one go

    @classmethod
    def of(cls, node: Tensor, num_nodes: int) -> Ends:
        """Any list of nodes as ends, in any order."""
        # Sorting instead of counting never waits for the device.
        grouped, order = torch.sort(node, stable=True)
        bounds = torch.arange(num_nodes + 1, device=node.device)
        return cls(node, order, torch.searchsorted(grouped, bounds))

    @classmethod
    def targets(cls, adjacency: Adjacency) -> Ends:
        """The destinations of the edges."""
        chunks = adjacency.chunks if adjacency.dst.is_cuda else None
        return cls(adjacency.dst, None, adjacency.indptr, chunks)

    @classmethod
    def sources(cls, adjacency: Adjacency) -> Ends:
        """The sources of the edges."""
        chunks = adjacency.source_chunks if adjacency.src.is_cuda else None
        return cls(adjacency.src, adjacency.by_source, adjacency.source_indptr, chunks)

    def chunked(self) -> Ends:
        """The same ends, prepared for nodes that very many edges share."""
        return replace(self, chunks=chunk_pointers(self.indptr))


class _Spread(torch.autograd.Function):
    """Copies node rows to edges; its gradient collects edge rows at nodes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ends: Ends) -> Tensor:
        ctx.ends = ends
        return rows.index_select(0, ends.node)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return collect(grads[0], ctx.ends), None


def grouped(rows: Tensor, ends: Ends, reduce: Literal["sum", "max"]) -> Tensor:
    """Reduces edge rows at their ends group by group, in a fixed order, hubs in two rounds.

    A node without edges gets 0 for a sum and −∞ for a maximum.
    """
    initial = 0.0 if reduce == "sum" else -torch.inf
    rows = rows if ends.order is None else rows.index_select(0, ends.order)
    for pointer in (ends.indptr,) if ends.chunks is None else ends.chunks:
        rows = torch.segment_reduce(
            rows, reduce, offsets=pointer, axis=0, initial=initial, unsafe=True
        )
    return rows


class _Collect(torch.autograd.Function):
    """Sums edge rows at nodes; its gradient spreads node rows to edges."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ends: Ends) -> Tensor:
        ctx.ends = ends
        if rows.is_cuda:
            # index_add_ would use atomics there, in an order that changes from run to run.
            return grouped(rows, ends, "sum")
        out = rows.new_zeros(ends.indptr.numel() - 1, *rows.shape[1:])
        return out.index_add_(0, ends.node, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return spread(grads[0], ctx.ends), None


def call(function: Any, *arguments: Any) -> Tensor:
    """Applies an autograd function; PyTorch leaves ``apply`` without types."""
    out: Tensor = function.apply(*arguments)
    return out


def spread(rows: Tensor, ends: Ends) -> Tensor:
    """Gives each edge the row of its end: ``[n, ...]`` → ``[E, ...]``."""
    return call(_Spread, rows, ends)


def collect(rows: Tensor, ends: Ends) -> Tensor:
    """Sums edge rows at their ends: ``[E, ...]`` → ``[n, ...]``."""
    return call(_Collect, rows, ends)


def edge_softmax(scores: Tensor, ends: Ends) -> Tensor:
    """Normalises edge scores ``[E, H]`` over the edges that share an end."""
    fixed = scores.detach()
    if scores.is_cuda:  # scattering a maximum there makes the edges of a hub wait in line
        highest = grouped(fixed, ends, "max")
    else:
        highest = scores.new_full((ends.indptr.numel() - 1, scores.shape[1]), -torch.inf)
        highest.scatter_reduce_(0, ends.node[:, None].expand_as(scores), fixed, "amax")
    weights = torch.exp(scores - highest.index_select(0, ends.node))
    return weights / spread(collect(weights, ends), ends)


@dataclass(frozen=True)
class _Csr:
    """A sparse matrix of constants: pointer and columns int32, values float32."""

    indptr: Tensor
    columns: Tensor
    values: Tensor
    num_columns: int

    def times(self, dense: Tensor) -> Tensor:
        """Multiplies from the left, in a fixed order of summation."""
        if dense.is_cuda:
            # cuSPARSE adds up in an order that changes from run to run.
            return functional.embedding_bag(
                self.columns,
                dense,
                self.indptr,
                mode="sum",
                per_sample_weights=self.values,
                include_last_offset=True,
            )
        shape = (self.indptr.numel() - 1, self.num_columns)
        return torch.sparse_csr_tensor(self.indptr, self.columns, self.values, shape) @ dense


class _SparseProduct(torch.autograd.Function):
    """Multiplies a constant sparse matrix, given with its transpose, by a dense one."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: _Csr, transpose: _Csr) -> Tensor:
        ctx.matrix, ctx.transpose = matrix, transpose
        return matrix.times(dense)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        product = call(_SparseProduct, grads[0].contiguous(), ctx.transpose, ctx.matrix)
        return product, None, None


def project(features: Features, weight: Tensor) -> Tensor:
    """Computes ``features @ weight``, ``[n, d] × [d, k]``, never densifying sparse features."""
    if isinstance(features, Tensor):
        return features @ weight
    n, d = features.shape
    matrix = _Csr(*features.csr, features.values, d)
    indptr, rows, order = features.csr_by_column
    transpose = _Csr(indptr, rows, features.values[order], n)
    return call(_SparseProduct, weight, matrix, transpose)


def dropout(features: Features, p: float, generator: torch.Generator | None) -> Features:
    """Zeroes entries with probability ``p`` and rescales the rest; no generator, no dropout.

    The mask spends one random byte per entry, so ``p`` is rounded to a multiple of 1/256
    and the rest is divided by exactly the probability of being kept.
    """
    if generator is None or p == 0:
        return features
    if isinstance(features, SparseRows):
        _ = (
            features.csr,
            features.csr_by_column,
        )  # derived once here, then shared by every masked copy
        # Entries that are zero stay zero, so only stored values need a mask.
        return features.with_values(_drop(features.values, p, generator))
    return _drop(features, p, generator)


def dense_dropout(rows: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """:func:`dropout` for a dense tensor."""
    return rows if generator is None or p == 0 else _drop(rows, p, generator)


def _drop(rows: Tensor, p: float, generator: torch.Generator) -> Tensor:
    dropped = min(round(256 * p), 255)
    words = torch.empty((rows.numel() + 7) // 8, dtype=torch.int64, device=rows.device)
    words.random_(-(2**63), None, generator=generator)
    random_bytes = words.view(torch.uint8)[: rows.numel()].view(rows.shape)
    return rows * (random_bytes >= dropped).to(rows.dtype).mul_(256 / (256 - dropped))
