r"""GEM: gradient episodic memory (Lopez-Paz and Ranzato, NIPS 2017).

The gradient :math:`g` of the cross-entropy on current nodes may not raise the loss on what
is kept of any old task. With :math:`g_s` the gradient on task :math:`s`'s kept nodes and
:math:`G` made of these rows, if any :math:`\langle g, g_s \rangle < 0`, the step takes
:math:`\tilde g = G^\top v + g` where, in the dual of their projection,

.. math:: v = \arg\min_{v \ge \gamma} \tfrac12 v^\top (G G^\top + \epsilon I) v + g^\top G^\top v

The margin γ = 0.5 and ε = 1e-3 are those of the authors' code. The buffer is random and
shared by class, not by task, as in all methods here. On sampled neighbourhoods a step draws
at most a batch of each old task's kept nodes. A class that returns stays with the task that
brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from evergraph.methods.base import SearchSpace
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import BufferBase, BufferConfig
from evergraph.stream.tasks import LabelledNodes

RIDGE = 1e-3


class GEMConfig(BufferConfig):
    """Settings of GEM: those of a buffer, random by default, and the margin."""

    #: γ, the least weight of every old task in a corrected gradient.
    margin: float = Field(default=0.5, ge=0)


class GEM(BufferBase[GEMConfig]):
    """Turns every gradient until it conflicts with no old task's."""

    Config = GEMConfig
    summary = "projects gradients so that the loss on no old task's buffer rises"
    paper = "Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning"
    year = 2017
    search: ClassVar[SearchSpace] = {
        "margin": (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0),
    }
    _memory: Callable[[], Tensor]  # computes G, [s, P]

    def __init__(self, config: GEMConfig) -> None:
        super().__init__(config)
        self.task_of: dict[int, int] = {}  # class → the task that brought it
        self._old: list[LabelledNodes] = []  # kept nodes of each old task

    def begin_task(self, ctx: TaskContext) -> None:
        """Warm-starts the network and sorts the buffer by task."""
        super().begin_task(ctx)
        kept = self.buffer.labelled
        task_of = [self.task_of[label] for label in kept.labels.tolist()]
        tasks = torch.tensor(task_of, dtype=torch.int64, device=kept.nodes.device)
        self._old = [kept.take(tasks == task) for task in torch.unique(tasks).tolist()]
        self._memory = ctx.recorded(
            lambda: torch.stack([self._gradient(ctx, old) for old in self._old])
        )

    def after_backward(self, ctx: TaskContext) -> None:
        """Replaces a gradient that conflicts with an old task's."""
        if not self._old:
            return
        grads = [p.grad for p in ctx.network.parameters() if p.grad is not None]
        current = torch.cat([grad.flatten() for grad in grads])
        turned = turn_gradient(current, self._memory(), self.config.margin)
        if turned is current:
            return
        pieces = torch.split_with_sizes(turned, [grad.numel() for grad in grads])
        for grad, piece in zip(grads, pieces, strict=True):
            grad.copy_(piece.view_as(grad))  # in its place, which a recorded step writes to

    def _gradient(self, ctx: TaskContext, old: LabelledNodes) -> Tensor:
        """Differentiates the loss on one old task's kept nodes, ``[number of parameters]``."""
        nodes, labels = ctx.draw(old.nodes, old.labels)
        loss = ctx.cross_entropy(ctx.forward(nodes), labels)
        grads = torch.autograd.grad(loss, list(ctx.network.parameters()))
        return torch.cat([grad.flatten() for grad in grads])

    def end_task(self, ctx: TaskContext) -> None:
        """Selects nodes of this task's classes, and notes that they are this task's."""
        super().end_task(ctx)
        if ctx.final:
            return
        for label in torch.unique(ctx.view.train_labels).tolist():
            self.task_of.setdefault(label, ctx.view.task)

    def memory_bytes(self) -> int:
        """Counts the buffer and the task of each class."""
        return super().memory_bytes() + 16 * len(self.task_of)

    def state_dict(self) -> dict[str, Any]:
        """Adds the task of each class to the buffer's state."""
        state = super().state_dict()
        state["task_of"] = {str(label): task for label, task in self.task_of.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.task_of = {int(label): int(task) for label, task in state["task_of"].items()}


def turn_gradient(current: Tensor, memory: Tensor, margin: float) -> Tensor:
    """Returns the gradient ``[P]`` itself if it conflicts with no row of ``[s, P]``, else g̃."""
    rows = memory.double()
    products = rows @ current.double()
    if not bool((products < 0).any()):
        return current
    v = solve_dual((rows @ rows.T).cpu(), products.cpu(), margin)
    return (current.double() + v.to(rows.device) @ rows).to(current.dtype)


def solve_dual(gram: Tensor, products: Tensor, margin: float) -> Tensor:
    r"""Minimises :math:`\tfrac12 v^\top P v + q^\top v` over :math:`v \ge \gamma`, ``[s]``.

    :math:`P = G G^\top + \epsilon I` and :math:`q = G g`. With :math:`v = w + \gamma` and
    :math:`P = L L^\top` this is :math:`\min_{w \ge 0} \lVert L^\top w + L^{-1} c \rVert` for
    :math:`c = q + \gamma P 1`: non-negative least squares, which SciPy's active-set solver
    ends exactly in finitely many steps, without a tolerance to choose.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to import, and few runs need it

    regular = gram + RIDGE * torch.eye(gram.shape[0], dtype=gram.dtype)
    lower = torch.linalg.cholesky(regular)
    shifted = products + margin * regular.sum(dim=1)
    target = -torch.linalg.solve_triangular(lower, shifted[:, None], upper=False)[:, 0]
    weights, _ = nnls(lower.T.numpy(), target.numpy())
    return torch.from_numpy(weights) + margin
