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


def attend(wx: Tensor, from_source: Tensor, at_target: Tensor, graph: Adjacency) -> Tensor:
    r"""Computes :math:`\sum_j \alpha_{ij} W x_j` with nothing of edge size stored.

    :math:`\alpha_{ij}` is the softmax over ``j`` of the leaky ReLU of
    ``from_source[j] + at_target[i]``. The backward pass computes it anew; see decision 0012.
    Memory grows with ``n × H × C``. It can be differentiated once; asked for a second
    derivative it raises. :func:`attend_plain` is the same by definition.

    Args:
        wx: Projected rows, ``[n, H, C]``; float32, on CUDA also bfloat16.
        from_source: Score of every node as a neighbour, ``[n, H]``.
        at_target: Score of every node as the one that looks, ``[n, H]``.
        graph: The graph.
    """
    return call(_Attend, wx, from_source, at_target, graph)


def attend_plain(
    wx: Tensor, from_source: Tensor, at_target: Tensor, graph: Adjacency
) -> tuple[Tensor, Tensor]:
    """Does what :func:`attend` does edge by edge, and returns the attention ``[E, H]`` too.

    Differentiable any number of times; memory grows with ``E × H × C``.
    """
    heads, channels = wx.shape[1:]
    sources, targets = Ends.sources(graph), Ends.targets(graph)
    scores = spread(from_source, sources) + spread(at_target, targets)
    alpha = edge_softmax(functional.leaky_relu(scores, SLOPE), targets)
    messages = spread(wx.flatten(1), sources).view(-1, heads, channels)
    summed = collect((messages * alpha[:, :, None]).flatten(1), targets)
    return summed.view(-1, heads, channels), alpha


def has_kernels(device: torch.device) -> bool:
    """Tells whether :func:`attend` can run on a device; Triton comes with PyTorch for CUDA."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return device.type == "cpu"


class _Attend(torch.autograd.Function):
    """The fused sums, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, wx: Tensor, from_source: Tensor, at_target: Tensor, graph: Adjacency
    ) -> Tensor:
        kernels = _kernels(wx.device)
        out, positive, lse, share = kernels.forward(
            graph.pattern, wx, from_source, at_target, SLOPE
        )
        ctx.save_for_backward(wx, from_source, at_target, out, positive, lse, share)
        ctx.graph = graph
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        if torch.is_grad_enabled():  # only while the gradient itself is being recorded
            raise RuntimeError("attend cannot be differentiated twice: take the plain path")
        wx, from_source, at_target, out, positive, lse, share = ctx.saved_tensors
        kernels, graph = _kernels(wx.device), ctx.graph
        delta, grad_target = kernels.backward_targets(
            graph.pattern, grads[0], out, positive, share, SLOPE
        )
        grad_wx, grad_source = kernels.backward_sources(
            graph.transpose, grads[0], wx, from_source, at_target, lse, delta, SLOPE
        )
        return grad_wx, grad_source, grad_target, None


def _kernels(device: torch.device) -> Any:
    """Returns the compiled passes of a device, imported when first needed."""
    if device.type == "cuda":
        from evergraph.nn.kernels import triton_attend  # noqa: PLC0415

        return triton_attend
    from evergraph.nn.kernels import numba_attend  # noqa: PLC0415

    return numba_attend
