"""The link predictor: a fresh network per task that scores pairs of nodes (Eq. 5-7)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from evergraph.nn.model import ModelConfig, build_model
from evergraph.nn.repeat import Repeated
from evergraph.stream.adjacency import Adjacency
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
    plain = model_config.attention == "plain"
    labelled = torch.cat([view.train_nodes, buffer.nodes])
    num_current = view.train_nodes.numel()

    def step() -> Tensor:
        output = model(view.features, graph, generator=randomness.dropout)
        logits = output.logits.index_select(0, labelled)
        current = functional.cross_entropy(logits[:num_current], view.train_labels)
        replayed = functional.cross_entropy(logits[num_current:], buffer.labels)
        node = beta * current + (1 - beta) * replayed  # Eq. 6
        pairs, valid = sample_non_edges(graph, graph.num_edges // 2, randomness.negatives)
        negatives = pair_pattern(pairs, graph.num_nodes, valid)
        link = link_loss(output.h, graph.pattern, negatives, plain)  # Eq. 5
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
