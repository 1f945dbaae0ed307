r"""Condensed memory: synthetic nodes without edges, learned to stand for the nodes of their class.

For a random network drawn anew at every step, a class has a statistic :math:`s_c` of its nodes: the
mean of their embeddings, or the gradient of their loss. Synthetic nodes are moved by Adam so that
theirs is the same. What a class was before, :math:`n'_c` nodes that its synthetic ones stand for
by now, counts with the :math:`n_c` nodes that are new:

.. math:: \min_{\tilde X} \sum_c d\Bigl(\frac{n_c s_c(X) + n'_c s_c(\tilde X')}{n_c + n'_c},
    s_c(\tilde X)\Bigr).

So a class may come again, and the budget may be shared among more classes than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from evergraph.events import Epoch
from evergraph.memory.synthetic import SyntheticNodes, check_rows
from evergraph.methods.base import Method, MethodConfig
from evergraph.methods.context import TaskContext
from evergraph.nn.model import Adam


class CondensedConfig(MethodConfig):
    """Settings of a method that keeps synthetic nodes."""

    buffer_size: int = Field(default=100, ge=1)  # synthetic nodes of all classes together
    condense_steps: int = Field(default=300, ge=1)  # random networks that they are learned by
    #: Adam's learning rate for them, in units of their values: features come in any.
    condense_lr: float = Field(default=0.01, gt=0)


ConfigT = TypeVar("ConfigT", bound=CondensedConfig)


class Condensing(Method[ConfigT]):
    """What methods with a condensed memory share: how it is learned, kept and counted."""

    def __init__(self, config: ConfigT) -> None:
        super().__init__(config)
        self.memory = SyntheticNodes(config.buffer_size)
        self.weight = torch.empty(0)  # of the random network, drawn anew at every step

    def redraw(self, ctx: TaskContext) -> None:
        """Draws the random network anew: one layer by default."""
        self.weight.normal_(generator=ctx.generator("condense network"))

    def statistics(self, ctx: TaskContext, rows: Tensor, labels: Tensor) -> Tensor:
        """Returns the statistic of every class, ``[k, ...]``; zeros for one without rows."""
        raise NotImplementedError

    def node_statistics(self, ctx: TaskContext, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns those of the new nodes, or of a batch of them, and the labels of these."""
        some, known = ctx.draw(x, labels)
        return self.statistics(ctx, some, known), known

    def distance(self, wanted: Tensor, found: Tensor) -> Tensor:
        """Compares statistics class by class, ``[k]``: squared differences by default."""
        return (wanted - found).square().flatten(1).sum(dim=1)

    def begin_task(self, ctx: TaskContext) -> None:
        """Warm-starts the network, for which what is kept must be of this graph."""
        self.memory.to(ctx.device)
        if len(self.memory):
            check_rows(self.memory.rows, self.memory.labels, ctx.view)
        super().begin_task(ctx)

    def condense(self, ctx: TaskContext, x: Tensor, labels: Tensor) -> Iterator[Epoch]:
        """Learns synthetic nodes for new nodes of rows ``x`` ``[m, d]`` and what is kept."""
        if not labels.numel():
            return
        count, steps = ctx.view.num_classes, self.config.condense_steps
        old, old_labels, memory = self.memory.rows, self.memory.labels, self.memory
        memory.admit(x, labels, ctx.generator("condense", "cpu"))
        new = torch.bincount(labels, minlength=count).float()
        known = torch.tensor([max(memory.counts.get(c, 0), 1) for c in range(count)])
        share = new / known.to(new)
        # A class without new nodes whose rows have not become fewer is as it should be.
        had, has = (torch.bincount(part, minlength=count) for part in (old_labels, memory.labels))
        moves = (new > 0) | (had != has)
        rows = memory.rows.clone().requires_grad_()
        lr = self.config.condense_lr * float(memory.rows.square().mean().sqrt())
        optimizer = Adam([rows], lr)

        def step() -> Tensor:
            with torch.no_grad():
                self.redraw(ctx)
                wanted, drawn = self.node_statistics(ctx, x, labels)
                there = moves & ((class_means(drawn, count) > 0).any(dim=1) | (share == 0))
                if old_labels.numel():
                    part = share.view(-1, *[1] * (wanted.ndim - 1))
                    before = self.statistics(ctx, old, old_labels)
                    wanted = part * wanted + (1 - part) * before
            found = self.statistics(ctx, rows, memory.labels)
            loss = (self.distance(wanted, found) * there).sum()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            return loss.detach()

        run = ctx.recorded(step)
        for epoch in range(steps):
            yield Epoch(ctx.view.task, "condense", epoch, steps, run())
        memory.rows, self.weight = rows.detach(), torch.empty(0)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on the synthetic nodes alone: training in memory."""
        rows, labels = ctx.draw(self.memory.rows, self.memory.labels)
        return ctx.cross_entropy(ctx.forward_rows(rows), labels)

    def memory_bytes(self) -> int:
        """Counts the synthetic nodes, which take no graph to be replayed."""
        return self.memory.memory_bytes()

    def state_dict(self) -> dict[str, Any]:
        """Returns the synthetic nodes."""
        return {"memory": self.memory.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.memory.load_state_dict(state["memory"])


def class_means(labels: Tensor, count: int) -> Tensor:
    """Returns the matrix ``[k, m]`` that averages rows by class; zeros for a class without."""
    hot = (labels == torch.arange(count, device=labels.device)[:, None]).float()
    return hot / hot.sum(dim=1, keepdim=True).clamp(min=1)
