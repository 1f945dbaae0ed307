"""What tests of graph layers share: awkward graphs, and features with and without zeros stored."""

from __future__ import annotations

import scipy.sparse
import torch

from evergraph.stream import SparseRows
from evergraph.stream.features import from_scipy_parts
from support import adjacency, seeded

IN = 6


def random_pairs(n: int, count: int, seed: int) -> list[tuple[int, int]]:
    """Draws edges, loops and duplicates among them."""
    return [tuple(pair) for pair in torch.randint(n, (count, 2), generator=seeded(seed)).tolist()]


GRAPHS = {
    "random": adjacency(20, random_pairs(20, 40, 1)),
    "isolated": adjacency(20, random_pairs(10, 15, 2)),  # nodes 10 to 19 have no edge
    "hub": adjacency(15, [(0, i) for i in range(1, 15)] + random_pairs(15, 5, 3)),
    "no-edges": adjacency(6, []),
    "one-node": adjacency(1, []),
}


def features(n: int, seed: int = 5) -> torch.Tensor:
    """Draws features of which half are zero."""
    x = torch.randn(n, IN, generator=seeded(seed))
    x = x * (torch.rand(n, IN, generator=seeded(seed + 1)) < 0.5)
    x[0] = 0  # a node without features
    return x


def sparse(x: torch.Tensor) -> SparseRows:
    """Stores the same features without their zeros, in their precision."""
    matrix = scipy.sparse.csr_matrix(x.numpy())
    rows = from_scipy_parts(matrix.data, matrix.indices, matrix.indptr, x.shape[1])
    return rows.with_values(torch.from_numpy(matrix.data))  # keeps float64
