r"""AL-GNN: analytic learning on a frozen network (Zhang et al., arXiv 2512.18295).

The network stays as it is drawn, or as the first task has trained it. Its embeddings are
expanded by a random layer to wide rows :math:`\phi`, on which recursive least squares keeps

.. math:: W_t = W_{t-1} + R_t \Phi_t^\top (Y_t - \Phi_t W_{t-1}), \qquad
    R_t^{-1} = R_{t-1}^{-1} + \Phi_t^\top \Phi_t, \qquad R_0^{-1} = \gamma I.

After any number of tasks that is ridge regression on all rows ever seen, each as it was when it
came, so that it is solved as such: from the counts, means and scatter of
:mod:`evergraph.closed_form`, the same as the regularised autocorrelation matrix and the products
with the labels. No node is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from evergraph.closed_form.features import EmbeddingRows
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.ridge import Ridge, Weighing
from evergraph.device import make_generator
from evergraph.events import Epoch, Stage
from evergraph.methods.base import Descent, Method, MethodConfig, SearchSpace
from evergraph.methods.context import TaskContext, TrainConfig

#: Settings of training and network that are of gradient descent alone.
DESCENT = frozenset(TrainConfig.model_fields) - {"class_weight", "metric"} | {
    "dropout",
    "head_init",
}


class ALGNNConfig(MethodConfig):
    """Settings of AL-GNN."""

    #: ``random`` leaves the network as it was drawn, without backpropagation; ``first-task`` trains
    #: it on the first task.
    encoder: Literal["random", "first-task"] = "random"
    expansion: int = Field(default=1000, ge=1)  # columns of the random layer
    gamma: float = Field(default=0.1, gt=0)  # γ, which is added to the autocorrelation matrix

    def unused(self) -> frozenset[str]:
        """Names what gradient descent would take, where there is none."""
        return DESCENT if self.encoder == "random" else frozenset()


class ALGNN(Method[ALGNNConfig]):
    """Recursive least squares on expanded embeddings of a network that stays as it is.

    It predicts by the network and a matrix beside it, so that all nodes are predicted at once.
    """

    Config = ALGNNConfig
    summary = "recursive least squares on random features of a frozen network; keeps no node"
    paper = (
        "Zhang et al., AL-GNN: Privacy-Preserving and Replay-Free Continual Graph Learning via "
        "Analytic Learning"
    )
    year = 2025
    search: ClassVar[SearchSpace] = {
        "encoder": ("random", "first-task"),
        "expansion": (500, 1000, 2000),
        "gamma": (0.01, 0.1, 1.0, 10.0),
    }

    def __init__(self, config: ALGNNConfig) -> None:
        super().__init__(config)
        self.moments = Moments(dtype=torch.float32)
        self.weights = torch.zeros(config.expansion, 0)  # W, a column for each class with rows

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Stage | Descent]:
        """Trains the network if it is the first task, then takes the rows in."""
        if self.config.encoder == "first-task" and not self.moments.labels:
            yield Descent()
        with ctx.stage("statistics"):
            nodes, labels = ctx.view.train_nodes, ctx.view.train_labels
            rows = self._expand(ctx, nodes)
            self.moments.update(rows, labels)
            ridge = Ridge(self.moments, _weighing(ctx))
            self.weights = ridge.weights(self.config.gamma / self.moments.num_rows).float()
            missed = (rows @ self.weights).argmax(dim=1) != self.moments.columns_of(labels)
        yield Epoch(ctx.view.task, "statistics", 0, 1, missed.double().mean())

    def _expand(self, ctx: TaskContext, nodes: Tensor | None = None) -> Tensor:
        """Returns the random features of nodes, all by default, ``[m, d]``."""
        unit = EmbeddingRows(ctx.embed(nodes).relu()).unit
        width, generator = self.config.expansion, make_generator(ctx.seed, "expansion")
        drawn = torch.randn(unit.shape[1], width, generator=generator).to(unit)
        return (unit @ drawn).relu_().mul_((2 / width) ** 0.5)

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Returns the scores; classes without a row are never chosen."""
        return self.moments.logits(self._expand(ctx) @ self.weights, ctx.view.num_classes)

    def memory_bytes(self) -> int:
        """Counts the counts, means, scatter and weights."""
        return self.moments.memory_bytes() + self.weights.nbytes + 8

    def state_dict(self) -> dict[str, Any]:
        """Returns the statistics and the weights."""
        return {"moments": self.moments.state_dict(), "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.moments.load_state_dict(state["moments"])
        self.weights, known = state["weights"], self.moments.labels
        if known and (
            self.weights.dtype != torch.float32
            or self.weights.shape != (self.config.expansion, len(known))
            or self.moments.width != self.config.expansion
        ):
            raise ValueError("weights of other statistics")


def _weighing(ctx: TaskContext) -> Weighing:
    """Weighs rows as training is configured to weigh nodes."""
    given = ctx.training.weighing
    if isinstance(given, str):
        return given == "balanced"
    return ctx.named_weights(given, torch.float64)
