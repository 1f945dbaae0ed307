r"""Analytic: ridge regression on smoothed features, exact from task to task.

A task adds the moments of its rows (:mod:`evergraph.closed_form`), and moments add up: after any
number of tasks the weights are those of ridge regression on all rows ever taken in, moved as far
as the nodes seen by then have moved on average. A node's scores are then read with its neighbours'.
No node and no label is kept; what is kept are matrices, and they count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from evergraph.closed_form import (
    CHOICES,
    Drift,
    Evidence,
    FeatureConfig,
    HeldRows,
    Known,
    Moments,
    Reader,
    RidgeSystem,
    RowSource,
    SmoothedFeatures,
    Surroundings,
    choose_hops,
    left_out_errors,
    readable_hops,
)
from evergraph.events import Epoch
from evergraph.memory import SELECTORS, ReplayBuffer, SelectionPool
from evergraph.methods.base import Descent, Method
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import BufferConfig, eligible_nodes
from evergraph.stream.tasks import LabelledNodes

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
        statistics: ``follow`` moves all classes as the nodes seen before moved on average while
            the graph grew; ``arrival`` keeps every row as it was when it arrived; ``refresh`` moves
            each class as a buffer of its nodes moved. Only then are ``buffer_size``, ``selector``
            and ``r`` used.
        strength: Ridge strength λ; ``auto`` leaves one out on the current training nodes.
        share: Share of a node's scores that comes from its neighbours' scores; ``auto`` judges
            it by leaving one out on the current training nodes.
        beliefs: Whether nodes then hear what their neighbours are believed to be (``on``) or not
            (``off``); ``auto`` judges it by leaving out groups of the current training nodes.
        rank: Most directions kept of a class's scatter; None keeps all.
        precision: Precision of what is kept; computation is in double precision.
    """

    hops: str = "auto"
    rows: Literal["smoothed", "encoder"] = "smoothed"
    statistics: Literal["follow", "arrival", "refresh"] = "follow"
    strength: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    share: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = "auto"
    beliefs: Literal["auto", "on", "off"] = "auto"
    rank: int | None = Field(default=None, ge=1)
    precision: Literal["double", "single"] = "double"
    selector: str = "cd"

    @field_validator("hops", mode="before")
    @classmethod
    def _readable_hops(cls, value: object) -> str:
        return "auto" if value == "auto" else readable_hops(value)


