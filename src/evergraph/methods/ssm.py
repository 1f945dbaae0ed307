r"""SSM: replay on sparsified neighbourhoods that are kept (Zhang, Song and Tao, ICDM 2022).

What a network of L layers reads around a node grows with the degree to the power of L. So the
memory keeps a sparsified neighbourhood of each node: at most so many neighbours of every node, hop
by hop, drawn evenly or by their degree when the node is chosen. Replayed nodes are seen on the kept
neighbourhoods alone, current ones on the graph, and every class weighs the same in the loss.

Of a kept neighbourhood the ids are kept while the graph is at hand, else its features too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from evergraph.memory.buffer import carried_over, neighbourhood_bytes
from evergraph.methods.base import Reads, SearchSpace
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import BufferBase, BufferConfig
from evergraph.nn.receptive_field import ReceptiveField, receptive_field
from evergraph.stream.adjacency import Adjacency, runs
from evergraph.structure import unique_pairs


class SSMConfig(BufferConfig):
    """Settings of SSM."""

    kept_neighbors: int = Field(default=5, ge=1)  # of every node of a kept neighbourhood
    sparsify: Literal["uniform", "degree"] = "degree"  # what neighbours are drawn by


class SSM(BufferBase[SSMConfig]):
    """Replays nodes on the sparsified neighbourhoods that they had when they were chosen."""

    Config = SSMConfig
    summary = "replays nodes on sparsified neighbourhoods that are kept with them"
    paper = "Zhang et al., Sparsified Subgraph Memory for Continual Graph Representation Learning"
    year = 2022
    local = True
    search: ClassVar[SearchSpace] = {
        "kept_neighbors": (1, 3, 5, 10),
        "sparsify": ("uniform", "degree"),
        "epochs": (100, 200, 500),
    }

    def __init__(self, config: SSMConfig) -> None:
        super().__init__(config)
        self._field: ReceptiveField | None = None  # what the kept nodes hear, during a task alone

    def begin_task(self, ctx: TaskContext) -> None:
        """Warm-starts the network and lays the kept neighbourhoods out."""
        super().begin_task(ctx)
        self._field = None
        if len(self.buffer):
            graph, depth = self.sparse_graph(ctx), ctx.model_config.num_layers
            self._field = receptive_field(ctx.view.features, graph, self.buffer.nodes, depth)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on current and kept nodes, in which every class weighs the same."""
        logits, labels = ctx.forward(ctx.batch.nodes), ctx.batch.labels
        if self._field is not None:
            replayed, known = self._replay(ctx, self._field)
            logits, labels = torch.cat([logits, replayed]), torch.cat([labels, known])
        return ctx.cross_entropy(logits, labels, balanced=True)

    def _replay(self, ctx: TaskContext, field: ReceptiveField) -> tuple[Tensor, Tensor]:
        """Returns logits and labels of the kept nodes, or of a batch of them."""
        if ctx.batch_size is not None:
            nodes, labels = ctx.draw(self.buffer.nodes, self.buffer.labels)
            return ctx.forward(nodes, adjacency=self.sparse_graph(ctx)), labels
        dropout = ctx.generator("dropout")
        out = ctx.network(field.features, field.graphs, field.rows, dropout, ctx.plain)
        return out.logits, self.buffer.labels

    def end_task(self, ctx: TaskContext) -> None:
        """Selects nodes and draws the neighbourhoods of the new ones."""
        before = self.buffer.nodes.to(ctx.device)
        super().end_task(ctx)
        self._field = None
        if ctx.final:
            return
        now, known = self.buffer.nodes, self.buffer.neighbours
        parents = now[~torch.isin(now, before)][:, None]
        for hop in range(ctx.model_config.num_layers):
            name = f"hop {hop + 1}"
            parents = self._draw_neighbours(ctx, parents)
            known[name] = carried_over(before, known.get(name), now, parents)
        ctx.prepared.pop("sparse", None)

    def _draw_neighbours(self, ctx: TaskContext, parents: Tensor) -> Tensor:
        """Draws neighbours of each parent ``[b, p]``, ``[b, p * k]``; in want of one, itself."""
        graph, count = ctx.view.adjacency, self.config.kept_neighbors
        owner, neighbour = graph.edges_into(parents.flatten())
        noise = torch.rand(owner.numel(), generator=ctx.generator("sparsify", "cpu"))
        keys = -torch.log(-torch.log1p(-noise.double())).to(ctx.device)  # as in HopCoverage
        if self.config.sparsify == "degree":
            degree = graph.degree if graph.whole_degree is None else graph.whole_degree
            keys += degree[neighbour].double().log()
        order = torch.argsort(keys, descending=True)
        order = order[torch.argsort(owner[order], stable=True)]
        _, rank = runs(torch.bincount(owner, minlength=parents.numel()))
        first = order[rank < count]  # of every owner, the best ones
        drawn = parents.reshape(-1, 1).repeat(1, count)
        drawn[owner[first], rank[rank < count]] = neighbour[first]
        return drawn.view(parents.shape[0], -1)

    def sparse_graph(self, ctx: TaskContext) -> Adjacency:
        """Joins kept nodes to their kept neighbours, hop by hop; all other nodes are alone."""
        if "sparse" not in ctx.prepared:
            parents = self.buffer.nodes[:, None].to(ctx.device)
            real, pairs = torch.ones_like(parents, dtype=torch.bool), []
            for hop in range(len(self.buffer.neighbours)):
                near = self.buffer.neighbours[f"hop {hop + 1}"].to(ctx.device)
                joined = near.view(*parents.shape, -1)
                # A neighbour that is gone has left its node in its place: what it led to is gone.
                real = real[..., None] & (joined != parents[..., None])
                ends = torch.stack([parents[..., None].expand_as(joined)[real], joined[real]])
                parents, real = near, real.flatten(1)
                pairs.append(ends)
            edges = unique_pairs(torch.cat(pairs, dim=1))
            both = torch.cat([edges, edges.flip(0)], dim=1)
            ctx.prepared["sparse"] = Adjacency.from_edges(both, ctx.view.num_nodes)
        found: Adjacency = ctx.prepared["sparse"]
        return found

    def reads(self, num_old: int, num_nodes: int, num_layers: int) -> Reads | None:
        """Reads kept neighbours as well, whatever has become of the edges to them."""
        found = super().reads(num_old, num_nodes, num_layers)
        near = [nodes.flatten().cpu() for nodes in self.buffer.neighbours.values()]
        return found._replace(beside=torch.cat(near)) if found is not None and near else found

    def graph_bytes(self, ctx: TaskContext) -> int:
        """Counts the features and edges of the kept neighbourhoods."""
        nodes, depth = self.buffer.nodes.to(ctx.device), ctx.model_config.num_layers
        return neighbourhood_bytes(ctx.view.features, self.sparse_graph(ctx), nodes, depth)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what was kept; refuses neighbourhoods of another form."""
        super().load_state_dict(state)
        known, count = self.buffer.neighbours, self.config.kept_neighbors
        for hop in range(len(known)):
            near = known[f"hop {hop + 1}"]
            if near.shape[1:] != (count ** (hop + 1),) or near.dtype != torch.int64:
                raise ValueError("neighbourhoods of other settings")
