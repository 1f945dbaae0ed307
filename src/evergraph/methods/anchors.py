"""Regularisation: the columns of the loss (LwF too), and learning near anchors (EWC, MAS, TWP).

The papers give every task an output layer of its own. Here all classes share one, over which
predictions are made with no task known; ``loss_over`` says which of its columns a task learns. Over
all seen ones the loss itself pushes earlier classes down, whatever is held.

Importances are taken without dropout, on the whole graph. Where a run trains on sampled
neighbourhoods because the whole graph does not fit, gradients on it would not fit either:
there they are taken on such neighbourhoods too, batch by batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from evergraph.errors import InputError
from evergraph.methods.base import Method, MethodConfig, SearchSpace
from evergraph.methods.context import TaskContext


class HeadsConfig(MethodConfig):
    """Settings of a method whose paper gives every task a head of its own."""

    former: ClassVar[Mapping[str, Any]] = {"loss_over": "seen"}
    #: The columns that a task's loss and importance run over: ``current`` are those of its classes,
    #: ``seen`` all so far (decision 0028).
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


class WeightedConfig(HeadsConfig):
    """Settings of a method that weighs its penalty."""

    lam: float = Field(default=1.0, ge=0)  # λ, weight of the penalty


WeightedT = TypeVar("WeightedT", bound=WeightedConfig)


class Anchor(NamedTuple):
    """Where a task left the network, and how much each parameter mattered to it."""

    parameters: Parameters  # θ*
    importance: Parameters


class AnchoredMethod(TaskHeads[HeadsT]):
    """Holds parameters near their anchors, each by its importance."""

    def __init__(self, config: HeadsT) -> None:
        super().__init__(config)
        self.anchors: list[Anchor] = []

    def importance(self, ctx: TaskContext) -> Parameters:
        """Measures how much each parameter matters to the task just learned."""
        raise NotImplementedError

    def penalty(self, ctx: TaskContext) -> Tensor:
        r"""Adds up :math:`\sum_i I_i (\theta_i - \theta^*_i)^2` over all anchors."""
        model = ctx.network
        total = next(model.parameters()).new_zeros(())
        for anchor in self.anchors:
            total = total + quadratic_penalty(model, anchor.importance, anchor.parameters)
        return total

    def end_task(self, ctx: TaskContext) -> None:
        """Anchors the network here, unless no task follows."""
        if ctx.final:
            return
        with ctx.stage("importance"):
            self.keep(Anchor(snapshot(ctx.network), self.importance(ctx)))

    def keep(self, anchor: Anchor) -> None:
        """Stores a task's anchor beside the earlier ones."""
        self.anchors.append(anchor)

    def memory_bytes(self) -> int:
        """Counts all anchors and importances."""
        return super().memory_bytes() + sum(bytes_of(*anchor) for anchor in self.anchors)

    def state_dict(self) -> dict[str, Any]:
        """Returns the anchors with their importances."""
        return {**super().state_dict(), "anchors": [anchor._asdict() for anchor in self.anchors]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.anchors = [
            Anchor(dict(anchor["parameters"]), dict(anchor["importance"]))
            for anchor in state["anchors"]
        ]

    def begin_task(self, ctx: TaskContext) -> None:
        """Warm-starts the network, which the anchors must be of; its head may have grown since."""
        super().begin_task(ctx)
        weights = dict(ctx.network.named_parameters())
        for anchor in self.anchors:
            for name, value in anchor.parameters.items():
                now, known = weights[name].shape, value.shape
                grown = name.startswith("head.") and known[0] <= now[0] and known[1:] == now[1:]
                if (known != now and not grown) or anchor.importance[name].shape != known:
                    raise InputError(
                        f"Expected anchors of the network at hand (got '{name}' of shape "
                        f"{list(known)} for {list(now)}); restore what belongs together."
                    )


class WeightedAnchors(AnchoredMethod[WeightedT]):
    """Adds λ times the penalty to the cross-entropy."""

    search: ClassVar[SearchSpace] = {"lam": (1e0, 1e2, 1e3, 1e4, 1e6, 1e8)}

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on the current nodes, plus the penalty of all anchors."""
        return super().loss(ctx) + self.config.lam * self.penalty(ctx)


def gradients(outputs: Tensor, model: nn.Module, weights: Tensor | None = None) -> Parameters:
    """Differentiates outputs, added up with the weights, by every parameter; zero where unused.

    What was computed is kept, so that it can be differentiated again.
    """
    names, values = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(
        outputs, values, weights, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return dict(zip(names, grads, strict=True))


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
