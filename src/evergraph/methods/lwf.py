r"""LwF: learning without forgetting (Li and Hoiem, ECCV 2016).

.. math::
    L = \mathrm{CE}(\text{current}) + \lambda \cdot \frac{1}{m} \sum_{v}
    -\sum_{c \in \text{old}} p_c(z^{old}_v / T) \log p_c(z_v / T)

over the current training nodes. The teacher :math:`z^{old}` is the network as it was after the
last task, without dropout, on the current graph. There is no replay and no factor :math:`T^2`.
λ = 1 and T = 2 are the paper's.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from evergraph.methods.base import Method, MethodConfig, SearchSpace
from evergraph.methods.context import TaskContext


class LwFConfig(MethodConfig):
    """Settings of LwF.

    Attributes:
        lam: λ, weight of the distillation.
        temperature: T, which flattens both distributions.
    """

    lam: float = Field(default=1.0, ge=0)
    temperature: float = Field(default=2.0, gt=0)


class LwF(Method[LwFConfig]):
    """Holds on to what the last network says of the current nodes; keeps nothing but it."""

    Config = LwFConfig
    summary = "distils the last network's answers on the current nodes; keeps no node"
    paper = "Li and Hoiem, Learning without Forgetting"
    year = 2016
    search: ClassVar[SearchSpace] = {
        "lam": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
        "temperature": (1.0, 2.0, 5.0, 20.0),
    }

    def __init__(self, config: LwFConfig) -> None:
        super().__init__(config)
        self._teacher: Tensor | None = None  # [n, k_old], during a task alone

    def begin_task(self, ctx: TaskContext) -> None:
        """Asks the last network about the current graph before anything changes it."""
        self._teacher = self.predict_logits(ctx) if ctx.model is not None else None
        super().begin_task(ctx)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Adds distillation to the cross-entropy; at the first task there is no teacher."""
        logits = ctx.forward(ctx.batch.nodes)
        loss = ctx.cross_entropy(logits, ctx.batch.labels)
        if self._teacher is None:
            return loss
        teacher = self._teacher[ctx.batch.nodes]
        return loss + self.config.lam * distillation_loss(logits, teacher, self.config.temperature)

    def end_task(self, ctx: TaskContext) -> None:
        """Lets the teacher go: the network itself is the next one."""
        self._teacher = None


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
