"""Attention: every node adds up its neighbours' rows, weighted by a softmax over its edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.nn.kernels import kernels
from evergraph.nn.ops import Activation, Ends, call, collect, edge_softmax, spread
from evergraph.nn.products import input_gradient, project, weight_gradient
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features

SLOPE = 0.2
AttentionPath = Literal["auto", "plain", "fused"]
#: Projected rows above this many bytes are computed anew in the backward pass, not kept.
KEPT_BYTES = 64_000_000


@dataclass(frozen=True)
class LayerWeights:
    """The parameters of one attention layer."""

    weight: Tensor  # [d, H * C]
    att_src: Tensor  # [H, C] scores a node as a neighbour
    att_dst: Tensor  # [H, C] scores a node as the one that looks
    bias: Tensor  # [H, C]


def attend(
    x: Features, weights: LayerWeights, graph: Adjacency, activation: Activation | None = None
) -> Tensor:
    r"""Computes :math:`h_i = \sum_j \alpha_{ij} W x_j + b` with nothing of edge size stored.

    :math:`\alpha_{ij}` is the softmax over ``j`` of the leaky ReLU of
    ``att_src · W x_j + att_dst · W x_i``. The backward pass computes it anew (decision 0012).
    It can be differentiated once; asked for a second derivative it raises.
    :func:`attend_plain` is the same by definition.

    Args:
        x: Rows of all nodes, ``[n, d]``.
        weights: The layer's parameters.
        graph: The graph.
        activation: ReLU and dropout, applied to ``h``.

    Returns:
        ``[n, H * C]``.
    """
    tensors = (weights.weight, weights.att_src, weights.att_dst, weights.bias)
    dense = x if isinstance(x, Tensor) else None
    return call(_Attend, dense, *tensors, x, graph, activation).flatten(1)


def attend_plain(x: Features, weights: LayerWeights, graph: Adjacency) -> tuple[Tensor, Tensor]:
    """Does what :func:`attend` does edge by edge, and returns the attention ``[E, H]`` too.

    Differentiable any number of times; memory grows with ``E × H × C``.
    """
    heads, channels = weights.bias.shape
    wx = project(x, weights.weight).view(-1, heads, channels)
    sources, targets = Ends.sources(graph), Ends.targets(graph)
    from_source, at_target = ((wx * att).sum(dim=-1) for att in (weights.att_src, weights.att_dst))
    scores = spread(from_source, sources) + spread(at_target, targets)
    alpha = edge_softmax(functional.leaky_relu(scores, SLOPE), targets)
    messages = spread(wx.flatten(1), sources).view(-1, heads, channels)
    summed = collect((messages * alpha[:, :, None]).flatten(1), targets)
    return summed + weights.bias.flatten(), alpha


class _Attend(torch.autograd.Function):
    """The fused layer, forward and backward; shapes ``[n, H, C]``."""

    @staticmethod
    def forward(
        ctx: Any,
        dense: Tensor | None,
        weight: Tensor,
        att_src: Tensor,
        att_dst: Tensor,
        bias: Tensor,
        x: Features,
        graph: Adjacency,
        activation: Activation | None,
    ) -> Tensor:
        wx = project(x, weight).view(-1, *bias.shape)
        out, saved = kernels("attend", wx.device).forward(
            graph.pattern, wx, att_src, att_dst, bias, SLOPE
        )
        if activation is not None:
            out = activation.apply_(out)
        kept = wx if wx.numel() * wx.element_size() <= KEPT_BYTES else None
        ctx.save_for_backward(dense, weight, att_src, att_dst, bias, out, kept, *saved)
        ctx.sparse = None if isinstance(x, Tensor) else x
        ctx.graph, ctx.activation = graph, activation
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # only while the gradient itself is being recorded
            raise RuntimeError("attend cannot be differentiated twice: take the plain path")
        dense, weight, att_src, att_dst, bias, out, wx, *saved = ctx.saved_tensors
        x = dense if ctx.sparse is None else ctx.sparse
        if wx is None:
            wx = project(x, weight).view(-1, *bias.shape)
        grad, undo = grads[0], 1.0
        if ctx.activation is not None:
            grad, undo = ctx.activation.backward(grad, out), 1 / ctx.activation.scale
        inputs = (wx, att_src, att_dst, bias)
        grad_wx, *others = kernels("attend", wx.device).backward(
            ctx.graph.transpose, grad, (out, undo), inputs, saved, SLOPE
        )
        del wx, grad, inputs, saved
        flat = grad_wx.flatten(1)
        grad_x = input_gradient(flat, weight) if ctx.needs_input_grad[0] else None
        return grad_x, weight_gradient(x, flat), *others, None, None, None
