"""Graph attention network, the paper's backbone (Veličković et al., ICLR 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from evergraph.nn.attention import AttentionPath, attend, attend_plain, has_kernels
from evergraph.nn.ops import dropout, project, relu_dropout
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features


class GATLayer(nn.Module):
    r"""One attention layer, heads concatenated.

    .. math::
        h_i = \sum_{j \in \mathcal{N}(i) \cup \{i\}} \alpha_{ij} W x_j + b, \quad
        \alpha_{ij} = \mathrm{softmax}_j\,
        \mathrm{LeakyReLU}(a_{dst}^\top W x_i + a_{src}^\top W x_j)

    Args:
        in_dim: Width of the input.
        channels: Width of one head.
        heads: Number of heads, each with its own ``W``, ``a`` and softmax.
        generator: Draws the initial weights (Glorot uniform; the bias is zero).
    """

    def __init__(self, in_dim: int, channels: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads, self.channels = heads, channels
        self.weight = nn.Parameter(torch.empty(in_dim, heads * channels))
        self.att_src = nn.Parameter(torch.empty(1, heads, channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, channels))
        self.bias = nn.Parameter(torch.zeros(heads * channels))
        for weight in (self.weight, self.att_src, self.att_dst):
            bound = (6 / (weight.shape[-2] + weight.shape[-1])) ** 0.5
            nn.init.uniform_(weight, -bound, bound, generator=generator)

    def forward(
        self, x: Features, adjacency: Adjacency, path: AttentionPath = "auto"
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output ``[n, heads * channels]`` and the attention ``[E + n, heads]``.

        The attention is known on the plain path alone.
        """
        graph = adjacency.with_self_loops
        wx = project(x, self.weight).view(-1, self.heads, self.channels)
        bias = self.bias.view(self.heads, self.channels)
        if path == "plain" or (path == "auto" and not has_kernels(wx.device)):
            out, alpha = attend_plain(wx, self.att_src[0], self.att_dst[0], bias, graph)
            return out.flatten(1), alpha
        return attend(wx, self.att_src[0], self.att_dst[0], bias, graph).flatten(1), None


class GAT(nn.Module):
    """Attention layers with ReLU between them and dropout on the input of each.

    The embedding ``h`` is the last layer's output before any activation (decision 0003).
    """

    def __init__(
        self,
        in_dim: int,
        *,
        channels: int,
        heads: int,
        num_layers: int,
        drop: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.drop = drop
        self.out_dim = heads * channels
        widths = [in_dim] + [self.out_dim] * (num_layers - 1)
        self.layers = nn.ModuleList(GATLayer(width, channels, heads, generator) for width in widths)

    def forward(
        self,
        x: Features,
        adjacency: Adjacency,
        generator: torch.Generator | None = None,
        path: AttentionPath = "auto",
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns ``h`` ``[n, out_dim]`` and, on the plain path, each layer's attention.

        Args:
            x: Features of all nodes of the graph.
            adjacency: The graph, without self-loops: the layers add them.
            generator: Draws the dropout masks; None switches dropout off.
            path: How attention is computed; only ``plain`` can be differentiated twice.
        """
        attention: list[Tensor] = []
        h: Features = x
        for depth, layer in enumerate(self.layers):
            if depth == 0:
                h = dropout(x, self.drop, generator)
            else:
                assert isinstance(h, Tensor)
                h = relu_dropout(h, self.drop, generator, path != "plain")
            h, alpha = layer(h, adjacency, path)
            attention += [alpha] if alpha is not None else []
        assert isinstance(h, Tensor)
        return h, attention
