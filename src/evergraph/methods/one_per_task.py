"""A probe for one question: what is it worth to know the task of a node?

Every task has a network of its own, trained from scratch on its own classes, so that nothing is
ever forgotten; at the end the highest of all networks' logits says the class. Methods of a prompt
or an adapter per task are of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from evergraph.methods.anchors import HeadsConfig, TaskHeads
from evergraph.methods.bounds import UNKNOWN
from evergraph.methods.context import TaskContext
from evergraph.nn.model import restore_model


class OnePerTask(TaskHeads[HeadsConfig]):
    """Keeps a network for every task; no network knows the classes of another."""

    Config = HeadsConfig
    summary = "one network per task, and the highest of all logits"
    paper = "a probe without a paper: what knowing the task is worth"
    year = 2026

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__(config)
        self.networks: list[dict[str, Tensor]] = []  # weights, and the classes of the task

    def begin_task(self, ctx: TaskContext) -> None:
        """Begins with a new network."""
        ctx.prepare_model(fresh=True)

    def end_task(self, ctx: TaskContext) -> None:
        """Keeps the network with the classes that it was trained on."""
        weights = {name: value.clone() for name, value in ctx.network.state_dict().items()}
        self.networks.append({**weights, "classes": ctx.task_classes})

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Returns what each class's own network says of it."""
        found = torch.full((ctx.view.num_nodes, ctx.view.num_classes), UNKNOWN, device=ctx.device)
        newest = ctx.model
        for kept in self.networks:
            classes = kept["classes"].to(ctx.device)
            weights = {name: value for name, value in kept.items() if name != "classes"}
            ctx.model = restore_model(ctx.model_config, weights, None).to(ctx.device)
            found[:, classes] = ctx.observe().logits[:, classes]
        ctx.model = newest
        return found

    def reach(self, num_layers: int) -> int | None:
        """Reads the whole graph, network after network."""
        return None

    def memory_bytes(self) -> int:
        """Counts the networks but the last."""
        return sum(value.nbytes for kept in self.networks[:-1] for value in kept.values())

    def state_dict(self) -> dict[str, Any]:
        """Returns the networks."""
        return {**super().state_dict(), "networks": list(self.networks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.networks = [dict(kept) for kept in state["networks"]]
