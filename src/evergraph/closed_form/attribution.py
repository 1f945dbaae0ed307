r"""Attribution: what every feature of every node adds to a score of the closed form, exactly.

A row is linear in the features around it once its lengths are known, and a score is linear in
rows, propagated or not. Backwards through the same matrices, the score of node :math:`i` is

.. math:: \sum_j \sum_f x_{jf} \sum_k a_{jk} w_{fk},

with :math:`a_{jk}` how much of node :math:`j` arrives by hop :math:`k` and :math:`w_{fk}` what
feature :math:`f` weighs there. Lengths count as given: that is where rows are not linear.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evergraph.closed_form.features import (
    FeatureConfig,
    PropagatedFeatures,
    PropagationMatrix,
    propagation_matrix,
)
from evergraph.closed_form.propagation import STEPS, coefficients
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features


class Factors(NamedTuple):
    """Contributions as factors: feature f of node j adds ``x[j, f] * (nodes[j] · features[f])``."""

    nodes: Tensor  # [n, b]
    features: Tensor  # [d, b]
    constant: Tensor | None  # [n], what a constant beside the features adds


class ClosedForm:
    """The closed form around some nodes, to attribute their scores.

    Args:
        features: Of all nodes that scores depend on.
        graphs: One for every step, from what it reads to what it gives: those of the hops, then
            :data:`STEPS` of score propagation unless ``teleport`` is 1.
        kind: Which rows.
        teleport: Teleport probability of score propagation.
        seed: Source of random directions.
        basis: Directions that the features are projected on.
    """

    def __init__(
        self,
        features: Features,
        graphs: tuple[Adjacency, ...],
        kind: FeatureConfig,
        *,
        teleport: float,
        seed: int,
        basis: Tensor | None,
    ) -> None:
        self.rows = PropagatedFeatures(features, graphs[: kind.reach], kind, seed, basis)
        self.graphs, self.teleport = graphs, teleport
        later = graphs[kind.reach :]
        self._means = [propagation_matrix(graph, "mean", self_loops=True) for graph in later]

    def attribute(self, at: int, weights: Tensor) -> Factors:
        """Takes apart a score of the node at a place among those that the last step gives.

        ``weights`` ``[width]`` turn a row into the score: those of a class less those of another.
        """
        rows, kind, weights = self.rows, self.rows.config, weights.double()
        per_hop = weights.view(kind.blocks, rows.columns).t()  # [columns, blocks]
        arrives = self._through_hops(self._through_scores(at))
        if kind.scaling != "none":
            arrives /= rows.lengths.double()[:, None]
        if kind.blocks == 1:
            arrives = arrives.sum(dim=1, keepdim=True)
        constant = None
        if kind.constant is True:
            constant = (arrives @ per_hop[-1]) * rows.features.shape[1] ** 0.5
            per_hop = per_hop[:-1]
        if rows.directions is not None:
            per_hop = rows.directions.double() @ per_hop
        return Factors(arrives, per_hop, constant)

    def _through_scores(self, at: int) -> Tensor:
        """Returns how much each row's score counts in the node's propagated one, ``[m]``."""
        last = self.graphs[-1].num_nodes if self.graphs else self.rows.num_nodes
        here = torch.zeros(last, dtype=torch.float64)
        here[at] = 1
        if self.teleport == 1:
            return here
        # From the node outwards: the power p of P leads through the last p graphs, and a row that
        # is reached earlier stands where it is itself.
        shares = coefficients(self.teleport)
        counted = shares[STEPS] * here
        for step, (mean, graph) in enumerate(
            zip(reversed(self._means), reversed(self.graphs), strict=False), 1
        ):
            counted = backwards(mean, counted[:, None], graph.num_sources)[:, 0]
            here = _itself(here, graph)
            counted += shares[STEPS - step] * here
        return counted

    def _through_hops(self, counted: Tensor) -> Tensor:
        """Returns how much of each node's features arrives by each hop, ``[n, hops]``."""
        rows, powers, parts = self.rows, self.rows.config.powers, self.rows.config.parts
        share = parts if rows.config.combine == "sum" else parts**0.5
        lengths = rows.hop_lengths.double()
        unit = counted / (share * torch.where(lengths > 0, lengths, 1))  # [hops, m]
        arrives = led = counted.new_zeros(counted.numel(), parts)
        for power in range(rows.config.reach, -1, -1):
            place = rows.places[power]
            if power in powers:
                hop = powers.index(power)
                arrives[slice(None) if place is None else place, hop] += unit[hop]
            if power == 1 and rows.directed:
                led = torch.zeros_like(arrives)
                led[slice(None) if place is None else place] = unit.t()
            if power:
                size = self.graphs[power - 1].num_sources
                arrives = backwards(rows.matrices[power - 1], arrives, size)
        for at, matrix in enumerate(rows.directed, len(powers)):
            arrives[:, at] = backwards(matrix, led[:, [at]], arrives.shape[0])[:, 0]
        return arrives


def backwards(matrix: PropagationMatrix, rows: Tensor, num_sources: int) -> Tensor:
    """Multiplies ``[n, b]`` by the transpose from the left, ``[num_sources, b]``."""
    pattern, values = matrix.matrix.pattern, matrix.matrix.values
    target = torch.repeat_interleave(pattern.indptr[1:] - pattern.indptr[:-1])
    out = rows.new_zeros(num_sources, rows.shape[1])
    out.index_add_(0, pattern.columns.long(), values.to(rows.dtype)[:, None] * rows[target])
    if matrix.diagonal is not None:
        itself = matrix.diagonal.to(rows.dtype)[:, None] * rows
        own = torch.arange(rows.shape[0]) if matrix.own is None else matrix.own
        out.index_add_(0, own, itself)
    return out


def _itself(rows: Tensor, graph: Adjacency) -> Tensor:
    """Puts what nodes have, ``[n]``, where they are among the sources."""
    out = rows.new_zeros(graph.num_sources)
    own = torch.arange(rows.numel()) if graph.own is None else graph.own
    return out.index_copy_(0, own, rows)
