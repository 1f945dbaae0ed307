r"""Attribution: what every feature of every node adds to a score of the closed form, exactly.

A row is linear in the features around it once its lengths are known, and a score is linear in
rows, propagated or not. So the score of node :math:`i` is

.. math:: \sum_j \sum_f x_{jf} \sum_k a_{jk} w_{fk},

with :math:`w_{fk}` what feature :math:`f` weighs at hop :math:`k` and :math:`a_{jk}` how much of
node :math:`j` arrives by it: a gradient. Lengths count as given, where rows are not linear.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evergraph.closed_form.features import PropagatedFeatures, PropagationMatrix, propagation_matrix
from evergraph.closed_form.propagation import coefficients
from evergraph.stream.adjacency import Adjacency


class Factors(NamedTuple):
    """Contributions as factors: feature f of node j adds ``x[j, f] * (nodes[j] · features[f])``."""

    nodes: Tensor  # [n, b]
    features: Tensor  # [d, b]
    constant: Tensor | None  # [n], what a constant beside the features adds


class ClosedForm:
    """The closed form around some nodes, to attribute their scores.

    Args:
        rows: Their rows, on a graph for every hop.
        graphs: Those of score propagation, from what a step reads to what it gives.
        teleport: Teleport probability of score propagation.
    """

    def __init__(
        self, rows: PropagatedFeatures, graphs: tuple[Adjacency, ...], teleport: float
    ) -> None:
        self.rows = rows
        size = (rows.features.shape[0], rows.config.parts)
        self._parts = torch.zeros(size, dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            self._scores = _propagated(self._through_hops(), graphs, teleport)

    def attribute(self, at: int, weights: Tensor) -> Factors:
        """Takes apart a score of the node at a place among those that the last step gives.

        ``weights`` ``[width]`` turn a row into the score: those of a class less those of another.
        """
        rows, kind, weights = self.rows, self.rows.config, weights.double()
        per_hop = weights.view(kind.blocks, rows.columns).t()  # [columns, blocks]
        (arrives,) = torch.autograd.grad(self._scores[at], self._parts, retain_graph=True)
        if kind.scaling != "none":
            arrives = arrives / rows.lengths.double()[:, None]
        if kind.blocks == 1:
            arrives = arrives.sum(dim=1, keepdim=True)
        constant = None
        if kind.constant is True:
            constant = (arrives @ per_hop[-1]) * rows.features.shape[1] ** 0.5
            per_hop = per_hop[:-1]
        if rows.directions is not None:
            per_hop = rows.directions.double() @ per_hop
        return Factors(arrives, per_hop, constant)

    def _through_hops(self) -> Tensor:
        """Returns rows' scores where every node has one number for each hop, ``[m]``."""
        rows, powers, parts = self.rows, self.rows.config.powers, self.rows.config.parts
        share = parts if rows.config.combine == "sum" else parts**0.5
        lengths = share * torch.where(rows.hop_lengths > 0, rows.hop_lengths, 1).double()
        heard, scores = self._parts, lengths.new_zeros(rows.num_nodes)
        for hop, matrix in enumerate(rows.directed, len(powers)):
            scores = scores + _at(_times(matrix, heard), rows.places[1])[:, hop] / lengths[hop]
        for power, place in enumerate(rows.places):
            if power:
                heard = _times(rows.matrices[power - 1], heard)
            if power in powers:
                hop = powers.index(power)
                scores = scores + _at(heard, place)[:, hop] / lengths[hop]
        return scores


def _propagated(scores: Tensor, graphs: tuple[Adjacency, ...], teleport: float) -> Tensor:
    """Propagates scores ``[m]`` to the nodes that the last graph gives."""
    if teleport == 1:
        return scores
    *shares, last = coefficients(teleport)
    found = last * scores
    for graph, share in zip(graphs, reversed(shares), strict=True):
        scores = _at(scores, graph.own)
        mean = propagation_matrix(graph, "mean", self_loops=True)
        found = _times(mean, found[:, None])[:, 0] + share * scores
    return found


def _times(matrix: PropagationMatrix, rows: Tensor) -> Tensor:
    """Multiplies ``[n, b]`` from the left, with a gradient."""
    pattern, values = matrix.matrix.pattern, matrix.matrix.values.to(rows.dtype)
    target = torch.repeat_interleave(pattern.indptr[1:] - pattern.indptr[:-1])
    out = rows.new_zeros(pattern.num_rows, rows.shape[1])
    out = out.index_add(0, target, values[:, None] * rows[pattern.columns.long()])
    if matrix.diagonal is None:
        return out
    return out + matrix.diagonal.to(rows.dtype)[:, None] * _at(rows, matrix.own)


def _at(rows: Tensor, places: Tensor | None) -> Tensor:
    return rows if places is None else rows[places]