class Analytic(Method[AnalyticConfig]):
    """Ridge regression whose statistics are added up task by task."""

    Config = AnalyticConfig
    summary = "ridge regression on smoothed features, exact over all tasks; no gradient descent"
    paper = "Hoerl and Kennard, Ridge Regression; here recursive, on a growing graph"
    year = 1970

    def __init__(self, config: AnalyticConfig) -> None:
        super().__init__(config)
        if config.statistics == "refresh":
            self.buffer = ReplayBuffer(config.buffer_size)
        self.moments = Moments(config.rank, PRECISIONS[config.precision])
        self.kept_rows: Tensor | None = None  # [b, d], of the buffer's nodes, in their order
        self.hops: str | None = None if config.hops == "auto" else config.hops
        self.hop_losses: dict[str, float] = {}  # of every choice of hops, on the first task
        self.strengths = Evidence()  # squared errors of rows left out
        self.reader = Reader(config.share, config.beliefs)
        self.drift = Drift(PRECISIONS[config.precision])
        self.num_seen = 0  # nodes by the last task
        self._weights: Tensor | None = None
        self._place: tuple[TaskContext, Surroundings] | None = None

    def begin_task(self, ctx: TaskContext) -> None:
        """Makes a network for the first task if the rows are embeddings; else needs none."""
        if self.config.rows == "encoder" and ctx.model is None:
            ctx.prepare_model()

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Descent]:
        """Adds the moments of the training nodes' rows and solves."""
        if ctx.optimizer is not None:  # there is a network that is not trained yet
            yield Descent()
        with ctx.stage("features"):
            self._choose_hops(ctx)
            x = self.rows(ctx).rows(ctx.view.train_nodes)
            self._follow(ctx)
            self._refresh(ctx)
        with ctx.stage("statistics"):
            known = Known(self.num_seen, tuple(self.moments.classes))
            self.moments.update(x, ctx.view.train_labels)
        with ctx.stage("solve"):
            system = RidgeSystem(self.moments)
            errors = left_out_errors(system, x, ctx.view.train_labels, self._strengths)
            self.strengths.add(errors, x.shape[0])
            factor = system.decompose(self.strength)
            self._weights = factor.weights()
        with ctx.stage("reading"):
            trained = LabelledNodes(ctx.view.train_nodes, ctx.view.train_labels)
            self.reader.judge(factor, self._surroundings(ctx), trained, known, x)
        self.num_seen = ctx.view.num_nodes
        ctx.report |= self.report()
        yield Epoch(
            ctx.view.task, "classify", 0, 1, torch.tensor(self.strengths.costs[self.strength])
        )

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

    @property
    def strength(self) -> float:
        """λ: the strength that has cost least so far."""
        return self.strengths.best

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
            self.buffer.update(pool, SELECTORS[self.config.selector].make(self.config.r))
            self.kept_rows = self.rows(ctx).rows(self.buffer.nodes).to(self.moments.dtype)

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Reads every node's scores through the graph; classes without a row are never chosen."""
        place = self._surroundings(ctx)
        shown = self.reader.read(place.rows.times(self._solved()), place)
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
        return self._surroundings(ctx).rows

    def _surroundings(self, ctx: TaskContext) -> Surroundings:
        if self._place is None or self._place[0] is not ctx:
            features = self._smoothed(ctx, "0")
            self._place = ctx, Surroundings(self._source(ctx), features, ctx.adjacency)
        return self._place[1]

    def _source(self, ctx: TaskContext) -> RowSource:
        if self.config.rows == "encoder":
            return HeldRows.of(ctx.embed().relu())
        assert self.hops is not None, "hops are chosen before rows are read"
        return self._smoothed(ctx, self.hops)

    def _smoothed(self, ctx: TaskContext, hops: str) -> SmoothedFeatures:
        config = self.config.model_copy(update={"hops": hops})
        return SmoothedFeatures(ctx.view.features, ctx.adjacency, config, ctx.seed)

    def _follow(self, ctx: TaskContext) -> None:
        """Moves all classes as the nodes seen before have moved, and looks where all are now."""
        if self.config.statistics != "follow":
            return
        moved = self.drift.since(self.rows(ctx), self.num_seen)
        if moved is not None:
            for label in self.moments.classes:
                self.moments.shift(label, moved)
        self.drift.look(self.rows(ctx), ctx.view.num_nodes)

    def _refresh(self, ctx: TaskContext) -> None:
        """Moves every class as its kept nodes have moved since they were last looked at."""
        if self.buffer is None or self.kept_rows is None:
            return
        drift = self.rows(ctx).rows(self.buffer.nodes) - self.kept_rows.double()
        labels = self.buffer.labels
        for label in torch.unique(labels).tolist():  # a class may have lost all of its nodes
            self.moments.shift(label, drift[labels == label].mean(dim=0))

    def report(self) -> dict[str, Any]:
        """Tells which strength, hops and way of reading were chosen and what each has cost."""
        told = {"strength": self.strength, **self.reader.report()}
        told["left_out_error"] = self.strengths.told()
        if self.hops is not None:
            told["hops"] = self.hops
        if self.hop_losses:
            told["left_out_loss"] = dict(self.hop_losses)
        return told

    def memory_bytes(self) -> int:
        """Counts the moments, the mean row, what choices cost, and the buffer with its rows."""
        kept = 0 if self.kept_rows is None else self.kept_rows.numel()
        numbers = len(self.hop_losses) + bool(self.hop_losses) + 1  # the winner, the nodes seen
        parts = (self.moments, self.strengths, self.reader, self.drift)
        extra = kept * self.moments.dtype.itemsize + 8 * numbers
        return sum(part.memory_bytes() for part in parts) + extra + super().memory_bytes()

    def trim(self, stay: Tensor) -> None:
        """Lets go of nodes with their rows."""
        super().trim(stay)
        if self.kept_rows is not None:
            self.kept_rows = self.kept_rows[stay.to(self.kept_rows.device)]

    def renumber(self, new_rows: Tensor) -> None:
        """Counts who is left of the nodes seen; a mean row that holds others is of no use."""
        super().renumber(new_rows)
        stay = new_rows[: self.num_seen] >= 0
        if not bool(stay.all()):
            self.drift.mean = None
        self.num_seen = int(stay.sum())

    def state_dict(self) -> dict[str, Any]:
        """Returns the moments, the choices, the buffer and its rows; the weights follow."""
        return {
            **super().state_dict(),
            "moments": self.moments.state_dict(),
            "strengths": self.strengths.state_dict(),
            "reader": self.reader.state_dict(),
            "hops": self.hops,
            "hop_losses": dict(self.hop_losses),
            "kept_rows": self.kept_rows,
            "num_seen": self.num_seen,
            "mean_row": self.drift.mean,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.moments.load_state_dict(state["moments"])
        self.strengths.load_state_dict(state["strengths"])
        self.reader.load_state_dict(state["reader"])
        self.hops = None if state["hops"] is None else readable_hops(state["hops"])
        self.hop_losses = dict(state["hop_losses"])
        self.kept_rows = state["kept_rows"]
        self.num_seen = int(state["num_seen"])
        self.drift.mean = state["mean_row"]
        self._weights = None
        if self.hops is None and self.config.rows != "encoder" and self.moments.classes:
            raise ValueError("moments of unknown rows")
        widths = {part.mean.shape for part in self.moments.classes.values()}
        if self.num_seen < 0 or (self.drift.mean is not None and {self.drift.mean.shape} - widths):
            raise ValueError("a mean of other rows")
        rows, buffer = self.kept_rows, self.buffer
        if rows is not None and (buffer is None or rows.ndim != 2 or len(rows) != len(buffer)):
            raise ValueError("rows of other nodes")
