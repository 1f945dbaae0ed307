"""Coverage-based diversity (CD), the paper's selector (Eq. 3-4, Alg. 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.memory.distances import distance_blocks, mean_pairwise_distance
from evergraph.memory.selection import SelectionPool


@dataclass(frozen=True)
class CoverageDiversity:
    """Keeps nodes whose balls of radius ``r`` × mean distance cover most of their class."""

    r: float

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Ranks one class; see :func:`coverage_diversity`."""
        rows = pool.rows_of(label)
        return pool.nodes[rows[coverage_diversity(pool.h[rows], budget, self.r)]]


def coverage_diversity(h: Tensor, budget: int, r: float) -> Tensor:
    r"""Picks nodes whose balls cover most of one class (Eq. 4, Alg. 2).

    Node :math:`i` covers :math:`\{j : \lVert h_i - h_j \rVert < r \bar d\}`, itself always
    included, with :math:`\bar d` the mean pairwise distance. Each pick is the candidate that
    covers most nodes not covered yet, and its whole cover stops being a candidate. When no
    candidate is left, another round begins: only the picked nodes count as covered, all
    others are candidates again (decision 0007). Returns rows of ``h``, best first,
    ``[budget]``; ties go to the lowest row. A smaller budget is a prefix.
    """
    m = h.shape[0]
    budget = min(budget, m)
    if budget == 0:
        return torch.empty(0, dtype=torch.int64, device=h.device)
    covers = _Covers(h, r)
    # One integer orders by gain, then by lowest row: gain * m + (m - 1 - row).
    tie_break = torch.arange(m - 1, -1, -1, device=h.device)
    picked = torch.zeros(m, dtype=torch.bool, device=h.device)
    picks: list[Tensor] = []
    while len(picks) < budget:
        covered, candidate = picked.clone(), ~picked
        gains = covers.sizes - covers.counts(torch.nonzero(picked).flatten())
        while len(picks) < budget and bool(candidate.any()):
            best = torch.where(candidate, gains * m + tie_break, -1).argmax()
            cover = covers.of(best)
            fresh = cover[~covered[cover]]
            covered[fresh] = True
            candidate[cover] = False
            picked[best] = True
            picks.append(best)
            gains -= covers.counts(fresh)
    return torch.stack(picks)


class _Covers:
    """Every node's cover as sorted lists: memory grows with the pairs that are covered."""

    def __init__(self, h: Tensor, r: float) -> None:
        radius = r * mean_pairwise_distance(h)
        owners, members = [], []
        for begin, block in distance_blocks(h, h):
            inside = block < radius
            rows = torch.arange(block.shape[0], device=h.device)
            inside[rows, rows + begin] = True  # a radius of zero still covers the node itself
            owner, member = torch.nonzero(inside, as_tuple=True)
            owners.append(owner + begin)
            members.append(member)
        self.members = torch.cat(members)
        self.sizes = torch.bincount(torch.cat(owners), minlength=h.shape[0])
        self.starts = torch.cumsum(self.sizes, 0) - self.sizes

    def of(self, row: Tensor) -> Tensor:
        """Returns the rows that ``row`` covers."""
        begin = int(self.starts[row])
        return self.members[begin : begin + int(self.sizes[row])]

    def counts(self, rows: Tensor) -> Tensor:
        """Counts how many of ``rows`` each node covers, ``[m]``.

        Covers are symmetric, so the nodes that cover ``j`` are the ones that ``j`` covers.
        """
        sizes = self.sizes[rows]
        owner = torch.repeat_interleave(torch.arange(rows.numel(), device=rows.device), sizes)
        offset = torch.arange(owner.numel(), device=rows.device)
        offset -= (torch.cumsum(sizes, 0) - sizes)[owner]
        covering = self.members[self.starts[rows][owner] + offset]
        return torch.bincount(covering, minlength=self.sizes.numel())
