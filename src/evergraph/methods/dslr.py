"""DSLR: diversity and structure learning for rehearsal (Choi et al., WWW 2024).

Each task follows Algorithm 1 of the paper. From the second task on, a link predictor is
trained and the neighbourhood of replayed nodes is refined; then the network learns the
current and the replayed nodes on the refined graph; at last the buffer is filled by
coverage, and each kept node is given candidates for its next refinement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from evergraph.events import Epoch
from evergraph.memory.buffer import moved
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
        self.candidates: Tensor | None = None  # [b, K], rows aligned with the buffer's nodes
        self.same_class: dict[int, Tensor] = {}  # class → [e, N], only for 'homophily'
        self.refinement: Refinement | None = None

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
        super().end_task(ctx)
        if ctx.final:
            return
        with ctx.stage("candidates"):
            h = ctx.embed()
            if self.config.structure == "learned" and self.config.candidates == "nearest":
                self.candidates = nearest_nodes(h, self.buffer.nodes, self.config.num_candidates)
            elif self.config.structure == "homophily":
                self._remember_same_class(ctx, h)

    def _learn_structure(self, ctx: TaskContext) -> Iterator[Epoch]:
        """Trains the link predictor and refines the graph (Eq. 5 to 10)."""
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

    def _remember_same_class(self, ctx: TaskContext, h: Tensor) -> None:
        """Finds same-class training nodes while their labels may be read (ablation row 5)."""
        for label in torch.unique(ctx.view.train_labels).tolist():
            among = ctx.view.train_nodes[ctx.view.train_labels == label]
            picks = self.buffer.picks[label]
            self.same_class[label] = nearest_nodes(h, picks, self.config.num_neighbors, among)
        self.same_class = {
            label: self.same_class[label][: picks.numel()]
            for label, picks in self.buffer.picks.items()
        }

    def _connect_same_class(self, ctx: TaskContext) -> None:
        """Adds the remembered same-class neighbours; deletes nothing (ablation row 5)."""
        pairs = [
            torch.stack(
                [self.buffer.picks[label][:, None].expand_as(near).flatten(), near.flatten()]
            )
            for label, near in self.same_class.items()
        ]
        added = unique_pairs(torch.cat(pairs, dim=1))
        known = ctx.view.adjacency.has_edges(added[0], added[1])
        added = added[:, ~known & (added[0] != added[1])]
        self.refinement = Refinement(added, added[:, :0], len(self.buffer))
        ctx.adjacency = ctx.view.adjacency.edit(add=added, remove=added[:, :0])

    def memory_bytes(self) -> int:
        """Counts the buffer, its candidates and the remembered neighbours."""
        kept = [self.candidates] if self.candidates is not None else []
        kept += list(self.same_class.values())
        return super().memory_bytes() + sum(t.numel() * t.element_size() for t in kept)

    def trim(self, stay: Tensor) -> None:
        """Lets go of nodes with their candidates and remembered neighbours."""
        parts = torch.split(stay, [nodes.numel() for nodes in self.buffer.picks.values()])
        by_label = dict(zip(self.buffer.picks, parts, strict=True))
        super().trim(stay)
        if self.candidates is not None:
            self.candidates = self.candidates[stay.to(self.candidates.device)]
        self.same_class = {
            label: near[by_label[label].to(near.device)] for label, near in self.same_class.items()
        }

    def renumber(self, new_rows: Tensor) -> None:
        """Follows nodes; where a neighbour is gone stands the node itself, which joins nothing."""
        super().renumber(new_rows)
        if self.candidates is not None:
            owners = self.buffer.nodes[:, None].to(self.candidates.device)
            self.candidates = moved(self.candidates, new_rows, owners)
        self.same_class = {
            label: moved(near, new_rows, self.buffer.picks[label][:, None].to(near.device))
            for label, near in self.same_class.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Adds candidates and remembered neighbours to the buffer's state."""
        state = super().state_dict()
        state["candidates"] = self.candidates
        state["same_class"] = {str(label): near for label, near in self.same_class.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.candidates = state["candidates"]
        if self.candidates is not None and (
            self.candidates.ndim != 2 or self.candidates.shape[0] != len(self.buffer)
        ):
            raise ValueError("candidates of other nodes")
        self.same_class = {int(label): near for label, near in state["same_class"].items()}
