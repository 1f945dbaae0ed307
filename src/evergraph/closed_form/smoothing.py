"""Smoothing: every node takes a weighted mean of its neighbours' rows, without gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from evergraph.kernels.ops import SparseMatrix
from evergraph.stream.adjacency import Adjacency

Normalisation = Literal["symmetric", "mean"]


@dataclass(frozen=True)
class Smoothing:
    """A weighted graph as a matrix; the diagonal is apart, so that no looped graph is built."""

    matrix: SparseMatrix
    diagonal: Tensor | None  # [n]

    def times(self, rows: Tensor) -> Tensor:
        """Multiplies ``[n, b]`` from the left."""
        out = self.matrix.times(rows.contiguous())
        return out if self.diagonal is None else out.addcmul_(self.diagonal[:, None], rows)


def smoothing(graph: Adjacency, normalisation: Normalisation, self_loops: bool) -> Smoothing:
    r"""Returns :math:`D^{-1/2} \tilde A D^{-1/2}` or :math:`D^{-1} \tilde A` (``mean``).

    :math:`\tilde A` is the graph, with every node its own neighbour if ``self_loops``, and
    :math:`D` its degrees. Without any neighbour a row is zero.
    """
    degree = (graph.degree + int(self_loops)).double().clamp(min=1)
    if normalisation == "symmetric":
        root = degree.rsqrt().float()
        values = root[graph.dst] * root[graph.src]
    else:
        values = degree.reciprocal().float()[graph.dst]
    diagonal = degree.reciprocal().float() if self_loops else None
    return Smoothing(SparseMatrix(graph.pattern, values), diagonal)
