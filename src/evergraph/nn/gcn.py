"""Graph convolutional network (Kipf and Welling, ICLR 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from evergraph.kernels.ops import project
from evergraph.nn.propagation import PropagationStack, glorot, propagate
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.graph import Features


class GCNLayer(nn.Module):
    r"""One convolution: :math:`H = D^{-1/2} (A + I) D^{-1/2} X W + b`.

    Args:
        in_dim: Width of the input.
        out_dim: Width of the output.
        generator: Draws the initial weights (Glorot uniform; the bias is zero).
    """

    def __init__(self, in_dim: int, out_dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = glorot(in_dim, out_dim, generator)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(self, x: Features, adjacency: Adjacency) -> Tensor:
        """Returns the output ``[n, out_dim]``."""
        rows = project(x, self.weight)
        looped, weights = adjacency.with_self_loops, adjacency.symmetric_weights
        return propagate(looped, weights, rows) + self.bias


class GCN(PropagationStack):
    """Convolutions with ReLU between them and dropout on the input of each."""

    layer = GCNLayer
    reads_degrees = True
