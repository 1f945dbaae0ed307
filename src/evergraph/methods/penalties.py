"""Quadratic penalties: what importance-weighted methods share (EWC, MAS, TWP, ContinualGNN)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Parameters = dict[str, Tensor]


def snapshot(model: nn.Module) -> Parameters:
    """Copies all parameters as they are now: the anchor θ*."""
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def quadratic_penalty(
    model: nn.Module, importance: Mapping[str, Tensor], anchor: Mapping[str, Tensor]
) -> Tensor:
    r"""Computes :math:`\sum_i I_i (\theta_i - \theta^*_i)^2`.

    Only what existed at the anchor counts: rows that the head has grown since are left out.
    """
    total = next(model.parameters()).new_zeros(())
    for name, value in model.named_parameters():
        if name in anchor:
            old = value[: anchor[name].shape[0]]
            total = total + (importance[name] * (old - anchor[name]).square()).sum()
    return total


def add_importance(total: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> Parameters:
    """Adds importances up; what is new starts from zero."""
    added = {name: value.clone() for name, value in new.items()}
    for name, value in total.items():
        added[name][: value.shape[0]] += value
    return added


def bytes_of(*kept: Mapping[str, Tensor]) -> int:
    """Counts the bytes of stored parameters and importances."""
    return sum(t.numel() * t.element_size() for group in kept for t in group.values())


def zeros_like(model: nn.Module) -> Parameters:
    """Makes an importance of zero for every parameter."""
    return {name: torch.zeros_like(value) for name, value in model.named_parameters()}
