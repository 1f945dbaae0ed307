r"""DeLoMe: debiased lossless memory replay (Niu et al., ECAI 2024).

Prototypes of each class, without edges, are learned so that the gradient of a linear softmax on
propagated features (SGC) is the same on them as on the nodes that they stand for, with weights
:math:`W` drawn at random again and again. That gradient is known in closed form,

.. math:: \nabla_W L_c = \frac1{n_c} \sum_{v : y_v = c} z_v (p_v - e_c)^\top,

and is compared column by column by the cosine. Current and replayed rows share one loss in which
logits are raised by the logarithm of how often their class is there, so that what is rare need not
be pushed up afterwards (the debiased loss).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from evergraph.events import Epoch, Stage
from evergraph.memory.synthetic import SyntheticNodes
from evergraph.methods.base import Descent, SearchSpace
from evergraph.methods.condensed import CondensedConfig, Condensing, class_means
from evergraph.methods.context import TaskContext
from evergraph.methods.decoupled import Decoupled, DecoupledConfig


class DeLoMeConfig(DecoupledConfig, CondensedConfig):
    """Settings of DeLoMe."""

    per_class: int = Field(default=60, ge=1)  # the most prototypes of one class
    adjustment: float = Field(default=1.0, ge=0)  # factor of the logarithm of class frequencies


class DeLoMe(Decoupled[DeLoMeConfig], Condensing[DeLoMeConfig]):
    """Replays prototypes whose gradients are those of the nodes; adjusts logits by frequency."""

    Config = DeLoMeConfig
    summary = "replays prototypes learned by gradient matching; logits adjusted by frequency"
    paper = "Niu et al., Graph Continual Learning with Debiased Lossless Memory Replay"
    year = 2024
    search: ClassVar[SearchSpace] = {
        "hops": ("1", "2", "3", "0+1+2"),
        "condense_lr": (0.003, 0.01, 0.03),
        "adjustment": (0.0, 0.5, 1.0, 2.0),
    }

    def __init__(self, config: DeLoMeConfig) -> None:
        super().__init__(config)
        self.memory = SyntheticNodes(config.buffer_size, config.per_class)
        self._prior = torch.empty(0)  # [k], what logits are raised by, during a task alone

    def begin_task(self, ctx: TaskContext) -> None:
        """Warm-starts the MLP and counts classes."""
        super().begin_task(ctx)
        labels = torch.cat([ctx.view.train_labels, self.memory.labels])
        counts = torch.bincount(labels, minlength=ctx.view.num_classes).clamp(min=1)
        self._prior = self.config.adjustment * (counts / counts.sum()).log()

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Stage | Descent]:
        """Trains on current rows and prototypes, then learns prototypes unless no task follows."""
        yield Descent()
        if ctx.final:
            return
        with ctx.stage("condense"):
            x = self.trained_rows(ctx)
            self.weight = x.new_empty(x.shape[1], ctx.view.num_classes)
            yield from self.condense(ctx, x, ctx.view.train_labels)

    def statistics(self, ctx: TaskContext, rows: Tensor, labels: Tensor) -> Tensor:
        """Returns the gradient of every class's loss by the weights, ``[k, d, k]``."""
        count = ctx.view.num_classes
        truth = labels[:, None] == torch.arange(count, device=labels.device)
        error = torch.softmax(rows @ self.weight, dim=1) - truth.float()
        means = class_means(labels, count)[:, :, None]
        return torch.stack([rows.t() @ (error * part) for part in means])

    def distance(self, wanted: Tensor, found: Tensor) -> Tensor:
        """Adds up one minus the cosine of every column."""
        return (1 - functional.cosine_similarity(wanted, found, dim=1)).sum(dim=1)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on current rows and prototypes, logits adjusted."""
        rows, labels = self.batch_rows(ctx), ctx.batch.labels
        if len(self.memory):
            kept, known = ctx.draw(self.memory.rows, self.memory.labels)
            rows, labels = torch.cat([rows, kept]), torch.cat([labels, known])
        return ctx.cross_entropy(ctx.forward_rows(rows) + self._prior, labels)
