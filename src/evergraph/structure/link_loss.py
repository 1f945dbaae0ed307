"""The link loss: how well cosines tell edges from non-edges (Eq. 5)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.nn.kernels import has_kernels, kernels
from evergraph.nn.ops import Ends, call, spread
from evergraph.stream.pattern import Pattern

SCORE_MARGIN = 1e-6
#: A row shorter than this is not made longer.
EPSILON = 1e-12
#: The column of a pair that does not count.
LEFT_OUT = -1


def link_scores(z_i: Tensor, z_j: Tensor) -> Tensor:
    """Computes ``S = (cos(z_i, z_j) + 1) / 2`` of rows, kept inside (0, 1) (section 4.2.1)."""
    return _unit_scores(functional.normalize(z_i, dim=-1), functional.normalize(z_j, dim=-1))


def _unit_scores(u_i: Tensor, u_j: Tensor) -> Tensor:
    cosine = (u_i * u_j).sum(dim=-1)
    return ((cosine + 1) / 2).clamp(SCORE_MARGIN, 1 - SCORE_MARGIN)


def pair_pattern(pairs: Tensor, num_nodes: int, valid: Tensor | None = None) -> Pattern:
    """Lists undirected ``pairs`` ``[2, m]`` from both ends; invalid ones are left out.

    Never waits for the device: a pair that is left out keeps its place.
    """
    other = pairs.flip(0).int()
    if valid is not None:
        other = torch.where(valid, other, LEFT_OUT)
    owner, order = torch.sort(pairs.flatten().int(), stable=True)
    bounds = torch.arange(num_nodes + 1, dtype=torch.int32, device=pairs.device)
    return Pattern(torch.searchsorted(owner, bounds), other.flatten()[order])


def link_loss(z: Tensor, edges: Pattern, negatives: Pattern, plain: bool = False) -> Tensor:
    """Averages binary cross-entropy over edges and non-edges (Eq. 5; mean, decision 0008).

    No row per pair is stored unless ``plain``, which can be differentiated twice.

    Args:
        z: Embeddings of all nodes, ``[n, d]``.
        edges: Every edge, from both ends.
        negatives: Every non-edge, from both ends; see :func:`pair_pattern`.
        plain: Take PyTorch's operations instead of compiled kernels.
    """
    count = edges.columns.numel() + (negatives.columns != LEFT_OUT).sum()
    count = count.clamp(min=1)  # both count every pair twice
    if not plain and has_kernels(z.device):
        return call(_LinkLoss, z, edges, negatives, count)
    unit = functional.normalize(z, dim=-1)  # once per node, not once per edge
    return (_plain_terms(unit, edges, True) + _plain_terms(unit, negatives, False)) / count


def _plain_terms(unit: Tensor, pairs: Pattern, positive: bool) -> Tensor:
    """Sums the cross-entropy of pairs that are (not) edges."""
    n, count = pairs.num_rows, pairs.columns.numel()
    entries = torch.arange(count, device=unit.device)
    owner = torch.searchsorted(pairs.indptr, entries, right=True) - 1
    there = pairs.columns != LEFT_OUT
    other = torch.where(there, pairs.columns.long(), owner)
    scores = _unit_scores(
        spread(unit, Ends(owner, None, pairs.indptr)), spread(unit, Ends.of(other, n))
    )
    terms = torch.log(scores) if positive else torch.log1p(-scores)
    return -(terms * there).sum()


class _LinkLoss(torch.autograd.Function):
    """The same in one pass over the pairs, which gives the gradient as well."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, edges: Pattern, negatives: Pattern, count: Tensor) -> Tensor:
        terms = kernels("pairs", z.device).pair_terms
        length = z.norm(dim=-1, keepdim=True)
        unit = z / length.clamp(min=EPSILON)
        loss, grad = terms(edges, unit, True, SCORE_MARGIN)
        more, more_grad = terms(negatives, unit, False, SCORE_MARGIN)
        ctx.save_for_backward(unit, length, count, grad.add_(more_grad))
        total: Tensor = (loss.sum() + more.sum()) / count
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # only while the gradient itself is being recorded
            raise RuntimeError("link_loss cannot be differentiated twice: take the plain path")
        unit, length, count, grad = ctx.saved_tensors
        # What would change a row's length changes nothing.
        along = torch.bmm(unit[:, None], grad[:, :, None])[:, 0]
        along = along.masked_fill(length <= EPSILON, 0)
        scale = grads[0] / (count * length.clamp(min=EPSILON))
        return torch.addcmul(grad, unit, along, value=-1).mul_(scale), None, None, None
