"""What a selector is given, and what it must return."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from evergraph.memory.distances import mean_pairwise_distance
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features
from evergraph.stream.tasks import LabelledNodes


@dataclass(frozen=True)
class SelectionPool:
    """The training nodes that may be kept, seen through the model just trained.

    ``nodes`` ascend; every label in ``labels`` may be read.
    """

    nodes: Tensor  # [m]
    labels: Tensor  # [m]
    h: Tensor  # [m, d] embeddings
    features: Features  # [n, f] of all nodes seen
    adjacency: Adjacency  # the graph the embeddings were computed on
    generator: torch.Generator  # on the CPU
    logits: Tensor | None = None  # [m, k] what the head makes of ReLU(h)
    kept: LabelledNodes | None = None  # what the buffer holds already

    @cached_property
    def mean_distance(self) -> Tensor:
        """Averages the distance between embeddings of distinct nodes, of whatever class."""
        return mean_pairwise_distance(self.h)

    def rows_of(self, label: int) -> Tensor:
        """Returns the positions of one class's nodes in the pool."""
        return torch.nonzero(self.labels == label).flatten()


class Selector(Protocol):
    """Ranks the nodes of one class by how much they are worth keeping."""

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Returns ``budget`` node ids of class ``label``, best first, ties to the lowest id.

        ``budget`` never exceeds the number of the class's nodes in the pool. A smaller
        budget must give a prefix, unless the selector is registered as one that cannot.
        """
        ...
