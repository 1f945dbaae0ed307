"""Frozen: what comes of learning nothing any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from evergraph.events import Epoch
from evergraph.methods.base import Descent, Method, MethodConfig
from evergraph.methods.context import TaskContext

#: The logit of a class that is not known.
UNKNOWN = -1e9


class FrozenConfig(MethodConfig):
    """A frozen network has nothing to set."""


class Frozen(Method[FrozenConfig]):
    """Trains on the first task and never again; classes that come later are never predicted.

    What it says of later nodes is what a deployed network would say, whose graph goes on growing.
    """

    Config = FrozenConfig
    summary = "trains on the first task alone and stays as it is"
    paper = "a baseline without a paper: what doing nothing costs"
    year = 2026

    def __init__(self, config: FrozenConfig) -> None:
        super().__init__(config)
        self.num_known = 0  # classes of the first task

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Descent]:
        """Trains once."""
        if not self.num_known:
            yield Descent()
            self.num_known = ctx.view.num_classes

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Returns the network's logits; the head grows with the classes, untrained and unheard."""
        logits = super().predict_logits(ctx).clone()
        logits[:, self.num_known :] = UNKNOWN
        return logits

    def state_dict(self) -> dict[str, Any]:
        """Returns how many classes are known."""
        return {"num_known": self.num_known}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.num_known = int(state["num_known"])
