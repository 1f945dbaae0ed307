r"""CaT: condense and train (Liu, Qiu and Huang, ICDM 2023).

A task's nodes are condensed before anything is learned from them: synthetic nodes without edges get
the class means that the nodes have, on their graph, in encoders that are drawn at random again and
again (distribution matching). The network is then trained in the memory alone, so that no class has
more than its share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from torch import Tensor

from evergraph.events import Epoch, Stage
from evergraph.methods.base import Descent, SearchSpace
from evergraph.methods.condensed import CondensedConfig, Condensing, class_means
from evergraph.methods.context import TaskContext
from evergraph.nn.encoders import Encoder, glorot_bound
from evergraph.nn.model import NodeClassifier
from evergraph.nn.receptive_field import ReceptiveField, receptive_field
from evergraph.stream.features import SparseRows


class CaTConfig(CondensedConfig):
    """Settings of CaT."""

    warm_start: bool = True  # continue from the last task's weights instead of starting anew


class CaT(Condensing[CaTConfig]):
    """Trains in a memory of synthetic nodes that are matched by the means of their class."""

    Config = CaTConfig
    summary = "trains on synthetic nodes alone, matched to class means of random encoders"
    paper = "Liu et al., CaT: Balanced Continual Graph Learning with Graph Condensation"
    year = 2023
    search: ClassVar[SearchSpace] = {
        "condense_steps": (100, 300, 1000),
        "condense_lr": (0.003, 0.01, 0.03),
        "warm_start": (False, True),
    }
    _encoder: Encoder  # drawn anew at every step of condensation
    _field: ReceptiveField | None = None  # what it reads of the whole graph

    def begin_task(self, ctx: TaskContext) -> None:
        """Warm-starts the network, or begins with a new one."""
        super().begin_task(ctx)
        if not self.config.warm_start:
            ctx.prepare_model(fresh=True)

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Stage | Descent]:
        """Condenses the current nodes, then trains in memory."""
        nodes = ctx.view.train_nodes
        init = ctx.generator("condense", "cpu")
        model = NodeClassifier(ctx.model_config, ctx.view.num_features, 0, init)
        self._encoder = model.encoder.to(ctx.device).requires_grad_(False)
        if ctx.batch_size is None:
            features, depth = ctx.view.features, ctx.model_config.num_layers
            self._field = receptive_field(features, ctx.adjacency, nodes, depth)
        with ctx.stage("condense"):
            x = ctx.view.features[nodes]
            x = x.dense() if isinstance(x, SparseRows) else x
            yield from self.condense(ctx, x, ctx.view.train_labels)
        del self._encoder
        self._field = None
        yield Descent()

    def redraw(self, ctx: TaskContext) -> None:
        """Draws weights as a new network has them; biases are zero."""
        for weight in self._encoder.parameters():
            if weight.ndim > 1:
                bound = glorot_bound(*weight.shape[-2:])
                weight.uniform_(-bound, bound, generator=ctx.generator("condense network"))

    def statistics(self, ctx: TaskContext, rows: Tensor, labels: Tensor) -> Tensor:
        """Averages embeddings of nodes without edges by class, ``[k, h]``."""
        h: Tensor = self._encoder(rows, ctx.without_edges(rows.shape[0]))[0]
        return class_means(labels, ctx.view.num_classes) @ h

    def node_statistics(self, ctx: TaskContext, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Averages embeddings of the current nodes on their graph, or of a sample."""
        field, known = self._field, labels
        if field is None:
            nodes, known = ctx.draw(ctx.view.train_nodes, labels)
            field = ctx.sample(nodes, ctx.adjacency)
        h, _ = self._encoder(field.features, field.graphs)
        h = h if field.rows is None else h.index_select(0, field.rows)
        return class_means(known, ctx.view.num_classes) @ h, known
