"""Attention: every node adds up its neighbours' rows, weighted by a softmax over its edges."""

from __future__ import annotations

import importlib.util
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.nn.ops import Ends, call, collect, edge_softmax, spread
from evergraph.stream.adjacency import Adjacency

SLOPE = 0.2
AttentionPath = Literal["auto", "plain", "fused"]


def attend(wx: Tensor, att_src: Tensor, att_dst: Tensor, bias: Tensor, graph: Adjacency) -> Tensor:
    r"""Computes :math:`\sum_j \alpha_{ij} w_j + b` with nothing of edge size stored.

    :math:`\alpha_{ij}` is the softmax over ``j`` of the leaky ReLU of
    ``att_src · wx[j] + att_dst · wx[i]``. The backward pass computes it anew (decision 0012).
    Memory grows with ``n × H × C``. It can be differentiated once; asked for a second
    derivative it raises. :func:`attend_plain` is the same by definition.

    Args:
        wx: Projected rows, ``[n, H, C]``; on CUDA float32 or bfloat16.
        att_src: Scores a node as a neighbour, ``[H, C]``.
        att_dst: Scores a node as the one that looks, ``[H, C]``.
        bias: Added to every row, ``[H, C]``.
        graph: The graph.
    """
    return call(_Attend, wx, att_src, att_dst, bias, graph)


def attend_plain(
    wx: Tensor, att_src: Tensor, att_dst: Tensor, bias: Tensor, graph: Adjacency
) -> tuple[Tensor, Tensor]:
    """Does what :func:`attend` does edge by edge, and returns the attention ``[E, H]`` too.

    Differentiable any number of times; memory grows with ``E × H × C``.
    """
    heads, channels = wx.shape[1:]
    sources, targets = Ends.sources(graph), Ends.targets(graph)
    from_source, at_target = ((wx * att).sum(dim=-1) for att in (att_src, att_dst))
    scores = spread(from_source, sources) + spread(at_target, targets)
    alpha = edge_softmax(functional.leaky_relu(scores, SLOPE), targets)
    messages = spread(wx.flatten(1), sources).view(-1, heads, channels)
    summed = collect((messages * alpha[:, :, None]).flatten(1), targets)
    return summed.view(-1, heads, channels) + bias, alpha


def has_kernels(device: torch.device) -> bool:
    """Tells whether there are compiled kernels; Triton comes with PyTorch for CUDA."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return device.type == "cpu"


class _Attend(torch.autograd.Function):
    """The fused layer, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, wx: Tensor, att_src: Tensor, att_dst: Tensor, bias: Tensor, graph: Adjacency
    ) -> Tensor:
        kernels = _kernels(wx.device)
        inputs = wx, att_src, att_dst, bias
        out, saved = kernels.forward(graph.pattern, *inputs, SLOPE)
        ctx.save_for_backward(*inputs, *saved)
        ctx.graph = graph
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # only while the gradient itself is being recorded
            raise RuntimeError("attend cannot be differentiated twice: take the plain path")
        inputs, saved = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        kernels = _kernels(grads[0].device)
        return *kernels.backward(ctx.graph.transpose, grads[0], inputs, saved, SLOPE), None


def _kernels(device: torch.device) -> Any:
    """Returns the compiled passes of a device, imported when first needed."""
    if device.type == "cuda":
        from evergraph.nn.kernels import triton_attend  # noqa: PLC0415

        return triton_attend
    from evergraph.nn.kernels import numba_attend  # noqa: PLC0415

    return numba_attend
