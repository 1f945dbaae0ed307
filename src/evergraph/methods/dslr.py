"""DSLR: diversity and structure learning for rehearsal (Choi et al., WWW 2024).

Each task follows Algorithm 1 of the paper. From the second task on, a link predictor is
trained and the neighbourhood of replayed nodes is refined; then the network learns the
current and the replayed nodes on the refined graph; at last the buffer is filled by
coverage, and each kept node is given candidates for its next refinement.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.events import Epoch
from evergraph.methods.base import Descent, Reads, SearchSpace, nested_sample
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import REPLAY_SEARCH, ReplayBase, ReplayConfig
from evergraph.nn.model import Adam, NodeClassifier
from evergraph.nn.receptive_field import FEW, ReceptiveField, receptive_field, surroundings
from evergraph.stream.adjacency import Adjacency, Pattern
from evergraph.stream.tasks import LabelledNodes
from evergraph.structure import (
    Refinement,
    StructureConfig,
    link_loss,
    nearest_nodes,
    pair_pattern,
    refine,
    sample_non_edges,
    unique_pairs,
)

#: Most nodes of a large graph that may be candidates wherever they are.
SAMPLED = 8192


class DSLRConfig(StructureConfig, ReplayConfig):
    """Settings of DSLR: those of replay and of structure learning."""

    former: ClassVar[Mapping[str, Any]] = {
        **ReplayConfig.former,
        "add_among": "new",
        "link_loss": "mean",
    }
    selector: str = "cd"

    def unused(self) -> frozenset[str]:
        """Names what structure learning would take, as far as there is none."""
        of_structure = frozenset(StructureConfig.model_fields) - {"structure"}
        unused = {"none": of_structure, "homophily": of_structure - {"num_neighbors"}}
        return super().unused() | unused.get(self.structure, frozenset())


class DSLR(ReplayBase[DSLRConfig]):
    """Coverage-based replay whose nodes get informative neighbours."""

    Config = DSLRConfig
    summary = "diverse replay buffer by coverage, structure learning for replayed nodes"
    paper = (
        "Choi et al., DSLR: Diversity Enhancement and Structure Learning for Rehearsal-based GCL"
    )
    year = 2024
    local = True
    parallel = "batches"
    search: ClassVar[SearchSpace] = {  # of the paper
        **REPLAY_SEARCH,
        "lam": (0.0, 0.25, 0.5, 0.75, 1.0),
        "num_neighbors": (1, 2, 3, 4, 5),
        "num_candidates": (25, 50, 75, 100),
        "tau": (0.75, 0.8, 0.85, 0.9, 0.95),
        "r": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    }
    refinement: Refinement | None = None  # of the last task

    @property
    def candidates(self) -> Tensor | None:
        """The K nearest nodes of each kept node when it was last chosen, ``[b, K]``."""
        return self.buffer.neighbours.get("candidates")

    def reads(self, num_old: int, num_nodes: int, num_layers: int) -> Reads | None:
        """Reads candidates and a sample as well, and links, unless all nodes are candidates."""
        found, config = super().reads(num_old, num_nodes, num_layers), self.config
        if found is None or config.structure == "none":
            return found
        if config.structure == "learned" and config.candidates == "entire":
            return None
        near = [nodes.flatten().cpu() for nodes in self.buffer.neighbours.values()]
        beside = torch.cat([*near, nested_sample(num_nodes, SAMPLED)])
        return found._replace(beside=beside, links=True)

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
            h = self.show(ctx)[1]
            if self.config.structure == "learned" and self.config.candidates == "nearest":
                graph, among = ctx.view.adjacency, None
                if graph.whole_degree is not None:  # at the rim embeddings lack neighbours
                    enough = graph.degree >= graph.whole_degree.clamp(max=FEW)
                    among = torch.nonzero(enough).flatten()
                own = ctx.team.share(self.buffer.nodes)
                nearest = nearest_nodes(h, own, self.config.num_candidates, among)
                self.buffer.neighbours["candidates"] = ctx.team.gather(nearest)
            elif self.config.structure == "homophily":
                self._remember_same_class(ctx, h, before)

    def _learn_structure(self, ctx: TaskContext) -> Iterator[Epoch]:
        """Trains the link predictor and refines the graph (Eq. 6 to 11)."""
        with ctx.stage("structure"):
            z = yield from train_link_predictor(
                ctx, self.buffer.labelled, self.config, self.beta(ctx), self.candidates
            )
        with ctx.stage("inference"):
            rows = self._refined_rows(ctx)
            ctx.adjacency, self.refinement = refine(
                ctx.view.adjacency,
                self.buffer.nodes[rows],
                None if self.candidates is None else self.candidates[rows],
                z,
                self.config,
            )

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


def train_link_predictor(
    ctx: TaskContext,
    buffer: LabelledNodes,
    config: StructureConfig,
    beta: float,
    candidates: Tensor | None = None,
) -> Generator[Epoch, None, Tensor]:
    """Trains φ^t, a fresh network, on λ·L_link + (1 − λ)·L_node (Eq. 8).

    Yields every epoch and returns the embeddings ``z`` of all nodes seen, ``[n, d]``, without
    dropout. It trains on parts of the graph where the classifier does. Where only a part is shown
    it trains on what is around current and replayed nodes, and embeds what will be scored: these,
    their neighbours and their candidates.
    """
    view, graph, dropout = ctx.view, ctx.view.adjacency, ctx.generator("link dropout")
    labelled = torch.cat([view.train_nodes, buffer.nodes])
    near = ReceptiveField(view.features, graph, labelled)
    if graph.whole_degree is not None and ctx.batch_size is None:
        near = surroundings(view.features, graph, labelled, ctx.model_config.num_layers)
    classes, init = view.num_classes, ctx.generator("link init", "cpu")
    model = NodeClassifier(ctx.model_config, view.num_features, classes, init).to(ctx.device)
    optimizer = Adam(model.parameters(), config.link_lr)
    plain = ctx.model_config.attention == "plain"

    def loss_of_part() -> Tensor:
        part = _draw(ctx, model, buffer, near)
        link = link_loss(part.h, part.edges, part.negatives, plain, config.link_loss)  # Eq. 6
        loss = config.lam * share * link  # Eq. 8
        if config.lam < 1:
            logits = model.classify(part.h.index_select(0, part.labelled), dropout)
            now, then = logits.tensor_split([part.labels[0].numel()])
            node = beta * functional.cross_entropy(now, part.labels[0])
            node = node + (1 - beta) * functional.cross_entropy(then, part.labels[1])  # Eq. 7
            loss = loss + (1 - config.lam) * node
        return loss

    objective = ctx.objective(model, loss_of_part, whole=config.lam < 1)

    def step() -> Tensor:
        loss = objective()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    run, steps, share = ctx.recorded(step), 1, 1.0
    if ctx.batch_size is not None and ctx.own_batch_size is not None:
        steps = -(-view.train_nodes.numel() // ctx.batch_size)
        if config.link_loss == "sum":  # of all pairs, of which a step sees a batch
            share = graph.num_edges / (2 * ctx.own_batch_size)
    for epoch in range(config.link_epochs):
        for _ in range(steps):
            loss = run()
        yield Epoch(view.task, "structure", epoch, config.link_epochs, loss)
    with torch.no_grad():
        if candidates is None or graph.whole_degree is None:
            if view.shard is not None:
                return ctx.team.gather(ctx.observe_own(model)[1])
            z: Tensor = model(view.features, graph).h
            return z
        around = graph.edges_into(buffer.nodes)[1]
        scored = torch.unique(torch.cat([buffer.nodes, around, candidates.flatten()]))
        part = receptive_field(view.features, graph, scored, ctx.model_config.num_layers)
        h: Tensor = model(part.features, part.graphs, part.rows).h
        return h.new_zeros(graph.num_nodes, h.shape[1]).index_copy_(0, scored, h)


class _Part(NamedTuple):
    """What one step sees: embeddings, pairs among their rows, and which rows have labels."""

    h: Tensor
    edges: Pattern
    negatives: Pattern
    labelled: Tensor  # rows of the current nodes, then of the replayed ones
    labels: tuple[Tensor, Tensor]  # of either


def _draw(
    ctx: TaskContext, model: NodeClassifier, buffer: LabelledNodes, near: ReceptiveField
) -> _Part:
    """Takes all edges, as many non-edges and all labelled nodes, or a batch of each."""
    view, graph, size = ctx.view, ctx.view.adjacency, ctx.own_batch_size
    dropout, generator = ctx.generator("link dropout"), ctx.generator("link negatives")
    attention, current = model.config.attention, LabelledNodes(view.train_nodes, view.train_labels)
    if size is None:
        shown, rows = near.graphs, near.rows
        assert isinstance(shown, Adjacency)
        assert rows is not None
        h, _ = model.encoder(near.features, shown, dropout, attention)
        pairs, valid = sample_non_edges(shown, shown.num_edges // 2, generator)
        negatives = pair_pattern(pairs, shown.num_nodes, valid)
        return _Part(h, shown.pattern, negatives, rows, (current.labels, buffer.labels))
    count = size if graph.num_edges else 0
    at = torch.randint(max(graph.num_edges, 1), (count,), generator=generator, device=graph.device)
    edges = torch.stack([graph.src[at], graph.dst[at]])
    pairs, valid = sample_non_edges(graph, count, generator)
    now, then = (_some(nodes, size, generator) for nodes in (current, buffer))
    wanted = torch.cat([edges.flatten(), pairs.flatten(), now.nodes, then.nodes])
    field = ctx.sample(wanted, graph)
    h, _ = model.encoder(field.features, field.graphs, dropout, attention)
    place = torch.arange(wanted.numel(), device=graph.device)
    edges_at, pairs_at = place[: 4 * count].view(2, 2, count)
    return _Part(
        h if field.rows is None else h.index_select(0, field.rows),
        pair_pattern(edges_at, wanted.numel()),
        pair_pattern(pairs_at, wanted.numel(), valid),
        place[4 * count :],
        (now.labels, then.labels),
    )


def _some(given: LabelledNodes, count: int, generator: torch.Generator) -> LabelledNodes:
    """Draws ``count`` of the nodes, all if there are no more."""
    if given.nodes.numel() <= count:
        return given
    order = torch.randperm(given.nodes.numel(), generator=generator, device=given.nodes.device)
    return given.take(order[:count])
