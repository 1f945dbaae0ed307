"""Graph attention network, the paper's backbone (Veličković et al., ICLR 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from evergraph.kernels import has_kernels
from evergraph.kernels.attention import AttentionPath, LayerWeights, attend, attend_plain
from evergraph.kernels.ops import Activation, dropout, relu_dropout
from evergraph.nn.receptive_field import Graphs
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.graph import Features


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
            bound = glorot_bound(weight.shape[-2], weight.shape[-1])
            nn.init.uniform_(weight, -bound, bound, generator=generator)

    def forward(
        self,
        x: Features,
        adjacency: Adjacency,
        path: AttentionPath = "auto",
        activation: Activation | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output ``[n, heads * channels]`` and the attention ``[E + n, heads]``.

        The attention is known on the plain path alone; only the fused one can apply an
        activation to the output.
        """
        weights = LayerWeights(
            self.weight,
            self.att_src[0],
            self.att_dst[0],
            self.bias.view(self.heads, self.channels),
        )
        graph = adjacency.with_self_loops
        if takes_plain(path, x.device):
            assert activation is None
            return attend_plain(x, weights, graph)
        return attend(x, weights, graph, activation), None


def takes_plain(path: AttentionPath, device: torch.device) -> bool:
    """Tells whether a layer on this device takes the plain path."""
    return path == "plain" or (path == "auto" and not has_kernels(device))


class GAT(nn.Module):
    """Attention layers with ReLU between them and dropout on the input of each.

    The embedding ``h`` is the last layer's output before any activation (decision 0003).

    Args:
        in_dim: Width of the input.
        channels: Width of one head, of each layer in turn.
        heads: Number of heads of every layer.
        drop: Dropout rate.
        generator: Draws the initial weights.
    """

    has_attention: ClassVar[bool] = True
    reads_degrees: ClassVar[bool] = False  # see PropagationStack

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
        widths = [in_dim] + [heads * width for width in channels[:-1]]
        self.layers = nn.ModuleList(
            GATLayer(width, out, heads, generator)
            for width, out in zip(widths, channels, strict=True)
        )

    @property
    def channels(self) -> list[int]:
        """The width of one head, layer by layer."""
        return [self.layer(depth).channels for depth in range(len(self.layers))]

    @property
    def out_dim(self) -> int:
        """The width of ``h``."""
        last = self.layer(-1)
        return last.heads * last.channels

    def layer(self, depth: int) -> GATLayer:
        """Returns the layer at a depth, 0 being the one that sees the features."""
        layer = self.layers[depth]
        assert isinstance(layer, GATLayer)
        return layer

    def forward(
        self,
        x: Features,
        adjacency: Graphs,
        generator: torch.Generator | None = None,
        path: AttentionPath = "auto",
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns ``h`` ``[n, out_dim]`` and, on the plain path, each layer's attention.

        Args:
            x: Features of all nodes of the graph.
            adjacency: The graph, or one for each layer, without self-loops: the layers add them.
            generator: Draws the dropout masks; None switches dropout off.
            path: How attention is computed; only ``plain`` can be differentiated twice.
        """
        attention: list[Tensor] = []
        plain = takes_plain(path, x.device)
        h: Features = dropout(x, self.drop, generator)
        for depth, layer in enumerate(self.layers):
            graph = adjacency if isinstance(adjacency, Adjacency) else adjacency[depth]
            # What every layer but the last shows is activated; the fused path does it itself.
            last = depth == len(self.layers) - 1
            within = None if plain or last else Activation.draw(self.drop, generator, x.device)
            h, alpha = layer(h, graph, path, within)
            if not last and within is None:
                assert isinstance(h, Tensor)
                h = relu_dropout(h, self.drop, generator, fused=not plain)
            attention += [alpha] if alpha is not None else []
        assert isinstance(h, Tensor)
        return h, attention


def glorot_bound(fan_in: int, fan_out: int) -> float:
    """Returns the end of the interval that Glorot's uniform initialisation draws from."""
    return float((6 / (fan_in + fan_out)) ** 0.5)
