r"""RCLG: reinforced continual learning for graphs (Rakaraddi et al., CIKM 2022).

From the second task on, a controller proposes how many neurons each hidden layer gives up and
gets. Each proposal makes a child of the network, trained with

.. math::
    L = \mathrm{CE}(\text{current}) + 0.5 \cdot \mathrm{MSE}(z_B, z_B^{stored})
    + 0.5 \cdot \mathrm{CE}(B)

where the squared distance covers the columns that existed when a node was kept. The reward is
the accuracy on the task's validation nodes in percent − 1e-4 · entropy of the controller. The
best child is kept and trained once more. Defaults are the paper's, but that children are trained
for a fifth of the epochs before they are judged, and the buffer holds nodes, not batches.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.methods.base import Descent, SearchSpace
from evergraph.methods.context import TaskContext
from evergraph.methods.rclg_controller import Controller, Proposal
from evergraph.methods.replay import Beside, BufferBase, BufferConfig
from evergraph.nn.model import NodeClassifier
from evergraph.nn.surgery import resize_layer

Count = Annotated[int, Field(ge=0)]


class RCLGConfig(BufferConfig):
    """Settings of RCLG: those of a buffer, random by default, and of the search."""

    #: How many neurons a layer may get; a neuron is a channel of every head.
    additions: tuple[Count, ...] = Field(default=(9, 11, 15, 21, 29), min_length=1)
    #: How many neurons a layer may give up; one always stays.
    deletions: tuple[Count, ...] = Field(default=(1, 2, 5, 8, 9), min_length=1)
    controller_steps: int = Field(default=4, ge=1)  # children per task
    #: Epochs of a child before it is judged; a fifth of the task's by default.
    child_epochs: Annotated[int, Field(ge=1)] | None = None
    controller_lr: float = Field(default=3.5e-4, gt=0)  # learning rate of the controller's Adam
    #: What the baseline of the rewards keeps of itself at every step.
    baseline_decay: float = Field(default=0.95, ge=0, lt=1)
    #: What the controller's entropy takes from the reward.
    entropy_weight: float = Field(default=1e-4, ge=0)
    #: Weight of the squared distance to the stored logits.
    logit_weight: float = Field(default=0.5, ge=0)
    label_weight: float = Field(default=0.5, ge=0)  # weight of the cross-entropy on the buffer


class RCLG(BufferBase[RCLGConfig]):
    """Searches each task's shape of the network by reinforcement, and replays."""

    Config = RCLGConfig
    summary = "a controller grows and shrinks the layers; replay of labels and logits"
    paper = "Rakaraddi et al., Reinforced Continual Learning for Graphs"
    year = 2022
    needs = frozenset({"validation", "gat"})  # layers that surgery can resize
    search: ClassVar[SearchSpace] = {
        "logit_weight": (0.0, 0.05, 0.15, 0.5, 1.5, 5.0),
        "label_weight": (0.5, 1.5, 5.0, 15.0),
    }
    controller: Controller | None = None

    def begin_task(self, ctx: TaskContext) -> None:
        """Warm-starts the network; without validation nodes there is no reward."""
        if ctx.view.validation.nodes.numel() == 0:
            raise InputError(
                "Expected validation nodes to reward the controller of RCLG with (got 0); set "
                "validation_fraction, for example to 0.1."
            )
        super().begin_task(ctx)
        layers, classes = len(ctx.network.encoder.layers), ctx.network.head.num_classes
        if self.controller is not None and self.controller.num_layers != layers:
            raise InputError(
                f"Expected a controller of {layers} layers (got one of "
                f"{self.controller.num_layers}); restore what belongs together."
            )
        stored = self.buffer.rows.get("logits")
        if stored is not None and stored.shape[1] > classes:
            raise InputError(
                f"Expected stored logits of at most {classes} classes (got {stored.shape[1]}); "
                "restore what belongs together."
            )

    def fit_task(self, ctx: TaskContext) -> Iterator[Descent]:
        """Chooses a child, except at the first task, then trains it for all epochs."""
        if len(self.buffer):
            yield from self._search(ctx)
        yield Descent()

    def loss(self, ctx: TaskContext) -> Tensor:
        """Adds the buffer's logits and labels to the cross-entropy of the current nodes."""
        if not self.buffer.rows:
            return super().loss(ctx)
        rows = self.buffer.rows
        current, replayed, labels, stored, widths = ctx.replay(
            self.buffer.labelled, rows["logits"], rows["widths"]
        )
        return (
            ctx.cross_entropy(current, ctx.batch.labels)
            + self.config.logit_weight * stored_logits_loss(replayed, stored, widths)
            + self.config.label_weight * ctx.cross_entropy(replayed, labels)
        )

    def beside(self, ctx: TaskContext, nodes: Tensor) -> Iterator[Beside]:
        """Yields what the network says of nodes, and over how many classes it does by now."""
        stored, shown = self.buffer.rows, self.predict_logits(ctx)[nodes]
        if stored:  # what was kept when there were fewer classes
            missing = shown.shape[1] - stored["logits"].shape[1]
            stored["logits"] = functional.pad(stored["logits"], (0, missing))
        yield stored, "logits", shown
        yield stored, "widths", torch.full_like(nodes, shown.shape[1])

    def _search(self, ctx: TaskContext) -> Iterator[Descent]:
        """Trains and judges children of the network; leaves the best one to the context."""
        parent, steps = ctx.network, self.config.controller_steps
        draws = ctx.generator("controller", "cpu")
        if self.controller is None:  # afterwards it is the same one
            self.controller = self._make_controller(len(parent.encoder.layers), draws)
        epochs = self.config.child_epochs or max(1, ctx.training.epochs // 5)
        children, rewards = [], []
        for step in range(steps):
            proposal = self.controller(draws)
            child = self.make_child(parent, proposal, ctx.generator("surgery", "cpu"))
            ctx.adopt_model(child)
            yield Descent(epochs, "search", first=step * epochs, total=steps * epochs)
            rewards.append(self.reward(ctx, proposal))
            self.controller.learn(proposal, rewards[-1])
            if rewards[-1] > max(rewards[:-1], default=float("-inf")):
                children = [child]  # the others need not stay in memory
        ctx.adopt_model(children[0])
        ctx.report |= {"rewards": rewards, "channels": children[0].encoder.channels}

    def make_child(
        self, parent: NodeClassifier, proposal: Proposal, generator: torch.Generator
    ) -> NodeClassifier:
        """Copies the network and resizes its layers as proposed, first to last."""
        child = copy.deepcopy(parent)
        for depth, (addition, deletion) in enumerate(proposal.picks):
            add, delete = self.config.additions[addition], self.config.deletions[deletion]
            resize_layer(child, depth, delete=delete, add=add, generator=generator)
        return child

    def reward(self, ctx: TaskContext, proposal: Proposal) -> float:
        """Judges the context's network: validation accuracy in percent, less some entropy."""
        held = ctx.view.validation
        right = self.predict_logits(ctx)[held.nodes].argmax(dim=1) == held.labels
        accuracy = 100 * float(right.double().mean())
        return accuracy - self.config.entropy_weight * proposal.entropy

    def _make_controller(self, num_layers: int, generator: torch.Generator) -> Controller:
        config = self.config
        choices = (len(config.additions), len(config.deletions))
        lr, decay = config.controller_lr, config.baseline_decay
        return Controller(num_layers, choices, generator, lr=lr, decay=decay)

    def memory_bytes(self) -> int:
        """Counts the buffer, its logits and the controller with its Adam."""
        controller = self.controller.memory_bytes() if self.controller is not None else 0
        return super().memory_bytes() + controller

    def state_dict(self) -> dict[str, Any]:
        """Adds the controller to the buffer's state."""
        learned = self.controller.learned() if self.controller is not None else None
        return {**super().state_dict(), "reinforce": learned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.controller, learned = None, state["reinforce"]
        if learned is not None:
            # Its first weights are overwritten at once.
            generator = make_generator(0, "restored")
            self.controller = self._make_controller(learned["num_layers"], generator)
            self.controller.restore(learned)


def stored_logits_loss(logits: Tensor, stored: Tensor, widths: Tensor) -> Tensor:
    """Averages the squared distance to stored logits over all entries that existed then.

    Of a row stored, ``[m, k_old]``, the first ``widths [m]`` columns existed; the rest is anything.
    """
    existed = torch.arange(stored.shape[1], device=stored.device) < widths[:, None]
    distance = (logits[:, : stored.shape[1]] - stored).square()
    return distance.masked_fill(~existed, 0).sum() / widths.sum()
