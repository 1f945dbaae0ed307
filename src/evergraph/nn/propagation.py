"""Propagation: every node adds up its neighbours' rows under weights that the graph fixes.

What :mod:`evergraph.nn.gcn` and :mod:`evergraph.nn.sage` are made of. Nothing of the size of
edges × channels is ever stored, and all can be differentiated twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Operator:
    """A weighted graph as a matrix: row ``i`` reads its sources; and its transpose."""

    matrix: SparseMatrix
    transpose: SparseMatrix

    @classmethod
    def of(cls, graph: Adjacency, values: Tensor) -> Operator:
        """Gives every edge its weight, ``[E]``; the graph need not be symmetric."""
        return cls(
            SparseMatrix(graph.pattern, values),
            SparseMatrix(graph.transpose, values[graph.by_source]),
        )


def propagate(operator: Operator, rows: Tensor) -> Tensor:
    """Multiplies rows ``[n, d]`` by the operator; the gradient propagates backwards."""
    return multiply(operator.matrix, operator.transpose, rows)


def symmetric_operator(graph: Adjacency, dtype: torch.dtype = torch.float32) -> Operator:
    r"""Returns :math:`D^{-1/2} (A + I) D^{-1/2}` with :math:`D` the degrees of :math:`A + I`.

    A sampled part that knows the degrees of the graph it comes from takes those, and lets
    the neighbours drawn stand for the ones that were not: the sum is then right on average,
    and exact when all were drawn. Without them, degrees are edges that arrive within the part.
    """
    return _once(graph, f"symmetric operator {dtype}", lambda: _symmetric(graph, dtype))


def mean_operator(graph: Adjacency, dtype: torch.dtype = torch.float32) -> Operator:
    """Returns the average over each node's neighbours; without any it is zero."""
    return _once(graph, f"mean operator {dtype}", lambda: _mean(graph, dtype))


def _symmetric(graph: Adjacency, dtype: torch.dtype) -> Operator:
    looped, drawn = graph.with_self_loops, graph.degree
    degree = drawn if graph.whole_degree is None else graph.whole_degree
    root = (degree.double() + 1).rsqrt()
    itself = looped.dst if graph.own is None else graph.own[looped.dst]
    values = root[itself] * root[looped.src]
    if graph.whole_degree is not None:
        stands_for = degree[itself].double() / drawn[looped.dst].clamp(min=1)
        values = torch.where(looped.src == itself, values, values * stands_for)
    return Operator.of(looped, values.to(dtype))


def _mean(graph: Adjacency, dtype: torch.dtype) -> Operator:
    return Operator.of(graph, graph.degree.double().reciprocal()[graph.dst].to(dtype))


def _once(graph: Adjacency, name: str, make: Callable[[], Operator]) -> Operator:
    """Makes an operator when it is first asked for and keeps it with the graph."""
    kept = vars(graph)  # where its cached properties are as well
    if name not in kept:
        kept[name] = make()
    operator: Operator = kept[name]
    return operator


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
