"""Replay and ER-GNN: train on the current nodes and a small buffer of old ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from evergraph.errors import InputError, unknown_name
from evergraph.memory import SELECTORS, ReplayBuffer, SelectionPool, Selector
from evergraph.memory.buffer import carried_over
from evergraph.methods.base import Method, MethodConfig, SearchSpace
from evergraph.methods.context import TaskContext

#: Where something is kept beside nodes, its name there, and the rows of some nodes.
Beside = tuple[dict[str, Tensor], str, Tensor]
Beta = Annotated[float, Field(ge=0, le=1)] | Literal["share", "none"]
#: What replay under a weight is tuned by; β is the paper's grid and one value above it.
REPLAY_SEARCH: SearchSpace = {
    "beta": (0.01, 0.05, 0.1, 0.2, 0.3, 0.5),
    "replay_weights": ("none", "balanced"),
}


class BufferConfig(MethodConfig):
    """Settings of every method that keeps nodes."""

    buffer_size: int = Field(default=100, ge=1)  # |B|, the most nodes kept
    selector: str = "random"  # which nodes are kept
    #: Radius of the selectors that have one, relative to the mean distance.
    r: float = Field(default=0.3, ge=0)

    @field_validator("selector")
    @classmethod
    def _known_selector(cls, name: str) -> str:
        if name not in SELECTORS:
            raise unknown_name("selector", name, SELECTORS)
        return name

    def unused(self) -> frozenset[str]:
        """Names the radius where the selector has none."""
        return (
            frozenset() if hasattr(SELECTORS[self.selector].make(self.r), "r") else frozenset({"r"})
        )


class ReplayConfig(BufferConfig):
    """Settings of every method that replays nodes under a weight."""

    former: ClassVar[Mapping[str, Any]] = {"embedding": "hidden"}
    #: β, weight of the current nodes; ``share`` is ER-GNN's |B| / (|B| + |D|), ``none`` averages
    #: over both sets at once.
    beta: Beta = 0.1
    #: ``balanced`` lets every class of the buffer weigh the same, ``none`` every node (decision
    #: 0005).
    replay_weights: Literal["none", "balanced"] = "none"
    #: What selectors and candidates are chosen by: the last ``hidden`` layer, or the printed
    #: ``logits``, which enter the softmax (decision 0003).
    embedding: Literal["hidden", "logits"] = "hidden"

    @model_validator(mode="after")
    def _weights_need_beta(self) -> ReplayConfig:
        if self.beta == "none" and self.replay_weights == "balanced":
            raise InputError(
                "Expected 'replay_weights' none when 'beta' is none (got 'balanced'): without beta "
                "there is no replay term to weigh; set one of them."
            )
        return self


BufferT = TypeVar("BufferT", bound=BufferConfig)
ConfigT = TypeVar("ConfigT", bound=ReplayConfig)


class BufferBase(Method[BufferT]):
    """What methods with a buffer of nodes share: the selection."""

    buffer: ReplayBuffer

    def __init__(self, config: BufferT) -> None:
        super().__init__(config)
        self.buffer = ReplayBuffer(config.buffer_size)

    def end_task(self, ctx: TaskContext) -> None:
        """Selects the nodes of this task's classes, unless no task follows."""
        if ctx.final:
            return
        with ctx.stage("selection"):
            pool = selection_pool(ctx, self.buffer, partial(self.show, ctx))
            before = self.buffer.nodes.to(ctx.device)
            self.buffer.update(pool, self.selector(), ctx.team)
            now = self.buffer.nodes
            for kept, name, rows in self.beside(ctx, now[~torch.isin(now, before)]):
                kept[name] = carried_over(before, kept.get(name), now, rows)

    def beside(self, ctx: TaskContext, nodes: Tensor) -> Iterator[Beside]:
        """Yields what is kept of newly chosen nodes beside their ids, as it is now."""
        yield from ()

    def show(self, ctx: TaskContext, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns logits and embeddings of nodes, all by default, to choose by."""
        return ctx.observe(nodes)[:2]

    def selector(self) -> Selector:
        """Makes the selector of the settings."""
        return SELECTORS[self.config.selector].make(self.config.r)


class ReplayBase(BufferBase[ConfigT]):
    """What methods share that weigh current and kept nodes: the loss."""

    def loss(self, ctx: TaskContext) -> Tensor:
        """Weighs current and replayed nodes: β·CE(current) + (1 − β)·CE(buffer) (Eq. 12)."""
        if len(self.buffer) == 0:
            return super().loss(ctx)
        return self.weighed(ctx, *ctx.replay(self.buffer.labelled, *self.weights(ctx)))

    def weights(self, ctx: TaskContext) -> list[Tensor]:
        """Returns the weight of each kept node, ``[b]``, if they are weighed."""
        if self.config.replay_weights == "none":
            return []
        labels = self.buffer.labels
        return [ctx.once("replay weights", lambda: 1 / torch.bincount(labels)[labels])]

    def weighed(
        self,
        ctx: TaskContext,
        logits: Tensor,
        old_logits: Tensor,
        old_labels: Tensor,
        *weight: Tensor,
    ) -> Tensor:
        """Weighs the losses of the batch and of replayed nodes, given their logits."""
        if self.config.beta == "none" and ctx.batch_size is None:
            labels = torch.cat([ctx.batch.labels, old_labels])
            return ctx.cross_entropy(torch.cat([logits, old_logits]), labels)
        beta = self.beta(ctx)
        current = ctx.cross_entropy(logits, ctx.batch.labels)
        replayed = ctx.cross_entropy(old_logits, old_labels, *weight)
        return beta * current + (1 - beta) * replayed

    def show(self, ctx: TaskContext, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns logits and embeddings of nodes; influence is of the head, which reads h."""
        logits, h = super().show(ctx, nodes)
        literal = self.config.embedding == "logits" and self.config.selector != "im"
        return logits, logits if literal else h

    def beta(self, ctx: TaskContext) -> float:
        """Returns β as a number; when it is not used, the share of current nodes."""
        kept, current = len(self.buffer), ctx.view.train_nodes.numel()
        if self.config.beta == "share":
            return kept / (kept + current)
        if self.config.beta == "none":
            return current / (kept + current)
        return float(self.config.beta)


def selection_pool(
    ctx: TaskContext,
    buffer: ReplayBuffer,
    show: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> SelectionPool:
    """Gathers what may be kept: training nodes and the kept ones of returning classes, by id.

    ``show`` gives the logits and embeddings of nodes.
    """
    nodes, labels = ctx.view.train_nodes, ctx.view.train_labels
    kept = buffer.labelled if len(buffer) else None
    if kept is not None:
        returning = torch.isin(kept.labels, labels) & ~torch.isin(kept.nodes, nodes)
        nodes = torch.cat([nodes, kept.nodes[returning]])
        labels = torch.cat([labels, kept.labels[returning]])
        order = torch.argsort(nodes)
        nodes, labels = nodes[order], labels[order]
    logits, h = show(nodes)
    return SelectionPool(
        nodes=nodes,
        labels=labels,
        h=h,
        features=ctx.view.features,
        adjacency=ctx.adjacency,
        generator=ctx.generator("selection", "cpu"),
        logits=logits,
        kept=kept,
    )


class Replay(ReplayBase[ReplayConfig]):
    """Experience replay with a weighted loss and any selector, random by default."""

    Config = ReplayConfig
    summary = "experience replay with any selector, random by default"
    paper = "Rolnick et al., Experience Replay for Continual Learning"
    year = 2019
    search = REPLAY_SEARCH
    local = True
    parallel = "batches"


class ERGNNConfig(ReplayConfig):
    """Settings of ER-GNN: those of replay with the paper's β and selector."""

    selector: str = "mf"
    beta: Beta = "share"


class ERGNN(ReplayBase[ERGNNConfig]):
    """Experience replay for graphs, whose current nodes weigh as much as the buffer's share.

    β = |B| / (|B| + |D|), |D| the training nodes of the current task: the smaller the buffer, the
    more its nodes weigh. The paper keeps nodes by mean of features (MF, the default here),
    coverage (CM) or influence maximisation (IM); any other selector may be set.
    """

    Config = ERGNNConfig
    summary = "experience replay weighed by the buffer's share, nodes by MF, CM or IM"
    paper = (
        "Zhou and Cao, Overcoming Catastrophic Forgetting in Graph Neural Networks with "
        "Experience Replay"
    )
    year = 2021
    local = True
    parallel = "batches"
    search: ClassVar[SearchSpace] = {
        "selector": ("mf", "cm", "im"),
        "replay_weights": ("none", "balanced"),
    }
