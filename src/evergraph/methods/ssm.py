r"""SSM: replay on sparsified neighbourhoods that are kept (Zhang, Song and Tao, ICDM 2022).

What a network of L layers reads around a node grows with the degree to the power of L. So the
memory keeps a sparsified neighbourhood of each node: at most so many neighbours of every node, hop
by hop, drawn evenly or by their degree when the node is chosen. Replayed nodes are seen on the kept
neighbourhoods alone, current ones on the graph, and every class weighs the same in the loss.

Of a kept neighbourhood the edges are kept while the graph is at hand, else its features too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from evergraph.memory.buffer import neighbourhood_bytes
from evergraph.methods.base import SearchSpace
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import Beside, BufferBase, BufferConfig
from evergraph.nn.receptive_field import receptive_field
from evergraph.stream.adjacency import Adjacency, runs
from evergraph.structure import unique_pairs

#: What the ends of kept edges are kept by, beside each kept node.
EDGES = "edges"


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
    }

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on current and kept nodes, in which every class weighs the same."""
        logits, labels = ctx.forward(ctx.batch.nodes), ctx.batch.labels
        if len(self.buffer):
            replayed, known = self._replay(ctx)
            logits, labels = torch.cat([logits, replayed]), torch.cat([labels, known])
        return ctx.cross_entropy(logits, labels, balanced=True)

    def _replay(self, ctx: TaskContext) -> tuple[Tensor, Tensor]:
        """Returns logits and labels of the kept nodes, or of a batch of them."""
        kept, depth = self.buffer.labelled, ctx.model_config.num_layers
        graph = ctx.once("kept edges", lambda: self.sparse_graph(ctx))
        if ctx.batch_size is not None:
            nodes, labels = ctx.draw(kept.nodes, kept.labels)
            return ctx.forward(nodes, adjacency=graph), labels
        features, dropout = ctx.view.features, ctx.generator("dropout")
        field = ctx.once("kept", lambda: receptive_field(features, graph, kept.nodes, depth))
        out = ctx.network(field.features, field.graphs, field.rows, dropout, ctx.plain)
        return out.logits, kept.labels

    def beside(self, ctx: TaskContext, nodes: Tensor) -> Iterator[Beside]:
        """Draws the neighbourhoods of nodes, hop by hop."""
        parents, count, pairs = nodes[:, None], self.config.kept_neighbors, []
        for _ in range(ctx.model_config.num_layers):
            drawn = self._draw_neighbours(ctx, parents)
            ends = torch.stack([parents.repeat_interleave(count, dim=1), drawn], dim=2)
            pairs.append(ends.flatten(1))
            parents = drawn
        yield self.buffer.neighbours, EDGES, torch.cat(pairs, dim=1)

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
        """Joins nodes by the kept edges that are still there; all other nodes are alone.

        An edge whose end is gone has the kept node in its place, and none that is there.
        """
        ends = self.buffer.neighbours[EDGES].to(ctx.device).view(-1, 2).t()
        # From the drawn end: at the rim of a part no edge leads outwards.
        edges = unique_pairs(ends[:, ctx.view.adjacency.has_edges(ends[1], ends[0])])
        both = torch.cat([edges, edges.flip(0)], dim=1)
        return Adjacency.from_edges(both, ctx.view.num_nodes)

    def graph_bytes(self, ctx: TaskContext) -> int:
        """Counts the nodes of the kept neighbourhoods with their features; edges are kept."""
        graph, depth = self.sparse_graph(ctx), ctx.model_config.num_layers
        nodes = self.buffer.nodes.to(ctx.device)
        found = neighbourhood_bytes(ctx.view.features, graph, nodes, depth)
        return found - 8 * graph.num_edges

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what was kept; refuses what is no list of edges."""
        super().load_state_dict(state)
        for edges in self.buffer.neighbours.values():
            if edges.ndim != 2 or edges.shape[1] % 2 or edges.dtype != torch.int64:
                raise ValueError("edges without an end")
