"""Attention sums: every node adds up its neighbours' rows, weighted edge by edge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from evergraph.nn.ops import Ends, call, collect, spread
from evergraph.stream.adjacency import Adjacency


def attend(alpha: Tensor, wx: Tensor, graph: Adjacency) -> Tensor:
    r"""Computes :math:`\sum_j \alpha_{ij} W x_j` without a row per edge and channel.

    Memory grows with ``E × H + n × H × C``. It can be differentiated once; asked for a second
    derivative it raises. :func:`attend_plain` is the same by definition.

    Args:
        alpha: Attention of every edge, ``[E, H]``.
        wx: Projected rows, ``[n, H, C]``.
        graph: The graph the edges belong to.
    """
    return call(_Attend, alpha, wx, graph)


def attend_plain(alpha: Tensor, wx: Tensor, graph: Adjacency) -> Tensor:
    """Does what :func:`attend` does edge by edge; differentiable any number of times."""
    heads, channels = wx.shape[1:]
    messages = spread(wx.flatten(1), Ends.sources(graph)).view(-1, heads, channels)
    summed = collect((messages * alpha[:, :, None]).flatten(1), Ends.targets(graph))
    return summed.view(-1, heads, channels)


class _Attend(torch.autograd.Function):
    """Weighted sums over neighbours without a row per edge, both ways."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, wx: Tensor, graph: Adjacency) -> Tensor:
        ctx.save_for_backward(alpha, wx)
        ctx.graph = graph
        if wx.is_cuda:
            out: Tensor = _triton().weighted_sums(graph.chunks, graph.csr[1], alpha, wx)
            return out
        return _sums_by_head(graph.csr, alpha, _by_head(wx))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        if torch.is_grad_enabled():  # only while the gradient itself is being recorded
            raise RuntimeError("attend cannot be differentiated twice: take the plain path")
        alpha, wx = ctx.saved_tensors
        graph: Adjacency = ctx.graph
        by_source = alpha.index_select(0, graph.by_source)
        if wx.is_cuda:
            kernels = _triton()
            columns = graph.csr_by_source[1]
            grad_wx = kernels.weighted_sums(graph.source_chunks, columns, by_source, grads[0])
            return kernels.edge_products(graph, grads[0], wx), grad_wx, None
        grad = _by_head(grads[0])
        grad_wx = _sums_by_head(graph.csr_by_source, by_source, grad)
        return _products_by_head(graph, grad, _by_head(wx)), grad_wx, None


def _triton() -> Any:
    """Returns the CUDA kernels; Triton comes with PyTorch's CUDA builds and not without."""
    from evergraph.nn.kernels import triton_attend  # noqa: PLC0415

    return triton_attend


def _by_head(rows: Tensor) -> Tensor:
    """Puts heads first: ``[n, H, C]`` → ``[H, n, C]``."""
    return rows.transpose(0, 1).contiguous()


def _sums_by_head(pattern: tuple[Tensor, Tensor], weights: Tensor, rows: Tensor) -> Tensor:
    """Multiplies ``[n, n]`` sparse by ``[n, C]`` dense, head by head.

    ``weights`` are ``[E, H]``, ``rows`` ``[H, n, C]``; returns ``[n, H, C]``.
    """
    n = rows.shape[1]
    by_head = zip(weights.t().contiguous(), rows, strict=True)
    products = [torch.sparse_csr_tensor(*pattern, a, (n, n)) @ x for a, x in by_head]
    return torch.stack(products, dim=1)


def _products_by_head(graph: Adjacency, left: Tensor, right: Tensor) -> Tensor:
    """Computes ``left_i · right_j`` for every edge j → i and head; both ``[H, n, C]``."""
    n = graph.num_nodes
    pattern = torch.sparse_csr_tensor(*graph.csr, left.new_zeros(graph.num_edges), (n, n))
    by_head = zip(left, right, strict=True)
    products = [torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0) for a, b in by_head]
    return torch.stack([product.values() for product in products], dim=1)
