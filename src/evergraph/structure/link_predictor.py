"""The link predictor: a fresh network per task that scores pairs of nodes (Eq. 5-7)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.nn.model import ModelConfig, build_model
from evergraph.nn.ops import Ends, spread
from evergraph.nn.repeat import Repeated
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.tasks import GraphView, LabelledNodes
from evergraph.structure.config import StructureConfig

SCORE_MARGIN = 1e-6
#: Rounds of redrawing negatives that turn out to be edges; what remains is left out.
REDRAWS = 4


@dataclass(frozen=True)
class LinkRandomness:
    """The generators of one link predictor."""

    init: torch.Generator  # on the CPU
    dropout: torch.Generator
    negatives: torch.Generator


def link_scores(z_i: Tensor, z_j: Tensor) -> Tensor:
    """Computes ``S = (cos(z_i, z_j) + 1) / 2`` of rows, kept inside (0, 1) (section 4.2.1)."""
    return _unit_scores(functional.normalize(z_i, dim=-1), functional.normalize(z_j, dim=-1))


def _unit_scores(u_i: Tensor, u_j: Tensor) -> Tensor:
    cosine = (u_i * u_j).sum(dim=-1)
    return ((cosine + 1) / 2).clamp(SCORE_MARGIN, 1 - SCORE_MARGIN)


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


def link_loss(
    z: Tensor, edges: tuple[Ends, Ends], negatives: tuple[Ends, Ends], valid: Tensor
) -> Tensor:
    """Averages binary cross-entropy over edges and non-edges (Eq. 5; mean, decision 0008).

    Args:
        z: Embeddings of all nodes, ``[n, d]``.
        edges: Both ends of every edge.
        negatives: Both ends of every non-edge.
        valid: Which non-edges count, ``[m]``.
    """
    unit = functional.normalize(z, dim=-1)  # once per node, not once per edge
    positive = -torch.log(_unit_scores(spread(unit, edges[0]), spread(unit, edges[1])))
    scores = _unit_scores(spread(unit, negatives[0]), spread(unit, negatives[1]))
    weight = valid.to(z.dtype)
    total = positive.sum() - (torch.log1p(-scores) * weight).sum()
    return total / (positive.numel() + weight.sum()).clamp(min=1)


def train_link_predictor(
    view: GraphView,
    buffer: LabelledNodes,
    config: StructureConfig,
    model_config: ModelConfig,
    *,
    beta: float,
    randomness: LinkRandomness,
) -> Generator[Tensor, None, Tensor]:
    """Trains φ^t from scratch on λ·L_link + (1 − λ)·L_node (Eq. 7).

    Yields the loss of every epoch and returns the embeddings ``z`` of all nodes seen,
    ``[n, d]``, without dropout.
    """
    graph = view.adjacency
    model = build_model(model_config, view.num_features, view.num_classes, randomness.init)
    model.to(graph.device)
    on_cuda = graph.device.type == "cuda"
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config.link_lr, fused=True, capturable=on_cuda
    )
    once = graph.src < graph.dst  # each undirected edge once gives the same mean
    first, second = graph.src[once], graph.dst[once]
    num_edges = first.numel()
    edges = (
        Ends.of(first, graph.num_nodes).chunked(),
        Ends.of(second, graph.num_nodes).chunked(),
    )
    labelled = torch.cat([view.train_nodes, buffer.nodes])
    num_current = view.train_nodes.numel()

    def step() -> Tensor:
        output = model(view.features, graph, generator=randomness.dropout)
        pairs, valid = sample_non_edges(graph, num_edges, randomness.negatives)
        negatives = Ends.of(pairs[0], graph.num_nodes), Ends.of(pairs[1], graph.num_nodes)
        logits = output.logits.index_select(0, labelled)
        current = functional.cross_entropy(logits[:num_current], view.train_labels)
        replayed = functional.cross_entropy(logits[num_current:], buffer.labels)
        node = beta * current + (1 - beta) * replayed  # Eq. 6
        link = link_loss(output.h, edges, negatives, valid)  # Eq. 5
        loss = config.lam * link + (1 - config.lam) * node  # Eq. 7
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    generators = [randomness.dropout, randomness.negatives]
    repeated = Repeated(step, graph.device, lambda: generators)
    for _ in range(config.link_epochs):
        yield repeated()
    with torch.no_grad():
        z: Tensor = model(view.features, graph).h
    return z
