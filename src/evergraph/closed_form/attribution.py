r"""Attribution: what every feature of every node adds to a score of the closed form, exactly.

A row is linear in the features around it once its lengths are known, and a score is linear in
rows, propagated or not. So the score of node :math:`i` is

.. math:: \sum_j \sum_f x_{jf} \sum_k a_{jk} w_{fk},

with :math:`a_{jk}` how much of node :math:`j` arrives by hop :math:`k`, which is a gradient, and
:math:`w_{fk}` what feature :math:`f` weighs there. Lengths count as given: that is where rows are
not linear.
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

    ``graphs`` has one for every step, from what it reads to what it gives: those of the hops, then
    :data:`STEPS` of score propagation unless ``teleport`` is 1. What else there is is that of
    :class:`PropagatedFeatures`.
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
        self.teleport, later = teleport, graphs[kind.reach :]
        self._means = [propagation_matrix(graph, "mean", self_loops=True) for graph in later]

    def attribute(self, at: int, weights: Tensor) -> Factors:
        """Takes apart a score of the node at a place among those that the last step gives.

        ``weights`` ``[width]`` turn a row into the score: those of a class less those of another.
        """
        rows, kind, weights = self.rows, self.rows.config, weights.double()
        per_hop = weights.view(kind.blocks, rows.columns).t()  # [columns, blocks]
        shape = (rows.features.shape[0], kind.parts)
        given = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            score = self._propagated(self._added_up(given))[at]
        (arrives,) = torch.autograd.grad(score, given)
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

    def _added_up(self, given: Tensor) -> Tensor:
        """Adds up what arrives of a number for every node and hop, ``[n, hops]`` to ``[m]``."""
        rows, config = self.rows, self.rows.config
        share = config.parts if config.combine == "sum" else config.parts**0.5
        lengths = rows.hop_lengths.double()
        unit = share * torch.where(lengths > 0, lengths, 1)  # [hops, m]
        hops = {  # at the nodes that the first step gives
            index: (times(matrix, given[:, index]), 1)
            for index, matrix in enumerate(rows.directed, len(config.powers))
        }
        for power in range(config.reach + 1):
            given = times(rows.matrices[power - 1], given) if power else given
            if power in config.powers:
                index = config.powers.index(power)
                hops[index] = given[:, index], power
        parts = []
        for index, (arrived, power) in hops.items():
            place = rows.places[power]
            parts.append((arrived if place is None else arrived[place]) / unit[index])
        return torch.stack(parts).sum(dim=0)

    def _propagated(self, scores: Tensor) -> Tensor:
        """Propagates scores ``[m]`` to the nodes that the last step gives."""
        if self.teleport == 1:
            return scores
        # A power p of P leads through the last p graphs; what it leads to, through all before.
        shares = coefficients(self.teleport)
        total = shares[STEPS] * scores
        for step, mean in enumerate(self._means, 1):
            scores = scores if mean.own is None else scores[mean.own]
            total = times(mean, total) + shares[STEPS - step] * scores
        return total


def times(matrix: PropagationMatrix, rows: Tensor) -> Tensor:
    """Multiplies ``[n, ...]`` from the left, with gradient and in double precision."""
    pattern, shape = matrix.matrix.pattern, [-1, *[1] * (rows.ndim - 1)]
    target = torch.repeat_interleave(pattern.indptr[1:] - pattern.indptr[:-1])
    read = matrix.matrix.values.to(rows).view(shape) * rows[pattern.columns.long()]
    out = rows.new_zeros(pattern.num_rows, *rows.shape[1:]).index_add(0, target, read)
    if matrix.diagonal is None:
        return out
    itself = rows if matrix.own is None else rows[matrix.own]
    return out + matrix.diagonal.to(rows).view(shape) * itself
