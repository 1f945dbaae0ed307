"""GraphSAGE with the mean of all neighbours (Hamilton et al., NeurIPS 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from evergraph.kernels.ops import project
from evergraph.nn.propagation import PropagationStack, glorot, propagate
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.graph import Features


class SAGELayer(nn.Module):
    r"""One layer: :math:`h_i = W_{self} x_i + W \, \mathrm{mean}_{j \in N(i)} x_j + b`.

    A node without neighbours has a mean of zero. Outputs are not normalised.

    Args:
        in_dim: Width of the input.
        out_dim: Width of the output.
        generator: Draws the initial weights (Glorot uniform; the bias is zero).
    """

    def __init__(self, in_dim: int, out_dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = glorot(in_dim, out_dim, generator)  # of the neighbours
        self.weight_self = glorot(in_dim, out_dim, generator)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(self, x: Features, adjacency: Adjacency) -> Tensor:
        """Returns the output ``[n, out_dim]``."""
        heard = propagate(adjacency, adjacency.mean_weights, project(x, self.weight))
        itself = project(x, self.weight_self)
        if adjacency.own is not None:
            itself = itself.index_select(0, adjacency.own)
        return itself + heard + self.bias


class SAGE(PropagationStack):
    """Layers of mean aggregation with ReLU between them and dropout on the input of each."""

    layer = SAGELayer
