"""The few operations that every encoder is made of: over edges, dropout, sparse products.

Each one gives the same bits on every call, on CPU and CUDA: sums over edges run in a fixed
order and random masks come from an explicit generator. All can be differentiated twice, but
for :func:`relu_dropout` when it is fused.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.stream.adjacency import Adjacency, Pattern
from evergraph.stream.graph import Features, SparseRows


@cache
def has_kernels(device: torch.device) -> bool:
    """Tells whether there are compiled kernels; Triton comes with PyTorch for CUDA."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return device.type == "cpu"


@cache  # asking Python's import system at every call takes as long as a small kernel
def kernels(device: torch.device) -> Any:
    """Returns the module that calls the compiled kernels of a device.

    Both modules have the same functions, but that ``times`` is the CPU's alone and distances
    are CUDA's.
    """
    return importlib.import_module(f"evergraph.kernels.{device.type}")


def call(function: Any, *arguments: Any) -> Tensor:
    """Applies an autograd function; PyTorch leaves ``apply`` without types."""
    out: Tensor = function.apply(*arguments)
    return out


class _Linear(torch.autograd.Function):
    """Applies a linear map, given with its adjoint: each is the gradient of the other."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        function: Callable[[Tensor], Tensor],
        adjoint: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.function, ctx.adjoint = function, adjoint
        return function(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return call(_Linear, grads[0], ctx.adjoint, ctx.function), None, None


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


def spread(rows: Tensor, ends: Ends) -> Tensor:
    """Gives each edge the row of its end: ``[n, ...]`` → ``[E, ...]``."""
    return call(_Linear, rows, partial(_to_edges, ends), partial(_to_nodes, ends))


def collect(rows: Tensor, ends: Ends) -> Tensor:
    """Sums edge rows at their ends: ``[E, ...]`` → ``[n, ...]``."""
    return call(_Linear, rows, partial(_to_nodes, ends), partial(_to_edges, ends))


def _to_edges(ends: Ends, rows: Tensor) -> Tensor:
    return rows.index_select(0, ends.node)


def _to_nodes(ends: Ends, rows: Tensor) -> Tensor:
    if rows.is_cuda:
        # index_add_ would use atomics there, in an order that changes from run to run.
        return grouped(rows, ends, "sum")
    out = rows.new_zeros(ends.indptr.numel() - 1, *rows.shape[1:])
    return out.index_add_(0, ends.node, rows)


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


def dropout(features: Features, p: float, generator: torch.Generator | None) -> Features:
    """Zeroes entries with probability ``p`` and rescales the rest; no generator, no dropout.

    The mask spends one random byte per entry, so ``p`` is rounded to a multiple of 1/256
    and the rest is divided by exactly the probability of being kept.
    """
    if isinstance(features, Tensor):
        return dense_dropout(features, p, generator)
    if generator is None or p == 0:
        return features
    # Derived once here, then shared by every masked copy.
    _ = features.pattern, features.transpose
    # Entries that are zero stay zero, so only stored values need a mask.
    return features.with_values(dense_dropout(features.values, p, generator))


def dense_dropout(rows: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """:func:`dropout` for a dense tensor."""
    if generator is None or p == 0:
        return rows
    mask = Activation.draw(p, generator, rows.device)
    if mask is not None:
        return call(_Linear, rows, mask.drop, mask.drop)
    shares = torch.rand(rows.shape, generator=generator, device=rows.device)
    return rows * (shares >= _dropped(p) / 256).to(rows.dtype) * (256 / (256 - _dropped(p)))


def relu_dropout(
    rows: Tensor, p: float, generator: torch.Generator | None, fused: bool = True
) -> Tensor:
    """Applies a ReLU, then :func:`dropout`; ``fused`` can be differentiated once only."""
    activation = Activation.draw(p, generator, rows.device) if fused else None
    if activation is None:
        return dense_dropout(functional.relu(rows), p, generator)
    return call(_ReluDrop, rows, activation)


@dataclass(frozen=True)
class Activation:
    """ReLU and dropout with a mask that a seed determines; one pass, nothing kept beside."""

    seed: Any  # as the device's kernels draw it
    dropped: int  # of 256 entries

    @classmethod
    def draw(
        cls, p: float, generator: torch.Generator | None, device: torch.device
    ) -> Activation | None:
        """Draws a mask; None when there is nothing to drop or no kernel to do it."""
        if generator is None or p == 0 or not has_kernels(device):
            return None
        return cls(kernels(device).draw_seed(generator), _dropped(p))

    @property
    def scale(self) -> float:
        """What is kept is multiplied by this."""
        return 256 / (256 - self.dropped)

    def drop(self, rows: Tensor, *, rectify: bool = False, in_place: bool = False) -> Tensor:
        """Drops entries, after a ReLU if ``rectify``."""
        drop = kernels(rows.device).drop
        out: Tensor = drop(rows, self.seed, self.dropped, rectify=rectify, in_place=in_place)
        return out

    def backward(self, grad: Tensor, out: Tensor) -> Tensor:
        """Returns the gradient before the activation, given what came out of it."""
        passed: Tensor = torch.ops.aten.threshold_backward(grad, out, 0)
        return passed.mul_(self.scale)


def _dropped(p: float) -> int:
    return min(round(256 * p), 255)


class _ReluDrop(torch.autograd.Function):
    """ReLU and dropout in one pass; the output tells what was kept."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, activation: Activation) -> Tensor:
        out = activation.drop(rows, rectify=True)
        ctx.save_for_backward(out)
        ctx.activation = activation
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # only while the gradient itself is being recorded
            raise RuntimeError("relu_dropout cannot be differentiated twice: take the plain path")
        return ctx.activation.backward(grads[0], ctx.saved_tensors[0]), None


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix of constants."""

    pattern: Pattern
    values: Tensor

    def times(self, dense: Tensor) -> Tensor:
        """Multiplies from the left, in a fixed order of summation."""
        dense = dense.contiguous()
        if self.values.numel() == 0:
            return dense.new_zeros(self.pattern.num_rows, dense.shape[1])
        if dense.is_cuda:
            # cuSPARSE adds up in an order that changes from run to run.
            return functional.embedding_bag(
                self.pattern.columns,
                dense,
                self.pattern.indptr.int(),
                mode="sum",
                per_sample_weights=self.values,
                include_last_offset=True,
            )
        product: Tensor = kernels(dense.device).times(self.pattern, self.values, dense)
        return product


def _transpose(features: SparseRows) -> SparseMatrix:
    pattern, order = features.transpose
    return SparseMatrix(pattern, features.values.index_select(0, order))


def multiply(matrix: SparseMatrix, transpose: SparseMatrix, dense: Tensor) -> Tensor:
    """Multiplies a sparse matrix of constants by ``dense``, differentiable any number of times."""
    return call(_Linear, dense, matrix.times, transpose.times)


def project(features: Features, weight: Tensor) -> Tensor:
    """Computes ``features @ weight``, ``[n, d] × [d, k]``."""
    if isinstance(features, Tensor):
        return features @ weight
    matrix = SparseMatrix(features.pattern, features.values)
    if not torch.is_grad_enabled():
        return matrix.times(weight)
    return multiply(matrix, _transpose(features), weight)


def weight_gradient(features: Features, grad: Tensor) -> Tensor:
    """Returns the gradient of :func:`project` by its weight, ``[d, k]``."""
    if isinstance(features, Tensor):
        return features.t() @ grad
    return _transpose(features).times(grad)
