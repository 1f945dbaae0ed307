r"""PUMA: pseudo-label guided memory bank (Liu et al., arXiv 2312.14439).

CaT made cheaper and wider: features are propagated once, so that random encoders are wide layers
without a graph; synthetic nodes live among propagated rows; and an MLP is trained anew in the
memory at every task, so that it is not held by what it learned first.

The paper also condenses nodes without a label, by the labels that a network trained on the others
is sure of. These must be nodes that nobody is ever judged on: ``view.unjudged``, which the method
declares that it needs. Under the protocols here every node that is not learned is judged, and the
estimator grants none either: there PUMA pseudo-labels nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from evergraph.events import Epoch, Stage
from evergraph.methods.base import Descent, SearchSpace
from evergraph.methods.condensed import CondensedConfig, Condensing, class_means
from evergraph.methods.context import TaskContext
from evergraph.methods.decoupled import Decoupled, DecoupledConfig


class PUMAConfig(DecoupledConfig, CondensedConfig):
    """Settings of PUMA."""

    encoder_width: int = Field(default=1024, ge=1)  # columns of the random encoder
    #: The least probability by which a node without a label is given one.
    confidence: float = Field(default=0.9, ge=0, le=1)


class PUMA(Decoupled[PUMAConfig], Condensing[PUMAConfig]):
    """Trains anew on synthetic rows that are matched by the means of wide random encoders."""

    Config = PUMAConfig
    summary = "retrains on synthetic rows alone, matched in wide encoders of propagated features"
    paper = (
        "Liu et al., PUMA: Efficient Continual Graph Learning for Node Classification with Graph "
        "Condensation"
    )
    year = 2023
    needs = frozenset({"unjudged"})
    search: ClassVar[SearchSpace] = {
        "hops": ("1", "2", "3", "0+1+2"),
        "condense_lr": (0.003, 0.01, 0.03),
    }
    _guessing = False  # whether what is trained is to label nodes

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Stage | Descent]:
        """Labels what may be labelled, condenses, and trains a new MLP in memory."""
        x, labels = self.trained_rows(ctx), ctx.view.train_labels
        if ctx.view.unjudged.numel():
            self._guessing = True
            yield Descent(stage="pseudo-labels")
            self._guessing = False
            more, guessed = self._pseudo_labelled(ctx)
            ctx.report["pseudo_labelled"] = guessed.numel()
            x, labels = torch.cat([x, more]), torch.cat([labels, guessed])
        with ctx.stage("condense"):
            self.weight = x.new_empty(x.shape[1], self.config.encoder_width)
            yield from self.condense(ctx, x, labels)
        ctx.prepare_model(fresh=True)
        yield Descent()

    def _pseudo_labelled(self, ctx: TaskContext) -> tuple[Tensor, Tensor]:
        """Returns rows and likely labels of nodes that nobody judges, where one is likely."""
        rows = self.rows(ctx).rows(ctx.view.unjudged)
        sure, label = torch.softmax(self.observe_rows(ctx, rows), dim=1).max(dim=1)
        chosen = sure >= self.config.confidence
        return rows[chosen], label[chosen]

    def statistics(self, ctx: TaskContext, rows: Tensor, labels: Tensor) -> Tensor:
        """Averages a wide layer's output by class, ``[k, w]``: one says what many narrow would."""
        return class_means(labels, ctx.view.num_classes) @ (rows @ self.weight).relu()

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on the synthetic rows; on current ones too where labels are guessed."""
        if not self._guessing:
            return super().loss(ctx)
        rows, labels = self.batch_rows(ctx), ctx.batch.labels
        current = ctx.cross_entropy(ctx.forward_rows(rows), labels)
        return current + super().loss(ctx) if len(self.memory) else current
