"""Products of features and weights; sparse features are never made dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.nn.kernels import kernels
from evergraph.nn.ops import call
from evergraph.stream.features import Features, SparseRows
from evergraph.stream.pattern import Pattern


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
