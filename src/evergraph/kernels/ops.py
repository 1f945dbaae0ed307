"""The few vectorised operations that every encoder is made of, in plain PyTorch.

Each one gives the same bits on every call, on CPU and CUDA: sums over edges run in a fixed
order and random masks come from an explicit generator. All can be differentiated twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.kernels import has_kernels, kernels
from evergraph.stream.adjacency import Adjacency, Pattern
from evergraph.stream.graph import Features, SparseRows


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


def dropout(features: Features, p: float, generator: torch.Generator | None) -> Features:
    """Zeroes entries with probability ``p`` and rescales the rest; no generator, no dropout.

    The mask spends one random byte per entry, so ``p`` is rounded to a multiple of 1/256
    and the rest is divided by exactly the probability of being kept.
    """
    if generator is None or p == 0:
        return features
    if isinstance(features, SparseRows):
        # Derived once here, then shared by every masked copy.
        _ = features.pattern, features.transpose
        # Entries that are zero stay zero, so only stored values need a mask.
        return features.with_values(_drop(features.values, p, generator))
    return _drop(features, p, generator)


def dense_dropout(rows: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """:func:`dropout` for a dense tensor."""
    return rows if generator is None or p == 0 else _drop(rows, p, generator)


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
        return cls(kernels("dropout", device).draw_seed(generator), _dropped(p))

    @property
    def scale(self) -> float:
        """What is kept is multiplied by this."""
        return 256 / (256 - self.dropped)

    def apply_(self, rows: Tensor) -> Tensor:
        """Activates rows in place."""
        module = kernels("dropout", rows.device)
        out: Tensor = module.drop(rows, self.seed, self.dropped, rectify=True, in_place=True)
        return out

    def backward(self, grad: Tensor, out: Tensor) -> Tensor:
        """Returns the gradient before the activation, given what came out of it."""
        module = kernels("dropout", grad.device)
        before: Tensor = module.pass_where_positive(grad, out, self.dropped)
        return before


def relu_dropout(
    rows: Tensor, p: float, generator: torch.Generator | None, fused: bool = True
) -> Tensor:
    """Applies a ReLU, then :func:`dropout`; ``fused`` can be differentiated once only."""
    if not has_kernels(rows.device):
        return dense_dropout(functional.relu(rows), p, generator)
    activation = Activation.draw(p, generator, rows.device)
    if activation is None or not fused:
        return activate_plain(rows, activation)
    return call(_ReluDrop, rows, activation)


def activate_plain(rows: Tensor, activation: Activation | None) -> Tensor:
    """Applies a ReLU and the same mask as the fused kernels; differentiable twice."""
    rows = functional.relu(rows)
    if activation is None:
        return rows
    return call(_Drop, rows, activation.seed, activation.dropped)


def _drop(rows: Tensor, p: float, generator: torch.Generator) -> Tensor:
    if has_kernels(rows.device):
        seed = kernels("dropout", rows.device).draw_seed(generator)
        return call(_Drop, rows, seed, _dropped(p))
    shares = torch.rand(rows.shape, generator=generator, device=rows.device)
    return rows * (shares >= _dropped(p) / 256).to(rows.dtype) * (256 / (256 - _dropped(p)))


def _dropped(p: float) -> int:
    return min(round(256 * p), 255)


class _Drop(torch.autograd.Function):
    """Dropout by a seed; linear, so that its gradient is itself."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, seed: Any, dropped: int) -> Tensor:
        ctx.seed, ctx.dropped = seed, dropped
        out: Tensor = kernels("dropout", rows.device).drop(rows, seed, dropped)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return call(_Drop, grads[0], ctx.seed, ctx.dropped), None, None


class _ReluDrop(torch.autograd.Function):
    """ReLU and dropout in one pass; the output tells what was kept."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, activation: Activation) -> Tensor:
        module = kernels("dropout", rows.device)
        out: Tensor = module.drop(rows, activation.seed, activation.dropped, rectify=True)
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
        product: Tensor = kernels("sparse", dense.device).times(self.pattern, self.values, dense)
        return product


def _matrix(features: SparseRows) -> SparseMatrix:
    return SparseMatrix(features.pattern, features.values)


def _transpose(features: SparseRows) -> SparseMatrix:
    pattern, order = features.transpose
    return SparseMatrix(pattern, features.values.index_select(0, order))


class _SparseProduct(torch.autograd.Function):
    """Multiplies a constant sparse matrix, given with its transpose, by a dense one."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: SparseMatrix, transpose: SparseMatrix) -> Tensor:
        ctx.matrix, ctx.transpose = matrix, transpose
        return matrix.times(dense)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        product = call(_SparseProduct, grads[0].contiguous(), ctx.transpose, ctx.matrix)
        return product, None, None


def multiply(matrix: SparseMatrix, transpose: SparseMatrix, dense: Tensor) -> Tensor:
    """Multiplies a sparse matrix of constants by ``dense``, differentiable any number of times."""
    return call(_SparseProduct, dense.contiguous(), matrix, transpose)


def project(features: Features, weight: Tensor) -> Tensor:
    """Computes ``features @ weight``, ``[n, d] × [d, k]``."""
    if isinstance(features, Tensor):
        return features @ weight
    if not torch.is_grad_enabled():
        return _matrix(features).times(weight)
    return multiply(_matrix(features), _transpose(features), weight)


def weight_gradient(features: Features, grad: Tensor) -> Tensor:
    """Returns the gradient of :func:`project` by its weight, ``[d, k]``."""
    if isinstance(features, Tensor):
        return features.t() @ grad
    return _transpose(features).times(grad.contiguous())


def input_gradient(grad: Tensor, weight: Tensor) -> Tensor:
    """Returns the gradient of :func:`project` by dense features, ``[n, d]``."""
    return grad @ weight.t()
