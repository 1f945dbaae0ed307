"""The link predictor: a fresh network per task that scores pairs of nodes (Eq. 5-7)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.nn.model import ModelConfig, NodeClassifier, build_model
from evergraph.nn.repeat import Repeated
from evergraph.nn.sampling import Block
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import take_rows
from evergraph.stream.pattern import Pattern
from evergraph.stream.tasks import GraphView, LabelledNodes
from evergraph.structure.config import StructureConfig
from evergraph.structure.link_loss import link_loss, pair_pattern

#: Rounds of redrawing negatives that turn out to be edges; what remains is left out.
REDRAWS = 4


@dataclass(frozen=True)
class LinkRandomness:
    """The generators of one link predictor."""

    init: torch.Generator  # on the CPU
    dropout: torch.Generator
    negatives: torch.Generator


def sample_non_edges(
    adjacency: Adjacency, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draws node pairs uniformly that are neither edges nor loops.

    Returns the pairs ``[2, count]`` and whether each is valid: pairs that hit an edge are
    redrawn a few times without waiting for the device, and marked when they still do.
    """
    n, device = adjacency.num_nodes, adjacency.device
    pairs = torch.randint(n, (2, count), generator=generator, device=device)
    for _ in range(REDRAWS):
        again = torch.randint(n, (2, count), generator=generator, device=device)
        pairs = torch.where(_taken(adjacency, pairs), again, pairs)
    return pairs, ~_taken(adjacency, pairs)


def _taken(adjacency: Adjacency, pairs: Tensor) -> Tensor:
    return (pairs[0] == pairs[1]) | adjacency.has_edges(pairs[0], pairs[1])


@dataclass(frozen=True)
class Sampling:
    """How a link predictor is trained on parts of a graph."""

    batch_size: int  # edges, non-edges, current and replayed nodes per step
    block: Callable[[Tensor], Block]  # draws the part that some nodes need
    steps: int  # per epoch


def train_link_predictor(
    view: GraphView,
    buffer: LabelledNodes,
    config: StructureConfig,
    model_config: ModelConfig,
    *,
    beta: float,
    randomness: LinkRandomness,
    sampling: Sampling | None = None,
) -> Generator[Tensor, None, Tensor]:
    """Trains φ^t from scratch on λ·L_link + (1 − λ)·L_node (Eq. 7).

    Yields the loss of every epoch and returns the embeddings ``z`` of all nodes seen,
    ``[n, d]``, without dropout. ``sampling`` trains on parts of the graph.
    """
    graph = view.adjacency
    model = build_model(model_config, view.num_features, view.num_classes, randomness.init)
    model.to(graph.device)
    on_cuda = graph.device.type == "cuda"
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config.link_lr, fused=True, capturable=on_cuda
    )
    current = LabelledNodes(view.train_nodes, view.train_labels)
    plain = model_config.attention == "plain"

    def step() -> Tensor:
        draw = partial(_sampled, sampling) if sampling is not None else _whole
        part = draw(model, view, (current, buffer), randomness)
        loss = config.lam * link_loss(part.h, part.edges, part.negatives, plain)  # Eq. 5, 7
        if config.lam < 1:
            logits = model.classify(part.h.index_select(0, part.labelled), randomness.dropout)
            now, then = logits.tensor_split([part.labels[0].numel()])
            node = beta * functional.cross_entropy(now, part.labels[0])
            node = node + (1 - beta) * functional.cross_entropy(then, part.labels[1])  # Eq. 6
            loss = loss + (1 - config.lam) * node
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    generators = [randomness.dropout, randomness.negatives]
    repeated = Repeated(step, graph.device, lambda: generators, record=sampling is None)
    for _ in range(config.link_epochs):
        for _ in range(1 if sampling is None else sampling.steps):
            loss = repeated()
        yield loss
    with torch.no_grad():
        z: Tensor = model(view.features, graph).h
    return z


@dataclass(frozen=True)
class _Part:
    """What one step sees: embeddings, pairs among their rows, and which rows have labels."""

    h: Tensor
    edges: Pattern
    negatives: Pattern
    labelled: Tensor  # rows of the current nodes, then of the replayed ones
    labels: tuple[Tensor, Tensor]  # of either


def _whole(
    model: NodeClassifier,
    view: GraphView,
    given: tuple[LabelledNodes, LabelledNodes],
    randomness: LinkRandomness,
) -> _Part:
    """Takes all edges, as many non-edges, and all labelled nodes."""
    graph, (current, buffer) = view.adjacency, given
    h, _ = model.encoder(view.features, graph, randomness.dropout, model.config.attention)
    pairs, valid = sample_non_edges(graph, graph.num_edges // 2, randomness.negatives)
    return _Part(
        h,
        graph.pattern,
        pair_pattern(pairs, graph.num_nodes, valid),
        torch.cat([current.nodes, buffer.nodes]),
        (current.labels, buffer.labels),
    )


def _sampled(
    sampling: Sampling,
    model: NodeClassifier,
    view: GraphView,
    given: tuple[LabelledNodes, LabelledNodes],
    randomness: LinkRandomness,
) -> _Part:
    """Takes a batch of each."""
    graph, generator = view.adjacency, randomness.negatives
    count = sampling.batch_size if graph.num_edges else 0
    at = torch.randint(max(graph.num_edges, 1), (count,), generator=generator, device=graph.device)
    edges = torch.stack([graph.src[at], graph.dst[at]])
    pairs, valid = sample_non_edges(graph, count, generator)
    now, then = (_some(nodes, sampling.batch_size, generator) for nodes in given)
    wanted = torch.cat([edges.flatten(), pairs.flatten(), now.nodes, then.nodes])
    block = sampling.block(wanted)
    features = take_rows(view.features, block.nodes)
    h, _ = model.encoder(features, block.adjacency, randomness.dropout, model.config.attention)
    place = torch.arange(wanted.numel(), device=graph.device)
    pairs_at = place[: 4 * count].view(2, 2, count)
    return _Part(
        h.index_select(0, block.rows),
        pair_pattern(pairs_at[0], wanted.numel()),
        pair_pattern(pairs_at[1], wanted.numel(), valid),
        place[4 * count :],
        (now.labels, then.labels),
    )


def _some(given: LabelledNodes, count: int, generator: torch.Generator) -> LabelledNodes:
    """Draws ``count`` of the nodes, all if there are no more."""
    if given.nodes.numel() <= count:
        return given
    order = torch.randperm(given.nodes.numel(), generator=generator, device=given.nodes.device)
    return given.take(order[:count])
