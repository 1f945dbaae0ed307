r"""EWC: elastic weight consolidation (Kirkpatrick et al., PNAS 2017).

.. math::
    CE + \lambda \sum_s \sum_i F^s_i (\theta_i - \theta^{*s}_i)^2

with one anchor and one Fisher per earlier task ``s``, as in the paper. ``F`` is the empirical
Fisher: the mean over the task's training nodes of squared gradients of the log-likelihood of
the true label (label smoothing plays no part in it). Gradients of single nodes cost a backward
pass each, so that many nodes share passes by random signs, which is unbiased.

Both the CE and the likelihood are over the task's own classes unless set otherwise. Defaults are
ours: λ = 1000 lies low in the grid, for gradients after training are small, and over the task's own
columns it takes 1e6 and more to hold on Cora. Published values belong to the squared *mean*
gradient. Up to 64 nodes are exact: no dearer than the 64 probes that would estimate them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from evergraph.methods import anchors
from evergraph.methods.context import TaskContext


class EWCConfig(anchors.WeightedConfig):
    """Settings of EWC."""

    lam: float = Field(default=1e3, ge=0)  # λ, weight of the penalty
    num_probes: int = Field(default=64, ge=1)  # vectors of random signs that estimate the Fisher
    #: The most training nodes of a task for which it is exact instead.
    exact_nodes: int = Field(default=64, ge=0)


class EWC(anchors.WeightedAnchors[EWCConfig]):
    """Holds the parameters that earlier tasks' likelihood is sensitive to."""

    Config = EWCConfig
    summary = "holds parameters by the Fisher information of every earlier task"
    paper = "Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks"
    year = 2017

    def importance(self, ctx: TaskContext) -> anchors.Parameters:
        """Computes the empirical Fisher."""
        return fisher(self, ctx, self.config.num_probes, self.config.exact_nodes)


def fisher(
    method: anchors.TaskHeads[Any], ctx: TaskContext, num_probes: int = 64, exact_nodes: int = 64
) -> anchors.Parameters:
    r"""Computes the empirical Fisher of a task, exactly or by random signs.

    .. math::
        F = \frac{1}{n} \sum_k g_k^2 \approx
        \frac{1}{mn} \sum_{\text{probes}} \Big(\sum_k s_k g_k\Big)^2, \quad s_k = \pm 1

    Nodes in different parts share no probe: their sums are squared part by part.
    """
    model, nodes, labels = ctx.network, ctx.view.train_nodes, ctx.view.train_labels
    exact = nodes.numel() <= exact_nodes
    scale = 1 / (nodes.numel() * (1 if exact else num_probes))
    total = anchors.zeros_like(model)
    for rows, output, _ in ctx.parts(nodes):
        shown = method.narrow(ctx, output.logits, labels[rows])
        losses = functional.cross_entropy(*shown, reduction="none")
        for weights in torch.eye(rows.numel()) if exact else probes(losses, ctx, num_probes):
            for name, grad in anchors.gradients(losses, model, weights.to(losses)).items():
                total[name] += scale * grad.square()
    return total


def probes(losses: Tensor, ctx: TaskContext, count: int) -> Iterator[Tensor]:
    """Yields a random sign for each of the losses, again and again."""
    generator = ctx.generator("fisher", "cpu")
    for _ in range(count):
        yield 2.0 * torch.randint(0, 2, losses.shape, generator=generator) - 1
