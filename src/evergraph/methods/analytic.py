r"""Analytic: ridge regression on smoothed features, exact from task to task.

A task adds the moments of its rows (:mod:`evergraph.closed_form`), and moments add up: after any
number of tasks the weights are those of ridge regression on all rows ever taken in, each as it
was when it arrived. No node and no label is kept; what is kept are matrices, and they count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from evergraph.closed_form import (
    CHOICES,
    FeatureConfig,
    HeldRows,
    Moments,
    RidgeSystem,
    RowSource,
    SmoothedFeatures,
    choose_hops,
    left_out_errors,
    readable_hops,
)
from evergraph.events import Epoch
from evergraph.memory import ReplayBuffer, SelectionPool, make_selector
from evergraph.methods.base import Method
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import BufferConfig, eligible_nodes

#: Ridge strengths that leaving one out chooses from; the weights of all rows sum to one.
STRENGTHS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 2e-2, 1e-1)
PRECISIONS = {"double": torch.float64, "single": torch.float32}


class AnalyticConfig(FeatureConfig, BufferConfig):
    """Settings of the analytic learner: those of its rows, and what it keeps of them.

    Attributes:
        hops: As for the rows, or ``auto``: chosen on the first task by leaving one out
            (:mod:`evergraph.closed_form.hops`), then fixed, since statistics need one kind of row.
        rows: ``smoothed`` features, or embeddings of an ``encoder`` that is trained on the first
            task by gradient descent and then frozen.
        statistics: ``arrival`` keeps every row as it was when it arrived; ``refresh`` moves
            each class as a buffer of its nodes moved while the graph grew. Only then are
            ``buffer_size``, ``selector`` and ``r`` used.
        strength: Ridge strength λ; ``auto`` leaves one out on the current training nodes.
        rank: Most directions kept of a class's scatter; None keeps all.
        precision: Precision of what is kept; computation is in double precision.
    """

    hops: str = "auto"
    rows: Literal["smoothed", "encoder"] = "smoothed"
    statistics: Literal["arrival", "refresh"] = "arrival"
    strength: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    rank: int | None = Field(default=None, ge=1)
    precision: Literal["double", "single"] = "double"
    selector: str = "cd"

    @field_validator("hops", mode="before")
    @classmethod
    def _readable_hops(cls, value: object) -> str:
        return "auto" if value == "auto" else readable_hops(value)


class Analytic(Method[AnalyticConfig]):
    """Ridge regression whose statistics are added up task by task."""

    static_step = True
    Config = AnalyticConfig
    summary = "ridge regression on smoothed features, exact over all tasks; no gradient descent"
    paper = "Hoerl and Kennard, Ridge Regression; here recursive, on a growing graph"
    year = 1970
    closed_form = True

    def __init__(self, config: AnalyticConfig) -> None:
        super().__init__(config)
        if config.statistics == "refresh":
            self.buffer = ReplayBuffer(config.buffer_size)
        self.moments = Moments(config.rank, PRECISIONS[config.precision])
        self.kept_rows: Tensor | None = None  # [b, d], of the buffer's nodes, in their order
        self.hops: str | None = None if config.hops == "auto" else config.hops
        self.hop_losses: dict[str, float] = {}  # of every choice of hops, on the first task
        self.errors: dict[float, float] = {}  # of every strength, summed over rows left out
        self._weights: Tensor | None = None
        self._read: tuple[TaskContext, RowSource] | None = None

    def begin_task(self, ctx: TaskContext) -> None:
        """Makes a network for the first task if the rows are embeddings; else needs none."""
        if self.config.rows == "encoder" and ctx.model is None:
            ctx.prepare_model()

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch]:
        """Adds the moments of the training nodes' rows and solves."""
        if ctx.optimizer is not None:  # there is a network that is not trained yet
            yield from ctx.descend(self)
        with ctx.stage("features"):
            self._choose_hops(ctx)
            x = self.rows(ctx).rows(ctx.view.train_nodes)
            self._refresh(ctx)
        with ctx.stage("statistics"):
            self.moments.update(x, ctx.view.train_labels)
        with ctx.stage("solve"):
            system = RidgeSystem(self.moments)
            self._judge_strengths(system, x, ctx.view.train_labels)
            self._weights = system.decompose(self.strength).weights()
        yield Epoch(ctx.view.task, "classify", 0, 1, torch.tensor(self.errors[self.strength]))

    def _choose_hops(self, ctx: TaskContext) -> None:
        """Chooses which hops are read from now on, unless that is settled or there are none."""
        if self.hops is not None or self.config.rows == "encoder":
            return
        source = self._smoothed(ctx, CHOICES[0])
        rows = source.rows_by_hops(ctx.view.train_nodes, CHOICES)
        labels = ctx.view.train_labels
        choice = choose_hops(zip(CHOICES, rows, strict=True), labels, self._strengths)
        self.hops, self.hop_losses = choice.hops, dict(choice.losses)

    @property
    def _strengths(self) -> tuple[float, ...]:
        chosen = self.config.strength
        return STRENGTHS if chosen == "auto" else (float(chosen),)

    def _judge_strengths(self, system: RidgeSystem, x: Tensor, labels: Tensor) -> None:
        """Adds up what every strength cost on rows left out, those of earlier tasks included."""
        for strength, error in left_out_errors(system, x, labels, self._strengths).items():
            self.errors[strength] = self.errors.get(strength, 0.0) + error * labels.numel()

    @property
    def strength(self) -> float:
        """λ: the strength that has cost least so far."""
        return min(self.errors, key=lambda strength: self.errors[strength])

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on the first task's nodes, for an encoder."""
        return ctx.cross_entropy(ctx.forward(ctx.batch.nodes), ctx.batch.labels)

    def end_task(self, ctx: TaskContext) -> None:
        """Chooses the nodes whose rows will be compared, unless nothing is refreshed."""
        if self.buffer is None or ctx.final:
            return
        with ctx.stage("selection"):
            nodes, labels, kept = eligible_nodes(ctx, self.buffer)
            x = self.rows(ctx).rows(nodes)
            pool = SelectionPool(
                nodes=nodes,
                labels=labels,
                h=x.float(),
                logits=(x @ self._solved()).float(),
                features=ctx.view.features,
                adjacency=ctx.adjacency,
                generator=ctx.generator("selection", "cpu"),
                kept=kept,
            )
            self.buffer.update(pool, make_selector(self.config.selector, self.config.r))
            self.kept_rows = self.rows(ctx).rows(self.buffer.nodes).to(self.moments.dtype)

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Multiplies every node's row by the weights; classes without a row are never chosen."""
        shown = self.rows(ctx).times(self._solved())
        logits = shown.new_full((shown.shape[0], ctx.view.num_classes), -1e9)
        logits[:, list(self.moments.classes)] = shown
        return logits

    def _solved(self) -> Tensor:
        """Returns the weights, ``[d, k]``; what was restored solves for them again."""
        if self._weights is None:
            self._weights = RidgeSystem(self.moments).decompose(self.strength).weights()
        return self._weights

    def rows(self, ctx: TaskContext) -> RowSource:
        """Returns the rows of the context's graph; what they need is prepared once."""
        if self._read is None or self._read[0] is not ctx:
            self._read = ctx, self._source(ctx)
        return self._read[1]

    def _source(self, ctx: TaskContext) -> RowSource:
        if self.config.rows == "encoder":
            return HeldRows.of(ctx.embed().relu())
        assert self.hops is not None, "hops are chosen before rows are read"
        return self._smoothed(ctx, self.hops)

    def _smoothed(self, ctx: TaskContext, hops: str) -> SmoothedFeatures:
        config = self.config.model_copy(update={"hops": hops})
        return SmoothedFeatures(ctx.view.features, ctx.adjacency, config, ctx.seed)

    def _refresh(self, ctx: TaskContext) -> None:
        """Moves every class as its kept nodes have moved since they were last looked at."""
        if self.buffer is None or self.kept_rows is None:
            return
        drift = self.rows(ctx).rows(self.buffer.nodes) - self.kept_rows.double()
        labels = self.buffer.labels
        for label in torch.unique(labels).tolist():  # a class may have lost all of its nodes
            self.moments.shift(label, drift[labels == label].mean(dim=0))

    def report(self) -> dict[str, Any]:
        """Tells which strength and hops were chosen and what each has cost on rows left out."""
        errors = {f"{strength:g}": error for strength, error in self.errors.items()}
        told: dict[str, Any] = {"strength": self.strength, "left_out_error": errors}
        if self.hops is not None:
            told["hops"] = self.hops
        if self.hop_losses:
            told["left_out_loss"] = dict(self.hop_losses)
        return told

    def memory_bytes(self) -> int:
        """Counts the moments, what choices cost and, to refresh, the buffer with its rows."""
        kept = 0 if self.kept_rows is None else self.kept_rows.numel()
        judged = len(self.errors) + len(self.hop_losses) + bool(self.hop_losses)  # and the winner
        extra = kept * self.moments.dtype.itemsize + 8 * judged
        return self.moments.memory_bytes() + extra + super().memory_bytes()

    def trim(self, stay: Tensor) -> None:
        """Lets go of nodes with their rows."""
        super().trim(stay)
        if self.kept_rows is not None:
            self.kept_rows = self.kept_rows[stay.to(self.kept_rows.device)]

    def state_dict(self) -> dict[str, Any]:
        """Returns the moments, the choices, the buffer and its rows; the weights follow."""
        return {
            **super().state_dict(),
            "moments": self.moments.state_dict(),
            "errors": {repr(strength): error for strength, error in self.errors.items()},
            "hops": self.hops,
            "hop_losses": dict(self.hop_losses),
            "kept_rows": self.kept_rows,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.moments.load_state_dict(state["moments"])
        self.errors = {float(at): float(error) for at, error in state["errors"].items()}
        self.hops = None if state["hops"] is None else readable_hops(state["hops"])
        self.hop_losses = dict(state["hop_losses"])
        self.kept_rows = state["kept_rows"]
        self._weights = None
        if self.hops is None and self.config.rows != "encoder" and self.moments.classes:
            raise ValueError("moments of unknown rows")
        rows, buffer = self.kept_rows, self.buffer
        if rows is not None and (buffer is None or rows.ndim != 2 or len(rows) != len(buffer)):
            raise ValueError("rows of other nodes")
