r"""MAS: memory aware synapses (Aljundi et al., ECCV 2018).

.. math::
    CE + \lambda \sum_i \Omega_i (\theta_i - \theta^*_i)^2, \quad
    \Omega_i = \sum_s \operatorname{mean}_x
    \left| \frac{\partial \lVert f(x) \rVert^2}{\partial \theta_i} \right|

with ``f`` the logits of the task's own classes, as CE is over them, and ``θ*`` the parameters
after the last task alone. No label is read. The gradient of every node costs a backward pass, so
that above 256 training nodes of a task a sample of 256 stands for all. λ = 1 is ours, the lower end
of the grid: what holds depends on the graph (about 1e3 on Cora).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from evergraph.methods import anchors
from evergraph.methods.context import TaskContext


class MASConfig(anchors.WeightedConfig):
    """Settings of MAS."""

    #: The most training nodes of a task that its importance is averaged over.
    num_nodes: int = Field(default=256, ge=1)


class MAS(anchors.WeightedAnchors[MASConfig]):
    """Holds the parameters that the network's answers are sensitive to."""

    Config = MASConfig
    summary = "holds parameters by how much the logits of earlier tasks' nodes depend on them"
    paper = "Aljundi et al., Memory Aware Synapses: Learning what (not) to forget"
    year = 2018

    def importance(self, ctx: TaskContext) -> anchors.Parameters:
        """Averages the absolute gradient of the squared norm of the logits over nodes."""
        model, nodes = ctx.network, self._nodes(ctx)
        omega = anchors.zeros_like(model)
        for rows, output, _ in ctx.parts(nodes):
            logits, _ = self.narrow(ctx, output.logits, rows)
            for norm in logits.square().sum(dim=1):
                for name, grad in anchors.gradients(norm, model).items():
                    omega[name] += grad.abs() / nodes.numel()
        return omega

    def keep(self, anchor: anchors.Anchor) -> None:
        """Moves the one anchor here; importances of all tasks add up."""
        total = anchor.importance
        for earlier in self.anchors:
            total = anchors.add_importance(earlier.importance, total)
        self.anchors = [anchors.Anchor(anchor.parameters, total)]

    def _nodes(self, ctx: TaskContext) -> Tensor:
        """Returns the task's training nodes, or a sample of them where there are many."""
        nodes = ctx.view.train_nodes
        if nodes.numel() <= self.config.num_nodes:
            return nodes
        order = torch.randperm(nodes.numel(), generator=ctx.generator("importance", "cpu"))
        rows = torch.sort(order[: self.config.num_nodes]).values
        return nodes[rows.to(nodes.device)]
