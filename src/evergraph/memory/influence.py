r"""Influence of a node on the head (IM of ER-GNN), in the sense of Koh and Liang, 2017.

:math:`I(v) = -H^{-1} \nabla_\theta \ell(v)` with :math:`H` the mean Hessian of the
cross-entropy over the task's training nodes, plus 0.01 on its diagonal. Our approximation:
:math:`\theta` is the head alone, where all is explicit. For :math:`a` the ReLU of ``h`` with
a 1 appended and :math:`p` the softmax of the logits, a node's Hessian is
:math:`(\mathrm{diag}(p) - pp^\top) \otimes aa^\top` and its gradient :math:`(p - y) \otimes a`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.kernels.ops import BLOCK_ENTRIES

DAMPING = 0.01
#: Parameters of the head up to which the whole Hessian is made: 1 GB in double precision.
DIRECT_LIMIT = 11_000
#: Residual, relative to the gradient, at which conjugate gradients are done.
TOLERANCE = 1e-9


def influence_norms(h: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """Computes ‖I(v)‖₂ of every node, float64 ``[m]``, from ``h [m, d]`` and logits ``[m, k]``."""
    a = functional.pad(h.double().relu(), (0, 1), value=1.0)  # [m, d + 1]
    p = logits.double().softmax(dim=1)
    error = p - functional.one_hot(labels, p.shape[1])  # [m, k]
    num_parameters = p.shape[1] * a.shape[1]
    direct = num_parameters <= DIRECT_LIMIT
    factor = torch.linalg.cholesky(full_hessian(a, p) if direct else diagonal_blocks(a, p))
    # Conjugate gradients hold an [m, k] product per right-hand side besides the gradients.
    size = num_parameters if direct else max(num_parameters, p.numel())
    norms = []
    count = max(1, BLOCK_ENTRIES // size)
    for errors, inputs in zip(torch.split(error, count), torch.split(a, count), strict=True):
        gradients = errors[:, :, None] * inputs[:, None, :]  # [b, k, d + 1]
        if direct:
            influence = torch.cholesky_solve(gradients.flatten(1).T, factor)
            norms.append(influence.norm(dim=0))
        else:
            solved = conjugate_gradients(a, p, gradients, factor)
            norms.append(solved.flatten(1).norm(dim=1))
    return torch.cat(norms)


def full_hessian(a: Tensor, p: Tensor) -> Tensor:
    """Makes the damped mean Hessian, ``[k (d + 1), k (d + 1)]``, one pair of classes at a time."""
    (m, k), width = p.shape, a.shape[1]
    hessian = a.new_empty(k, width, k, width)
    for i in range(k):
        for j in range(i + 1):
            weight = p[:, i] * (float(i == j) - p[:, j]) / m
            hessian[i, :, j] = hessian[j, :, i] = a.T @ (weight[:, None] * a)
    hessian = hessian.view(k * width, k * width)
    hessian.diagonal().add_(DAMPING)
    return hessian


def diagonal_blocks(a: Tensor, p: Tensor) -> Tensor:
    """Makes the damped mean Hessian within each class, ``[k, d + 1, d + 1]``."""
    blocks = torch.stack([a.T @ ((q * (1 - q) / q.numel())[:, None] * a) for q in p.T])
    blocks.diagonal(dim1=1, dim2=2).add_(DAMPING)
    return blocks


def hessian_product(a: Tensor, p: Tensor, x: Tensor) -> Tensor:
    """Multiplies the damped mean Hessian with each ``x`` of ``[b, k, d + 1]``."""
    moved = (x @ a.T) * p.T  # [b, k, m]: p ∘ z with z what x does to the logits
    moved -= p.T * moved.sum(dim=1, keepdim=True)
    return moved @ a / a.shape[0] + DAMPING * x


def conjugate_gradients(a: Tensor, p: Tensor, b: Tensor, factor: Tensor) -> Tensor:
    """Solves for each right-hand side of ``[b, k, d + 1]`` without the whole Hessian.

    The diagonal blocks, given by their Cholesky factors, precondition: what couples classes
    is all that is left to iterate on.
    """

    def dot(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum(dim=(1, 2), keepdim=True)

    def precondition(x: Tensor) -> Tensor:
        return torch.cholesky_solve(x.permute(1, 2, 0), factor).permute(2, 0, 1)

    solution, residual = torch.zeros_like(b), b.clone()
    step = scaled = precondition(residual)
    fit, goal = dot(residual, scaled), TOLERANCE**2 * dot(b, b)
    for _ in range(b.shape[1] * b.shape[2]):
        if bool((dot(residual, residual) <= goal).all()):
            break
        image = hessian_product(a, p, step)
        # A system that is solved exactly has no direction left: 0 / 0 must stay 0.
        length = fit / dot(step, image).clamp(min=torch.finfo(b.dtype).tiny)
        solution += length * step
        residual -= length * image
        scaled = precondition(residual)
        previous, fit = fit, dot(residual, scaled)
        step = scaled + fit / previous.clamp(min=torch.finfo(b.dtype).tiny) * step
    return solution
