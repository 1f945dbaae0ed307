r"""PDGNN-TEM: topology-aware embeddings are kept and replayed (Zhang et al., KDD 2024).

Features are propagated without parameters; what a node's neighbourhood says is then one vector, its
topology-aware embedding. The memory keeps such vectors with their labels, as they were when the
node was chosen: replaying takes no graph, O(1) a node. Nodes are drawn by how much of the training
set is near them (coverage maximisation). An MLP minimises

.. math:: \sum_{v \in D \cup B} \beta_{y_v} \mathrm{CE}(f(z_v), y_v), \qquad
    \beta_c \propto 1 / |\{v \in D \cup B : y_v = c\}|.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from evergraph.memory.synthetic import check_rows
from evergraph.methods.base import SearchSpace
from evergraph.methods.context import TaskContext
from evergraph.methods.decoupled import Decoupled, DecoupledConfig
from evergraph.methods.replay import Beside, BufferBase, BufferConfig

#: What the buffer's rows are kept by.
EMBEDDING = "embedding"


class PDGNNConfig(DecoupledConfig, BufferConfig):
    """Settings of PDGNN-TEM."""

    selector: str = "tem"


class PDGNN(Decoupled[PDGNNConfig], BufferBase[PDGNNConfig]):
    """Replays embeddings that hold what was around their nodes."""

    Config = PDGNNConfig
    summary = "an MLP on propagated features, whose rows are kept of nodes that cover most"
    paper = (
        "Zhang et al., Topology-aware Embedding Memory for Continual Learning on Expanding Networks"
    )
    year = 2024
    search: ClassVar[SearchSpace] = {
        "hops": ("1", "2", "3", "0+1+2"),
        "selector": ("tem", "random", "mf"),
    }

    def begin_task(self, ctx: TaskContext) -> None:
        """Warm-starts the MLP."""
        if len(self.buffer):
            check_rows(self.buffer.rows[EMBEDDING], self.buffer.labels, ctx.view)
        super().begin_task(ctx)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on current and kept rows, in which every class weighs the same."""
        rows, labels = self.batch_rows(ctx), ctx.batch.labels
        if len(self.buffer):
            kept, known = ctx.draw(self.buffer.rows[EMBEDDING], self.buffer.labels)
            rows, labels = torch.cat([rows, kept]), torch.cat([labels, known])
        return ctx.cross_entropy(ctx.forward_rows(rows), labels, balanced=True)

    def beside(self, ctx: TaskContext, nodes: Tensor) -> Iterator[Beside]:
        """Yields the rows of nodes."""
        yield self.buffer.rows, EMBEDDING, self.rows(ctx).rows(nodes)

    def show(self, ctx: TaskContext, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns logits and rows of nodes, to choose by."""
        assert nodes is not None
        rows = self.rows(ctx).rows(nodes)
        return self.observe_rows(ctx, rows), rows

    def graph_bytes(self, ctx: TaskContext) -> int:
        """Counts nothing: the rows are all that replaying takes."""
        return 0
