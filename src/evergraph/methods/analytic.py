r"""Analytic: ridge regression on propagated features, exact from task to task.

A task adds the moments of its rows (:mod:`evergraph.closed_form`), and moments add up: after any
number of tasks the weights are those of ridge regression on all rows ever taken in, moved as far
as the nodes seen by then have moved on average. A node's scores are then propagated over the graph.
What is kept lists neither nodes nor labels, but both can be recovered from it and the graph while
a class has fewer rows than columns (docs/privacy.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from evergraph.closed_form.cross_validation import ValidationLoss
from evergraph.closed_form.features import (
    EmbeddingRows,
    FeatureConfig,
    PropagatedFeatures,
    Rows,
    readable_hops,
)
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.ridge import Ridge, RidgeSystem
from evergraph.closed_form.selection import Selection
from evergraph.errors import InputError
from evergraph.events import Epoch
from evergraph.memory import SELECTORS, ReplayBuffer
from evergraph.methods.base import Descent, Method
from evergraph.methods.context import TaskContext, TrainConfig
from evergraph.methods.replay import BufferConfig, selection_pool
from evergraph.nn import ModelConfig
from evergraph.stream.tasks import GraphView, LabelledNodes

PRECISIONS = {"double": torch.float64, "single": torch.float32}
#: Settings that 0.1.0 had under another name; its share was 1 − teleport.
FORMER = {"teleport": "share", "mean_field": "beliefs"}


class AnalyticConfig(FeatureConfig, BufferConfig):
    """Settings of the analytic learner: those of its rows, and what it keeps of them.

    Attributes:
        hops: As for the rows, or ``auto``: chosen on the first task by cross-validated loss
            (:mod:`evergraph.closed_form.selection`), then fixed, since moments need one kind of
            row.
        rows: ``smoothed`` features, or embeddings of an ``encoder`` that is trained on the first
            task by gradient descent and then frozen.
        statistics: ``follow`` moves all classes as the nodes seen before moved on average while
            the graph grew; ``arrival`` keeps every row as it was when it arrived; ``refresh`` moves
            each class as a buffer of its nodes moved. Only then are ``buffer_size``, ``selector``
            and ``r`` used.
        strength: Ridge strength λ; ``auto`` chooses by leave-one-out error.
        teleport: Teleport probability α of score propagation; 1 propagates nothing, ``auto``
            chooses by cross-validated loss.
        mean_field: Whether mean-field inference follows; ``auto`` chooses by cross-validated loss.
        rank: Most directions kept of a class's scatter; None keeps all.
        precision: Precision of what is kept; computation is in double precision.
    """

    hops: str = "auto"
    rows: Literal["smoothed", "encoder"] = "smoothed"
    statistics: Literal["follow", "arrival", "refresh"] = "follow"
    strength: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    teleport: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = "auto"
    mean_field: Literal["auto", True, False] = "auto"
    rank: int | None = Field(default=None, ge=1)
    precision: Literal["double", "single"] = "double"
    selector: str = "cd"
    share: Any = Field(default=None, exclude=True, deprecated=True)
    beliefs: Any = Field(default=None, exclude=True, deprecated=True)

    @field_validator("hops", mode="before")
    @classmethod
    def _readable_hops(cls, value: object) -> str:
        return "auto" if value == "auto" else readable_hops(value)

    @field_validator("mean_field", mode="before")
    @classmethod
    def _on_or_off(cls, value: object) -> object:
        return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _former_names(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Takes the names of 0.1.0 for one more release."""
        found = dict(values)
        for new, old in FORMER.items():
            if old not in found:
                continue
            if new in found:
                raise InputError(f"Expected '{new}' alone (got '{old}' too); leave '{old}' out.")
            text = f"The setting '{old}' of 'analytic' is deprecated; set '{new}' instead."
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            found[new] = _translated(found.pop(old))
        return found

    def unused(self) -> frozenset[str]:
        """Names the network's settings where there is none, and the buffer's likewise."""
        network = {*TrainConfig.model_fields, *ModelConfig.model_fields}
        buffer = set(BufferConfig.model_fields)
        return frozenset(
            (network if self.rows == "smoothed" else set())
            | (buffer if self.statistics != "refresh" else set())
        )

    @classmethod
    def hashed_as(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings as 0.1.0 wrote them, so that its runs are known by their hash."""
        return {
            FORMER.get(key, key): _translated(value) if key in FORMER else value
            for key, value in settings.items()
        }


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
        self.mean_row: Tensor | None = None  # [d], of all nodes seen by the last task
        self.mean_of = 0  # so many
        self.selection = Selection(config.hops, config.strength, config.teleport, config.mean_field)
        self._weights: Tensor | None = None

    def begin_task(self, ctx: TaskContext) -> None:
        """Makes a network for the first task if the rows are embeddings; else needs none."""
        if self.config.rows == "encoder" and ctx.model is None:
            ctx.prepare_model()

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Descent]:
        """Adds the moments of the training nodes' rows, solves, and chooses how to infer."""
        self.config.check_memory(ctx.view.num_features, ctx.view.train_nodes.numel())
        if ctx.optimizer is not None:  # there is a network that is not trained yet
            yield Descent()
        trained = LabelledNodes(ctx.view.train_nodes, ctx.view.train_labels)
        features = self._propagated(ctx, "0")
        with ctx.stage("features"):
            if self.config.rows != "encoder":
                self.selection.select_hops(features, trained)
            rows = self.rows(ctx)
            x = rows.rows(trained.nodes)
            self._follow(rows, ctx.view)
            self._refresh(rows)
        with ctx.stage("statistics"):
            old_classes = set(self.moments.classes)
            self.moments.update(x, trained.labels)
        with ctx.stage("solve"):
            system = RidgeSystem(self.moments)
            train = system.training_rows(x, trained.labels)
            ridge = self.selection.solve(system, train)
            self._weights = ridge.weights
        with ctx.stage("inference"):
            validation = ValidationLoss(system, trained, ctx.view.num_old, old_classes)
            self.selection.select_inference(
                ridge, train, validation, rows=rows, features=features, graph=ctx.adjacency
            )
        ctx.report |= self.selection.report()
        error = self.selection.losses["strength"][self.selection.strength]
        yield Epoch(ctx.view.task, "classify", 0, 1, torch.tensor(error))

    def rows(self, ctx: TaskContext) -> Rows:
        """Returns the rows of the context's graph."""
        if self.config.rows == "encoder":
            return EmbeddingRows(ctx.embed().relu())
        assert self.selection.hops is not None, "hops are chosen before rows are computed"
        return self._propagated(ctx, self.selection.hops)

    def _propagated(self, ctx: TaskContext, hops: str) -> PropagatedFeatures:
        """Returns propagated features; what they need is prepared once per graph."""
        if hops not in ctx.prepared:
            config = self.config.model_copy(update={"hops": hops})
            rows = PropagatedFeatures(ctx.view.features, ctx.adjacency, config, ctx.seed)
            ctx.prepared[hops] = rows
        found: PropagatedFeatures = ctx.prepared[hops]
        return found

    def _follow(self, rows: Rows, view: GraphView) -> None:
        """Moves all classes as the nodes seen before have moved on average since.

        A mean over nodes of which some are gone tells nothing about the others.
        """
        if self.config.statistics != "follow":
            return
        if self.mean_row is not None and self.mean_of == view.num_old:
            moved = rows.mean(view.num_old) - self.mean_row.double()
            for label in self.moments.classes:
                self.moments.shift(label, moved)
        self.mean_row = rows.mean(view.num_nodes).to(self.moments.dtype)
        self.mean_of = view.num_nodes

    def _refresh(self, rows: Rows) -> None:
        """Moves every class as its kept nodes have moved since the last task."""
        if self.buffer is None or "features" not in self.buffer.rows:
            return
        moved = rows.rows(self.buffer.nodes) - self.buffer.rows["features"].double()
        labels = self.buffer.labels
        for label in torch.unique(labels).tolist():  # a class may have lost all of its nodes
            self.moments.shift(label, moved[labels == label].mean(dim=0))

    def end_task(self, ctx: TaskContext) -> None:
        """Chooses the nodes whose rows will be compared, unless nothing is refreshed."""
        if self.buffer is None or ctx.final:
            return
        with ctx.stage("selection"):
            rows = self.rows(ctx)

            def show(nodes: Tensor) -> tuple[Tensor, Tensor]:
                x = rows.rows(nodes)
                return (x @ self._solved()).float(), x.float()

            selector = SELECTORS[self.config.selector].make(self.config.r)
            self.buffer.update(selection_pool(ctx, self.buffer, show), selector)
            kept_rows = rows.rows(self.buffer.nodes).to(self.moments.dtype)
            self.buffer.rows["features"] = kept_rows

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Infers every node's class in the graph; classes without a row are never chosen."""
        scores = self.rows(ctx).times(self._solved())
        found = self.selection.infer(scores, self._propagated(ctx, "0"), ctx.adjacency)
        logits = found.new_full((found.shape[0], ctx.view.num_classes), -1e9)
        logits[:, list(self.moments.classes)] = found
        return logits

    def _solved(self) -> Tensor:
        """Returns the weights, ``[d, k]``; what was restored solves for them again."""
        if self._weights is None:
            self._weights = Ridge(RidgeSystem(self.moments), self.selection.strength).weights
        return self._weights

    def memory_bytes(self) -> int:
        """Counts the moments, the mean row, the losses, the nodes seen, the buffer and its rows."""
        mean = 0 if self.mean_row is None else self.mean_row.nbytes
        parts = self.moments.memory_bytes() + self.selection.memory_bytes()
        return parts + mean + 8 + super().memory_bytes()

    def state_dict(self) -> dict[str, Any]:
        """Returns the moments, the choices, the buffer and its rows; the weights follow."""
        return {
            **super().state_dict(),
            **self.selection.state_dict(),
            "moments": self.moments.state_dict(),
            "mean_row": self.mean_row,
            "mean_of": self.mean_of,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned, or 0.1.0 wrote."""
        super().load_state_dict(state)
        self.selection.load_state_dict(state)
        self.moments.load_state_dict(state["moments"])
        count = state["mean_of"] if "mean_of" in state else state["num_seen"]
        self.mean_row, self.mean_of = state["mean_row"], int(count)
        self._weights = None
        self._check_restored()

    def _check_restored(self) -> None:
        """Refuses parts that do not belong to each other or to the settings."""
        width, hops, config = self.moments.width, self.selection.hops, self.config
        if width is not None and config.rows != "encoder":
            blocks = 1 if config.combine == "sum" else str(hops).count("+") + 1
            other = hops is None or config.hops not in ("auto", hops) or width % blocks
            if other or config.projection not in (None, width // blocks):
                raise ValueError("moments of other settings")
        kept = None if self.buffer is None else self.buffer.rows.get("features")
        mean = self.mean_row
        if (mean is not None and mean.shape != (width,)) or (
            kept is not None and kept.shape[1:] != (width,)
        ):
            raise ValueError("rows of other columns")
        if self.mean_of < 0:
            raise ValueError("a negative number of nodes")


def _translated(value: Any) -> Any:
    """Turns a value of 0.1.0's ``share`` or ``beliefs`` into today's, or back."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return round(1 - value, 12) if isinstance(value, int | float) else value
