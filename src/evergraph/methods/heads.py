"""One head per task: what the regularisation methods share around the columns of their loss.

LwF, EWC, MAS and TWP are written for tasks that have an output layer each. Here all classes share
one, over which predictions are made with no task known; ``loss_over`` says which of its columns a
task learns. Over all seen ones the loss itself pushes earlier classes down, whatever is held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from evergraph.methods.base import Method, MethodConfig
from evergraph.methods.context import TaskContext


class HeadsConfig(MethodConfig):
    """Settings of a method whose paper gives every task a head of its own.

    Attributes:
        loss_over: The columns that a task's loss and importance run over: ``current`` are those of
            its classes, ``seen`` all so far (decision 0028).
    """

    former: ClassVar[Mapping[str, Any]] = {"loss_over": "seen"}
    loss_over: Literal["current", "seen"] = "current"


HeadsT = TypeVar("HeadsT", bound=HeadsConfig)


class TaskHeads(Method[HeadsT]):
    """Learns a task by its own columns of the head; predicts over all."""

    def narrow(self, ctx: TaskContext, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Takes the columns of the loss ``[m, c]`` and numbers the labels ``[m]`` among them."""
        if self.config.loss_over == "seen":
            return logits, labels
        columns = ctx.task_classes
        return logits.index_select(1, columns), torch.searchsorted(columns, labels)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on the current nodes over the columns of the loss."""
        logits = ctx.forward(ctx.batch.nodes)
        return ctx.cross_entropy(*self.narrow(ctx, logits, ctx.batch.labels))
