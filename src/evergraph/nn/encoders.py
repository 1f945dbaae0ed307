"""Encoders: GAT, the paper's backbone, GCN and GraphSAGE, stacked the same way.

Without attention nothing of the size of edges × channels is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from evergraph.kernels import has_kernels
from evergraph.kernels.attention import AttentionPath, LayerWeights, attend, attend_plain
from evergraph.kernels.ops import Activation, SparseMatrix, dropout, linear, project, relu_dropout
from evergraph.nn.receptive_field import Graphs
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features

#: Some nodes, the sources that a layer reads to give their rows, and the edges between them.
Block = tuple[Tensor, Tensor, Adjacency]


class Encoder(nn.Module):
    """Layers with ReLU between them and dropout on the input of each.

    The embedding ``h`` is the last layer's output before any activation (decision 0003). Without
    attention a layer is as wide as all heads together, so that all around it stays the same.
    ``channels`` is the width of one head, of each layer in turn.
    """

    has_attention: ClassVar[bool] = False  # whether it can show attention
    reads_degrees: ClassVar[bool] = False  # does a node's output change when a neighbour's edges do
    layer_class: ClassVar[type[nn.Module]]

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
        self.channels, self.heads, self.drop = list(channels), heads, drop
        self.layers = nn.ModuleList()
        for width in channels:
            shape = (width, heads) if self.has_attention else (heads * width,)
            self.layers.append(self.layer_class(in_dim, *shape, generator))
            in_dim = heads * width

    @property
    def out_dim(self) -> int:
        """The width of ``h``."""
        return self.heads * self.channels[-1]

    def forward(
        self,
        x: Features,
        adjacency: Graphs,
        generator: torch.Generator | None = None,
        path: AttentionPath = "auto",
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns ``h`` ``[n, out_dim]`` and, on the plain path, each layer's attention if any.

        The graph, or one for each layer, comes without self-loops: the layers add them. Without a
        generator there is no dropout; only the plain path can be differentiated twice.
        """
        attention: list[Tensor] = []
        plain = takes_plain(path, x.device)
        h: Features = dropout(x, self.drop, generator)
        for depth, layer in enumerate(list[Any](self.layers)):
            graph = adjacency if isinstance(adjacency, Adjacency) else adjacency[depth]
            last, within = depth == len(self.layers) - 1, None
            if self.has_attention:
                # The fused path activates what it gives itself.
                if not plain and not last and not layer.looks_both_ways(graph):
                    within = Activation.draw(self.drop, generator, x.device)
                h, shown = layer(h, graph, path, within)
                attention += shown
            else:
                h = layer(h, graph)
            assert isinstance(h, Tensor)
            if not last and within is None:
                h = relu_dropout(h, self.drop, generator, fused=not plain)
        assert isinstance(h, Tensor)
        return h, attention

    def by_blocks(
        self,
        x: Features,
        blocks: Callable[[], Iterable[Block]],
        path: AttentionPath = "auto",
        extend: Callable[[Tensor], Tensor] = lambda rows: rows,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields nodes ``[b]`` with their ``h`` ``[b, out_dim]``, block by block.

        Layer by layer: of all nodes no more is held than what a layer reads and what the next one
        will. Without gradient or dropout. ``blocks`` goes through all nodes once, in parts with
        what one layer reads for them. Where others hold some of what a layer reads, ``extend`` puts
        it below.
        """
        layers: list[Any] = [*self.layers, None]
        rows, options = extend(layers[0].lift(x)), (path,) if self.has_attention else ()
        for layer, following in pairwise(layers):
            lifted = rows[:0]
            for nodes, sources, graph in blocks():
                h = layer.gather(rows.index_select(0, sources), graph, *options)
                if following is None:
                    yield nodes, h
                    continue
                new = following.lift(h.relu_())
                if not lifted.numel():
                    lifted = new.new_empty(x.shape[0], new.shape[1])
                lifted[nodes] = new
            if following is not None:
                rows = extend(lifted)


def takes_plain(path: AttentionPath, device: torch.device) -> bool:
    """Tells whether a layer on this device takes the plain path."""
    return path == "plain" or (path == "auto" and not has_kernels(device))


def glorot_bound(fan_in: int, fan_out: int) -> float:
    """Returns the end of the interval that Glorot's uniform initialisation draws from."""
    return float((6 / (fan_in + fan_out)) ** 0.5)


def glorot(generator: torch.Generator, *shape: int) -> nn.Parameter:
    """Draws weights, Glorot uniform over the last two dimensions."""
    bound = glorot_bound(*shape[-2:])
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


class GATLayer(nn.Module):
    r"""One attention layer, heads concatenated (Veličković et al., ICLR 2018).

    .. math::
        h_i = \sum_{j \in \mathcal{N}(i) \cup \{i\}} \alpha_{ij} W x_j + b, \quad
        \alpha_{ij} = \mathrm{softmax}_j\,
        \mathrm{LeakyReLU}(a_{dst}^\top W x_i + a_{src}^\top W x_j)

    Each head, ``channels`` wide, has its own ``W``, ``a`` and softmax. Where edges have directions,
    the first half of the heads attends to the nodes that lead to a node, and the rest to those
    that it leads to (decision 0041).
    """

    def __init__(self, in_dim: int, channels: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads, self.channels = heads, channels
        self.weight = glorot(generator, in_dim, heads * channels)
        self.att_src = glorot(generator, 1, heads, channels)
        self.att_dst = glorot(generator, 1, heads, channels)
        self.bias = nn.Parameter(torch.zeros(heads * channels))

    def looks_both_ways(self, adjacency: Adjacency) -> bool:
        """Tells whether its heads attend to different neighbours; a single head cannot."""
        return self.heads > 1 and adjacency.ways is not None

    def forward(
        self,
        x: Features,
        adjacency: Adjacency,
        path: AttentionPath = "auto",
        activation: Activation | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the output ``[n, heads * channels]`` and the attention ``[E + n, heads]``.

        The attention is known on the plain path alone, of both directions where there are two;
        only the fused one can apply an activation to the output.
        """
        if self.looks_both_ways(adjacency):
            return self._attend(self.lift(x), adjacency, path)
        graph, weights = adjacency.with_self_loops, self._weights(self.weight)
        if takes_plain(path, x.device):
            assert activation is None
            h, alpha = attend_plain(x, weights, graph)
            return h, [alpha]
        return attend(x, weights, graph, activation), []

    def lift(self, x: Features) -> Tensor:
        """Projects rows for :meth:`gather`, ``[n, heads * channels]``."""
        return project(x, self.weight)

    def gather(self, rows: Tensor, adjacency: Adjacency, path: AttentionPath) -> Tensor:
        """Returns the output for projected rows."""
        return self._attend(rows, adjacency, path)[0]

    def _attend(
        self, rows: Tensor, adjacency: Adjacency, path: AttentionPath
    ) -> tuple[Tensor, list[Tensor]]:
        """Lets heads attend to projected rows, those of each direction to its neighbours."""
        both = self.looks_both_ways(adjacency) and adjacency.ways
        graphs, cuts = both or (adjacency.with_self_loops,), [self.heads // 2] if both else []
        parts = zip(*(part.tensor_split(cuts) for part in self._weights(None)[1:]), strict=True)
        blocks = rows.tensor_split([cut * self.channels for cut in cuts], dim=1)
        found, shown = [], []
        for graph, block, part in zip(graphs, blocks, parts, strict=True):
            weights = LayerWeights(None, *part)
            if takes_plain(path, rows.device):
                h, alpha = attend_plain(block, weights, graph)
                shown.append(alpha)
            else:
                h = attend(block.contiguous(), weights, graph)
            found.append(h)
        return torch.cat(found, dim=1) if both else found[0], shown

    def _weights(self, weight: Tensor | None) -> LayerWeights:
        bias = self.bias.view(self.heads, self.channels)
        return LayerWeights(weight, self.att_src[0], self.att_dst[0], bias)


class GAT(Encoder):
    """Attention layers; theirs is the only width that surgery can change."""

    has_attention = True
    layer_class = GATLayer


def propagate(graph: Adjacency, weights: Tensor, rows: Tensor) -> Tensor:
    """Adds up the sources' rows ``[n, d]`` at every node, each times its edge's weight ``[E]``.

    The graph need not be symmetric; the gradient propagates backwards.
    """
    weights = weights.to(rows.dtype)
    matrix = SparseMatrix(graph.pattern, weights)
    if not torch.is_grad_enabled():
        return matrix.times(rows)
    return linear(rows, matrix.times, SparseMatrix(graph.transpose, weights[graph.by_source]).times)


class GCNLayer(nn.Module):
    """One convolution: :math:`H = D^{-1/2} (A + I) D^{-1/2} X W + b` (Kipf and Welling, 2017)."""

    def __init__(self, in_dim: int, out_dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = glorot(generator, in_dim, out_dim)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(self, x: Features, adjacency: Adjacency) -> Tensor:
        """Returns the output ``[n, out_dim]``."""
        return self.gather(self.lift(x), adjacency)

    def lift(self, x: Features) -> Tensor:
        """Projects rows for :meth:`gather`, ``[n, out_dim]``."""
        return project(x, self.weight)

    def gather(self, rows: Tensor, adjacency: Adjacency) -> Tensor:
        """Returns the output for projected rows."""
        looped, weights = adjacency.with_self_loops, adjacency.symmetric_weights
        return propagate(looped, weights, rows) + self.bias


class GCN(Encoder):
    """Graph convolutions."""

    reads_degrees = True
    layer_class = GCNLayer


class SAGELayer(nn.Module):
    r"""One layer: :math:`h_i = W_{self} x_i + W \, \mathrm{mean}_{j \in N(i)} x_j + b`.

    GraphSAGE with the mean of all neighbours (Hamilton et al., NeurIPS 2017). A node without
    neighbours has a mean of zero. Outputs are not normalised.
    """

    def __init__(self, in_dim: int, out_dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = glorot(generator, in_dim, out_dim)  # of the neighbours
        self.weight_self = glorot(generator, in_dim, out_dim)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(self, x: Features, adjacency: Adjacency) -> Tensor:
        """Returns the output ``[n, out_dim]``."""
        return self.gather(self.lift(x), adjacency)

    def lift(self, x: Features) -> Tensor:
        """Projects rows as neighbours and as themselves, ``[n, 2 * out_dim]``."""
        return torch.cat([project(x, self.weight), project(x, self.weight_self)], dim=1)

    def gather(self, rows: Tensor, adjacency: Adjacency) -> Tensor:
        """Returns the output for projected rows."""
        others, itself = rows.chunk(2, dim=1)
        heard = propagate(adjacency, adjacency.mean_weights, others.contiguous())
        if adjacency.own is not None:
            itself = itself.index_select(0, adjacency.own)
        return itself + heard + self.bias


class SAGE(Encoder):
    """Layers of mean aggregation."""

    layer_class = SAGELayer
