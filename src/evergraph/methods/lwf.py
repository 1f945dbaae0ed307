r"""LwF: learning without forgetting (Li and Hoiem, ECCV 2016).

.. math::
    L = \mathrm{CE}(\text{current}) + \lambda \cdot \frac{1}{m} \sum_{v}
    -\sum_{s} \sum_{c \in s} p_c(z^{old}_v / T) \log p_c(z_v / T)

over the current training nodes, with a softmax for the classes of each earlier task :math:`s`, as
the paper has a head for each. The teacher :math:`z^{old}` is the network as it was after the last
task, without dropout, on the current graph. There is no replay and no factor :math:`T^2`. λ = 1 and
T = 2 are the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.methods.anchors import HeadsConfig, TaskHeads
from evergraph.methods.base import SearchSpace
from evergraph.methods.context import TaskContext


class LwFConfig(HeadsConfig):
    """Settings of LwF."""

    former: ClassVar[Mapping[str, Any]] = {**HeadsConfig.former, "distill_over": "seen"}

    lam: float = Field(default=1.0, ge=0)  # λ, weight of the distillation
    temperature: float = Field(default=2.0, gt=0)  # T, which flattens both distributions
    #: ``task`` gives the classes of each earlier task a softmax of their own, ``seen`` all earlier
    #: classes one (decision 0028).
    distill_over: Literal["task", "seen"] = "task"


class LwF(TaskHeads[LwFConfig]):
    """Holds on to what the last network says of the current nodes; keeps nothing but it."""

    Config = LwFConfig
    summary = "distils the last network's answers on the current nodes; keeps no node"
    paper = "Li and Hoiem, Learning without Forgetting"
    year = 2016
    search: ClassVar[SearchSpace] = {
        "lam": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
        "temperature": (1.0, 2.0, 5.0, 20.0),
    }

    def __init__(self, config: LwFConfig) -> None:
        super().__init__(config)
        self.heads: list[int] = []  # how many classes each earlier task has brought
        self._teacher: Tensor | None = None  # [n, k_old], during a task alone

    def begin_task(self, ctx: TaskContext) -> None:
        """Asks the last network about the current graph before anything changes it."""
        self._teacher = self.predict_logits(ctx) if ctx.model is not None else None
        if self._teacher is not None and self.heads and sum(self.heads) != self._teacher.shape[1]:
            raise InputError(
                f"Expected heads of {self._teacher.shape[1]} classes in a state of LwF (got "
                f"{sum(self.heads)}); restore a copy of the state."
            )
        super().begin_task(ctx)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Adds distillation to the cross-entropy; at the first task there is no teacher."""
        logits = ctx.forward(ctx.batch.nodes)
        loss = ctx.cross_entropy(*self.narrow(ctx, logits, ctx.batch.labels))
        if self._teacher is None:
            return loss
        teacher = self._teacher[ctx.batch.nodes]
        distilled = distillation_loss(logits, teacher, self.config.temperature, self.heads)
        return loss + self.config.lam * distilled

    def end_task(self, ctx: TaskContext) -> None:
        """Lets the teacher go: the network itself is the next one."""
        self._teacher = None
        count = len(ctx.view.new_classes)
        if not count or self.config.distill_over == "seen":
            return
        if self.heads and min(count, self.heads[-1]) < 2:
            self.heads[-1] += count  # the softmax of a single class would say nothing
        else:
            self.heads.append(count)

    def state_dict(self) -> dict[str, Any]:
        """Returns the sizes of the heads, if there are several."""
        return {**super().state_dict(), **({"heads": list(self.heads)} if self.heads else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.heads = [int(count) for count in state.get("heads", ())]
        if any(count < 1 for count in self.heads):
            raise ValueError("a head without classes")


def distillation_loss(
    logits: Tensor, teacher: Tensor, temperature: float, heads: Sequence[int] = ()
) -> Tensor:
    r"""Averages :math:`-\sum_c p_c(z^{old}/T) \log p_c(z/T)` over nodes, :math:`p` the softmax.

    Both softmaxes run over the teacher's columns ``[m, k_old]``: classes that came later do not
    count. There is no factor :math:`T^2`. Every head, given by the number of its columns, has a
    softmax of its own, and their losses add up; by default all columns are one head.
    """
    sizes = list(heads) or [teacher.shape[1]]
    now = torch.split(logits[:, : teacher.shape[1]] / temperature, sizes, dim=1)
    before = torch.split(teacher / temperature, sizes, dim=1)
    total = logits.new_zeros(())
    for student, target in zip(now, before, strict=True):
        shown = functional.log_softmax(student, dim=1)
        total = total - (functional.softmax(target, dim=1) * shown).sum(dim=1).mean()
    return total
