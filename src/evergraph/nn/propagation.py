"""Propagation: every node adds up its neighbours' rows under weights that the graph fixes.

What :mod:`evergraph.nn.gcn` and :mod:`evergraph.nn.sage` are made of. Nothing of the size of
edges × channels is ever stored, and all can be differentiated twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from evergraph.kernels.attention import AttentionPath
from evergraph.kernels.ops import SparseMatrix, dropout, multiply, relu_dropout
from evergraph.nn.gat import glorot_bound
from evergraph.nn.receptive_field import Graphs
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.graph import Features


def propagate(graph: Adjacency, weights: Tensor, rows: Tensor) -> Tensor:
    """Adds up the sources' rows ``[n, d]`` at every node, each times its edge's weight ``[E]``.

    The graph need not be symmetric; the gradient propagates backwards.
    """
    weights = weights.to(rows.dtype)
    transpose = SparseMatrix(graph.transpose, weights[graph.by_source])
    return multiply(SparseMatrix(graph.pattern, weights), transpose, rows)


def glorot(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """Draws a weight matrix, Glorot uniform."""
    bound = glorot_bound(rows, columns)
    weight = torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)
    return nn.Parameter(weight)


class PropagationStack(nn.Module):
    """Layers with ReLU between them and dropout on the input of each; none has attention.

    The embedding ``h`` is the last layer's output before any activation (decision 0003). Its
    width is that of GAT, heads × channels, so that all around it stays the same.

    Attributes:
        layer: The class of its layers, made from their widths, in and out, and a generator.
        has_attention: Whether the encoder can show attention.
        reads_degrees: Whether a node's output changes when a neighbour gains an edge.
    """

    layer: ClassVar[type[nn.Module]]
    has_attention: ClassVar[bool] = False
    reads_degrees: ClassVar[bool] = False

    def __init__(
        self,
        in_dim: int,
        *,
        channels: Sequence[int],
        heads: int,
        drop: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.drop = drop
        self.channels = list(channels)  # of one head, layer by layer, as GAT counts them
        widths = [in_dim, *(heads * width for width in channels)]
        self.out_dim = widths[-1]
        self.layers = nn.ModuleList(
            self.layer(width, out, generator) for width, out in pairwise(widths)
        )

    def forward(
        self,
        x: Features,
        adjacency: Graphs,
        generator: torch.Generator | None = None,
        path: AttentionPath = "auto",
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns ``h`` ``[n, out_dim]`` and no attention.

        Args:
            x: Features of all nodes of the graph.
            adjacency: The graph, or one for each layer, without self-loops.
            generator: Draws the dropout masks; None switches dropout off.
            path: Only ``plain`` can be differentiated twice, because of dropout.
        """
        h: Features = dropout(x, self.drop, generator)
        for depth, layer in enumerate(self.layers):
            if depth > 0:
                assert isinstance(h, Tensor)
                h = relu_dropout(h, self.drop, generator, fused=path != "plain")
            h = layer(h, adjacency if isinstance(adjacency, Adjacency) else adjacency[depth])
        assert isinstance(h, Tensor)
        return h, []
