"""Distillation: what methods share that hold on to the answers of an older network."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def distillation_loss(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    r"""Averages :math:`-\sum_c p_c(z^{old}/T) \log p_c(z/T)` over nodes, :math:`p` the softmax.

    Both softmaxes run over the teacher's columns: classes that came later do not count. There
    is no factor :math:`T^2`.

    Args:
        logits: What the network says now, ``[m, k]``.
        teacher: What the older network said of the same nodes, ``[m, k_old]``.
        temperature: :math:`T`, which flattens both.
    """
    old = logits[:, : teacher.shape[1]]
    target = functional.softmax(teacher / temperature, dim=1)
    return -(target * functional.log_softmax(old / temperature, dim=1)).sum(dim=1).mean()


def stored_logits_loss(logits: Tensor, stored: Tensor, widths: Tensor) -> Tensor:
    """Averages the squared distance to stored logits over all entries that existed then.

    Args:
        logits: What the network says now, ``[m, k]``.
        stored: What was stored of the same nodes, ``[m, k_old]``, filled up with anything.
        widths: How many columns of each node's row existed when it was stored, ``[m]``.
    """
    existed = torch.arange(stored.shape[1], device=stored.device) < widths[:, None]
    distance = (logits[:, : stored.shape[1]] - stored).square()
    return distance.masked_fill(~existed, 0).sum() / widths.sum()
