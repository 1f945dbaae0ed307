"""The two ends of the scale: fine-tuning forgets freely, joint training reads all labels."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.methods.base import Method, MethodConfig
from evergraph.methods.context import TaskContext
from evergraph.stream.tasks import LabelledNodes


class FinetuneConfig(MethodConfig):
    """Fine-tuning has nothing to set."""


class Finetune(Method[FinetuneConfig]):
    """Trains on the current task alone: the lower bound."""

    Config = FinetuneConfig
    summary = "trains on the current task alone; the lower bound"
    paper = "McCloskey and Cohen, Catastrophic Interference in Connectionist Networks"
    year = 1989
    local = True


class JointConfig(MethodConfig):
    """Settings of joint training.

    Attributes:
        warm_start: Continue from the last task's weights instead of starting anew.
    """

    warm_start: bool = False


class Joint(Method[JointConfig]):
    """Retrains on all training labels so far: the upper bound. It reads old labels."""

    Config = JointConfig
    summary = "retrains on all training labels so far (reads old labels); the upper bound"
    paper = "Caruana, Multitask Learning"
    year = 1997
    needs = frozenset({"old_labels"})

    def begin_task(self, ctx: TaskContext) -> None:
        """Starts from fresh weights unless told to keep them."""
        ctx.prepare_model(fresh=not self.config.warm_start)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on the current and all earlier training nodes."""
        num_old, num_current = ctx.view.granted_nodes.numel(), ctx.view.train_nodes.numel()
        granted = LabelledNodes(ctx.view.granted_nodes, ctx.view.granted_labels)
        logits, replayed, old_labels = ctx.replay(granted)
        if ctx.batch_size is None or num_old == 0:
            labels = torch.cat([ctx.batch.labels, old_labels])
            return ctx.cross_entropy(torch.cat([logits, replayed]), labels)
        current = ctx.cross_entropy(logits, ctx.batch.labels)
        old = ctx.cross_entropy(replayed, old_labels)
        # A batch holds other shares of old and current nodes than the whole.
        return (num_current * current + num_old * old) / (num_current + num_old)
