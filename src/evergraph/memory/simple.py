"""Selectors that rank nodes one by one: random, and those of ER-GNN (MF, CM and IM)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.kernels.ops import count_within
from evergraph.memory.buffer import SelectionPool
from evergraph.stream.graph import SparseRows, take_rows


@dataclass(frozen=True)
class Random:
    """Keeps nodes drawn without replacement; the draw is kept as an order."""

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Draws an order of the class's nodes and returns its beginning."""
        nodes = pool.nodes[pool.rows_of(label)]
        order = torch.randperm(nodes.numel(), generator=pool.generator)
        return nodes[order.to(nodes.device)][:budget]


@dataclass(frozen=True)
class MeanFeature:
    """Keeps the nodes closest to their class's mean (MF of ER-GNN).

    Args:
        of_features: Measure in the space of input features instead of embeddings.
    """

    of_features: bool = False

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Orders the class's nodes by distance to their mean, nearest first."""
        rows = pool.rows_of(label)
        nodes = pool.nodes[rows]
        points = take_rows(pool.features, nodes) if self.of_features else pool.h[rows]
        return nodes[torch.argsort(_distance_to_mean(points), stable=True)][:budget]


@dataclass(frozen=True)
class CoverageMaximization:
    r"""Keeps the nodes with the fewest foreign ones around them (CM of ER-GNN).

    Foreign are the pool's nodes of other classes nearer than :math:`r \bar d`, with
    :math:`\bar d` the mean distance between all of the pool's nodes.
    """

    r: float

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Orders the class's nodes by how many foreign nodes are near, fewest first."""
        rows = pool.rows_of(label)
        foreign = pool.h[pool.labels != label]
        counts = count_within(foreign, pool.h[rows], self.r * pool.mean_distance)
        return pool.nodes[rows][torch.argsort(counts, stable=True)][:budget]


@dataclass(frozen=True)
class InfluenceMaximization:
    """Keeps the nodes whose loss moves the head most: largest ‖I(v)‖ first (IM of ER-GNN)."""

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Orders the class's nodes by influence."""
        rows = pool.rows_of(label)
        # Single precision makes equal what is equal up to rounding, so that ids decide.
        order = torch.argsort(pool.influence[rows].float(), descending=True, stable=True)
        return pool.nodes[rows][order][:budget]


def _distance_to_mean(x: Tensor | SparseRows) -> Tensor:
    """Computes ‖x_i − mean‖² for every row; sparse rows are never made dense."""
    if isinstance(x, Tensor):
        return (x.double() - x.double().mean(dim=0)).square().sum(dim=1)
    values, m = x.values.double(), x.shape[0]
    mean = values.new_zeros(x.num_columns).index_add_(0, x.indices, values) / m
    # ‖x − μ‖² = ‖μ‖² + Σ over stored entries of (v² − 2 v μ)
    terms = values.square() - 2 * values * mean[x.indices]
    return values.new_zeros(m).index_add_(0, x.row_index(), terms) + mean.square().sum()
