"""Attention: every node adds up its neighbours' rows, weighted by a softmax over its edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.kernels import ops
from evergraph.stream.adjacency import Adjacency, Chunks
from evergraph.stream.features import Features

SLOPE = 0.2
AttentionPath = Literal["auto", "plain", "fused"]
#: Rows of a layer above this many bytes are let go as soon as the backward pass can do without
#: them: projected rows are computed anew, and so is the rest if a second pass comes.
KEPT_BYTES = 64_000_000


@dataclass(frozen=True)
class Ends:
    """One end of every edge, with the order that groups edges by that end."""

    node: Tensor  # [E]
    order: Tensor | None  # [E] edge positions grouped by node; None when they already are
    indptr: Tensor  # [n + 1]
    chunks: Chunks | None = None  # None sums in one go

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
        chunks = adjacency.pattern.chunks if adjacency.dst.is_cuda else None
        return cls(adjacency.dst, None, adjacency.indptr, chunks)

    @classmethod
    def sources(cls, adjacency: Adjacency) -> Ends:
        """The sources of the edges."""
        chunks = adjacency.transpose.chunks if adjacency.src.is_cuda else None
        return cls(adjacency.src, adjacency.by_source, adjacency.source_indptr, chunks)


def grouped(rows: Tensor, ends: Ends, reduce: Literal["sum", "max"]) -> Tensor:
    """Reduces edge rows at their ends group by group, in a fixed order, hubs in two rounds.

    A node without edges gets 0 for a sum and −∞ for a maximum.
    """
    initial = 0.0 if reduce == "sum" else -torch.inf
    rows = rows if ends.order is None else rows.index_select(0, ends.order)
    chunks = ends.chunks
    for pointer in (ends.indptr,) if chunks is None else (chunks.bounds, chunks.rows):
        rows = torch.segment_reduce(
            rows, reduce, offsets=pointer, axis=0, initial=initial, unsafe=True
        )
    return rows


def spread(rows: Tensor, ends: Ends) -> Tensor:
    """Gives each edge the row of its end: ``[n, ...]`` → ``[E, ...]``."""
    return ops.linear(rows, partial(_to_edges, ends), partial(_to_nodes, ends))


def collect(rows: Tensor, ends: Ends) -> Tensor:
    """Sums edge rows at their ends: ``[E, ...]`` → ``[n, ...]``."""
    return ops.linear(rows, partial(_to_nodes, ends), partial(_to_edges, ends))


def _to_edges(ends: Ends, rows: Tensor) -> Tensor:
    return rows.index_select(0, ends.node)


def _to_nodes(ends: Ends, rows: Tensor) -> Tensor:
    if rows.is_cuda:
        # index_add_ would use atomics there, in an order that changes from run to run.
        return grouped(rows, ends, "sum")
    out = rows.new_zeros(ends.indptr.numel() - 1, *rows.shape[1:])
    return out.index_add_(0, ends.node, rows)


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


class LayerWeights(NamedTuple):
    """The parameters of one attention layer."""

    weight: Tensor | None  # [d, H * C]; None: rows come projected
    att_src: Tensor  # [H, C] scores a node as a neighbour
    att_dst: Tensor  # [H, C] scores a node as the one that looks
    bias: Tensor  # [H, C]


def attend(
    x: Features, weights: LayerWeights, graph: Adjacency, activation: ops.Activation | None = None
) -> Tensor:
    r"""Computes :math:`h_i = \sum_j \alpha_{ij} W x_j + b` with nothing of edge size stored.

    :math:`\alpha_{ij}` is the softmax over ``j`` of the leaky ReLU of
    ``att_src · W x_j + att_dst · W x_i``. The backward pass computes it anew (decision 0012).
    It can be differentiated once; asked for a second derivative it raises.
    :func:`attend_plain` is the same by definition. ``x`` holds the rows of all sources,
    ``[s, d]``; what is returned, after the activation, those of the nodes, ``[n, H * C]``.
    """
    return ops.call(_Attend, x, *weights, graph, activation).flatten(1)


def attend_plain(x: Features, weights: LayerWeights, graph: Adjacency) -> tuple[Tensor, Tensor]:
    """Does what :func:`attend` does edge by edge, and returns the attention ``[E, H]`` too.

    Differentiable any number of times; memory grows with ``E × H × C``.
    """
    wx = _project(x, weights)
    sources, targets = Ends.sources(graph), Ends.targets(graph)
    from_source, at_target = ((wx * att).sum(dim=-1) for att in (weights.att_src, weights.att_dst))
    if graph.own is not None:
        at_target = at_target.index_select(0, graph.own)
    scores = spread(from_source, sources) + spread(at_target, targets)
    alpha = edge_softmax(functional.leaky_relu(scores, SLOPE), targets)
    messages = spread(wx.flatten(1), sources).view(-1, *weights.bias.shape)
    summed = collect((messages * alpha[:, :, None]).flatten(1), targets)
    return summed + weights.bias.flatten(), alpha


class _Attend(torch.autograd.Function):
    """The fused layer, forward and backward; shapes ``[n, H, C]``."""

    @staticmethod
    def forward(ctx: Any, x: Features, *arguments: Any) -> Tensor:
        *tensors, ctx.graph, ctx.activation = arguments
        weights = LayerWeights(*tensors)
        wx = _project(x, weights)
        out, ctx.positive, share, scores = _forward(wx, weights, ctx.graph, ctx.activation)
        ctx.sparse, dense = (None, x) if isinstance(x, Tensor) else (x, None)
        ctx.save_for_backward(dense, *weights, share, *scores)
        ctx.lean = wx.numel() * wx.element_size() > KEPT_BYTES
        ctx.wx = None if ctx.lean else wx
        ctx.shown = out.detach()
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ops.check_first_derivative()
        dense, weight, att_src, att_dst, bias, share, *scores = ctx.saved_tensors
        weights = LayerWeights(weight, att_src, att_dst, bias)
        x = dense if ctx.sparse is None else ctx.sparse
        passes, graph = ops.kernels(share.device), ctx.graph
        if ctx.shown is None:  # let go by an earlier backward pass
            again = _forward(_project(x, weights), weights, graph, ctx.activation)
            ctx.shown, ctx.positive, *_ = again
        grad, undo = grads[0], 1.0
        if ctx.activation is not None:
            grad, undo = ctx.activation.backward(grad, ctx.shown), 1 / ctx.activation.scale
        delta, grad_target, grad_bias = passes.attend_backward_targets(
            graph.pattern, grad, (ctx.shown, undo), (ctx.positive, share, bias), SLOPE
        )
        if ctx.lean:
            ctx.shown = ctx.positive = None
        wx = _project(x, weights) if ctx.wx is None else ctx.wx
        if graph.own is not None:  # nodes are some of the sources
            elsewhere = grad_target.new_zeros(wx.shape[:2])
            grad_target = elsewhere.index_copy_(0, graph.own, grad_target)
        grad_wx, grad_src, grad_dst = passes.attend_backward_sources(
            graph.transpose, grad, (wx, att_src, att_dst), (*scores, delta, grad_target), SLOPE
        )
        del wx, grad
        flat = grad_wx.flatten(1)
        if weight is None:
            return flat, None, grad_src, grad_dst, grad_bias, None, None
        grad_x = flat @ weight.t() if ctx.needs_input_grad[0] else None
        grad_weight = ops.weight_gradient(x, flat)
        return grad_x, grad_weight, grad_src, grad_dst, grad_bias, None, None


def _project(x: Features, weights: LayerWeights) -> Tensor:
    """Computes the rows that are attended to, ``[s, H, C]``."""
    rows = x if weights.weight is None else ops.project(x, weights.weight)
    assert isinstance(rows, Tensor)
    return rows.view(-1, *weights.bias.shape)


def _forward(
    wx: Tensor, weights: LayerWeights, graph: Adjacency, activation: ops.Activation | None
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
    """Returns the output, its part from scores above zero, their share, and the scores."""
    out, positive, share, scores = ops.kernels(wx.device).attend_forward(
        graph.pattern, wx, weights[1:], SLOPE, graph.own
    )
    if activation is not None:
        out = activation.drop(out, rectify=True, in_place=True)
    return out, positive, share, scores
