"""What compiled kernels are called through: dropout, sparse products, distances.

Each one gives the same bits on every call, on CPU and CUDA: sums run in a fixed order and random
masks come from an explicit generator. All but distances can be differentiated twice, and
:func:`relu_dropout` where it is not fused.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.stream.adjacency import Pattern
from evergraph.stream.features import Features, SparseRows


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


def check_first_derivative() -> None:
    """Refuses a second derivative in a backward pass that has none."""
    if torch.is_grad_enabled():  # only while the gradient itself is being recorded
        raise InputError(
            "Expected 'double_backward' in the 'needs' of a method that differentiates twice (got "
            "no such need, so that kernels without second derivatives are taken); declare it."
        )


def linear(
    rows: Tensor, function: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor]
) -> Tensor:
    """Applies a linear map, given with its adjoint: each is the gradient of the other."""
    return call(_Linear, rows, function, adjoint)


class _Linear(torch.autograd.Function):
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
        return linear(rows, mask.drop, mask.drop)
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
        check_first_derivative()
        return ctx.activation.backward(grads[0], ctx.saved_tensors[0]), None


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix of constants."""

    pattern: Pattern
    values: Tensor

    def times(self, dense: Tensor, out: Tensor | None = None) -> Tensor:
        """Multiplies from the left, in a fixed order of summation.

        The product is computed in ``out``, contiguous, if that is given on a CPU.
        """
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
        product: Tensor = kernels(dense.device).times(self.pattern, self.values, dense, out)
        return product


def _transpose(features: SparseRows) -> SparseMatrix:
    pattern, order = features.transpose
    return SparseMatrix(pattern, features.values.index_select(0, order))


def project(features: Features, weight: Tensor) -> Tensor:
    """Computes ``features @ weight``, ``[n, d] × [d, k]``."""
    if isinstance(features, Tensor):
        return features @ weight
    matrix = SparseMatrix(features.pattern, features.values)
    if not torch.is_grad_enabled():
        return matrix.times(weight)
    return linear(weight, matrix.times, _transpose(features).times)


def weight_gradient(features: Features, grad: Tensor) -> Tensor:
    """Returns the gradient of :func:`project` by its weight, ``[d, k]``."""
    if isinstance(features, Tensor):
        return features.t() @ grad
    return _transpose(features).times(grad)


#: Distances held at once; bounds memory at 64 MB whatever the number of rows.
BLOCK_ENTRIES = 1 << 24


def distance_blocks(a: Tensor, b: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yields ``(begin, distances)``, the rows of ``a`` from ``begin`` on against all of ``b``."""
    step = max(1, BLOCK_ENTRIES // max(b.shape[0], 1))
    for begin in range(0, a.shape[0], step):
        yield begin, _distances(a[begin : begin + step], b)


def count_within(a: Tensor, b: Tensor, radius: Tensor) -> Tensor:
    """Counts for each row of ``b`` the rows of ``a`` nearer than a scalar radius, ``[n_b]``."""
    module = _kernels(a)
    if module is not None:
        found: Tensor = module.reduce_distances(a, b, radius)
        return found
    counts = torch.zeros(b.shape[0], dtype=torch.int64, device=a.device)
    for _, block in distance_blocks(a, b):
        counts += (block < radius).sum(dim=0)
    return counts


def mean_pairwise_distance(h: Tensor) -> Tensor:
    """Averages the distance between distinct rows of ``h``; a float64 scalar, 0 for one row."""
    module = _kernels(h)
    if module is not None:
        total: Tensor = module.reduce_distances(h, h).sum()
    else:  # the diagonal adds exactly zero
        blocks = (block.sum(dtype=torch.float64) for _, block in distance_blocks(h, h))
        total = sum(blocks, torch.zeros((), dtype=torch.float64, device=h.device))
    return total / max(h.shape[0] * (h.shape[0] - 1), 1)


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Computes one block of distances, ``[n_a, n_b]``."""
    module = _kernels(a)
    if module is None:
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    block: Tensor = module.distances(a, b)
    return block


def _kernels(h: Tensor) -> Any | None:
    """Returns the module of CUDA kernels where it applies."""
    if not h.is_cuda or h.dtype != torch.float32 or not has_kernels(h.device):
        return None
    return kernels(h.device)
