"""DSLR: diversity and structure learning for rehearsal (Choi et al., WWW 2024).

Each task follows Algorithm 1 of the paper. From the second task on, a link predictor is
trained and the neighbourhood of replayed nodes is refined; then the network learns the
current and the replayed nodes on the refined graph; at last the buffer is filled by
coverage, and each kept node is given candidates for its next refinement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from evergraph.events import Epoch
from evergraph.methods.base import Descent, SearchSpace
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import REPLAY_SEARCH, ReplayBase, ReplayConfig
from evergraph.structure import (
    LinkRandomness,
    Refinement,
    Sampling,
    StructureConfig,
    nearest_nodes,
    refine,
    train_link_predictor,
    unique_pairs,
)


class DSLRConfig(StructureConfig, ReplayConfig):
    """Settings of DSLR: those of replay and of structure learning."""

    selector: str = "cd"


class DSLR(ReplayBase[DSLRConfig]):
    """Coverage-based replay whose nodes get informative neighbours."""

    Config = DSLRConfig
    summary = "diverse replay buffer by coverage, structure learning for replayed nodes"
    paper = (
        "Choi et al., DSLR: Diversity Enhancement and Structure Learning for Rehearsal-based GCL"
    )
    year = 2024
    search: ClassVar[SearchSpace] = {  # of the paper
        **REPLAY_SEARCH,
        "lam": (0.0, 0.25, 0.5, 0.75, 1.0),
        "num_neighbors": (1, 2, 3, 4, 5),
        "num_candidates": (25, 50, 75, 100),
        "tau": (0.75, 0.8, 0.85, 0.9, 0.95),
        "r": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    }

    def __init__(self, config: DSLRConfig) -> None:
        super().__init__(config)
        self.refinement: Refinement | None = None

    @property
    def candidates(self) -> Tensor | None:
        """The K nearest nodes of each kept node when it was last chosen, ``[b, K]``."""
        return self.buffer.neighbours.get("candidates")

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Descent]:
        """Algorithm 1, lines 1 to 11: structure first, then node classification."""
        self.refinement = None
        if len(self.buffer):
            if self.config.structure == "learned":
                yield from self._learn_structure(ctx)
            elif self.config.structure == "homophily":
                self._connect_same_class(ctx)
        if self.refinement is not None:
            ctx.report["structure"] = self.refinement.summary()
        yield Descent()

    def end_task(self, ctx: TaskContext) -> None:
        """Algorithm 1, lines 12 to 18: buffer selection, then candidates."""
        before = self.buffer.nodes
        super().end_task(ctx)
        if ctx.final:
            return
        with ctx.stage("candidates"):
            h = ctx.embed()
            if self.config.structure == "learned" and self.config.candidates == "nearest":
                nearest = nearest_nodes(h, self.buffer.nodes, self.config.num_candidates)
                self.buffer.neighbours["candidates"] = nearest
            elif self.config.structure == "homophily":
                self._remember_same_class(ctx, h, before)

    def _learn_structure(self, ctx: TaskContext) -> Iterator[Epoch]:
        """Trains the link predictor and refines the graph (Eq. 6 to 11)."""
        epochs = train_link_predictor(
            ctx.view,
            self.replayed(),
            self.config,
            ctx.model_config,
            beta=self.beta(ctx),
            randomness=LinkRandomness(
                init=ctx.generator("link init", "cpu"),
                dropout=ctx.generator("link dropout"),
                negatives=ctx.generator("link negatives"),
            ),
            sampling=self._sampling(ctx),
        )
        with ctx.stage("structure"):
            z = yield from ctx.narrate(epochs, "structure", self.config.link_epochs)
        with ctx.stage("inference"):
            rows = self._refined_rows(ctx)
            ctx.adjacency, self.refinement = refine(
                ctx.view.adjacency,
                self.buffer.nodes[rows],
                None if self.candidates is None else self.candidates[rows],
                z,
                self.config,
            )

    def _sampling(self, ctx: TaskContext) -> Sampling | None:
        """Trains the link predictor on parts of the graph where the classifier is."""
        if ctx.batch_size is None:
            return None
        steps = -(-ctx.view.train_nodes.numel() // ctx.batch_size)
        return Sampling(ctx.batch_size, lambda nodes: ctx.sample(nodes, ctx.view.adjacency), steps)

    def _refined_rows(self, ctx: TaskContext) -> Tensor:
        """Draws the share of the buffer that is refined, all of it by default."""
        size = len(self.buffer)
        order = torch.randperm(size, generator=ctx.generator("sl ratio", "cpu"))
        count = round(self.config.sl_ratio * size)
        return torch.sort(order[:count]).values.to(ctx.device)

    def _remember_same_class(self, ctx: TaskContext, h: Tensor, before: Tensor) -> None:
        """Finds same-class training nodes while their labels may be read (ablation row 5)."""
        known = self.buffer.neighbours.get("same class")
        # A node that has no such neighbour stands for itself, which joins nothing.
        near = self.buffer.nodes[:, None].repeat(1, self.config.num_neighbors)
        for label in torch.unique(self.buffer.labels).tolist():
            rows = self.buffer.labels == label
            among = ctx.view.train_nodes[ctx.view.train_labels == label]
            if among.numel():
                found = nearest_nodes(h, near[rows, 0], self.config.num_neighbors, among)
                near[rows, : found.shape[1]] = found
            elif known is not None:
                near[rows] = known[torch.isin(before, near[rows, 0])]
        self.buffer.neighbours["same class"] = near

    def _connect_same_class(self, ctx: TaskContext) -> None:
        """Adds the remembered same-class neighbours; deletes nothing (ablation row 5)."""
        near = self.buffer.neighbours["same class"]
        owners = self.buffer.nodes[:, None].expand_as(near)
        pairs = torch.stack([owners.flatten(), near.flatten()])
        added = unique_pairs(pairs)
        known = ctx.view.adjacency.has_edges(added[0], added[1])
        added = added[:, ~known & (added[0] != added[1])]
        self.refinement = Refinement(added, added[:, :0], len(self.buffer))
        ctx.adjacency = ctx.view.adjacency.edit(add=added, remove=added[:, :0])
