"""Coverage-based diversity (CD), the paper's selector (Eq. 3-4, Alg. 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.kernels import ops
from evergraph.memory.buffer import SelectionPool

#: Two balls that share a node have centres less than two radii apart; rounding of distances
#: adds far less than one per cent, and what underflows less than :data:`TINY`.
REACH, TINY = 2.02, 1e-18


@dataclass(frozen=True)
class CoverageDiversity:
    """Keeps nodes whose balls of radius ``r`` × mean distance cover most of their class."""

    r: float

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Ranks one class; see :func:`coverage_diversity`."""
        rows = pool.rows_of(label)
        return pool.nodes[rows[coverage_diversity(pool.h[rows], budget, self.r)]]


@dataclass(frozen=True)
class CoreDiversity:
    """Keeps nodes that cover the core of their class: the half that is nearest to its mean."""

    r: float

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Ranks the core by coverage; only then come others, nearest first."""
        rows = pool.rows_of(label)
        apart = (pool.h[rows].double() - pool.h[rows].double().mean(dim=0)).square().sum(dim=1)
        by_distance = rows[torch.argsort(apart, stable=True)]
        half = -(-rows.numel() // 2)
        core = by_distance[:half].sort().values
        picks = core[coverage_diversity(pool.h[core], budget, self.r)]
        return pool.nodes[torch.cat([picks, by_distance[half:]])[:budget]]


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
    covers = _StoredCovers(h, r) if m**2 <= ops.BLOCK_ENTRIES else _ComputedCovers(h, r)
    # One integer orders by gain, then by lowest row: gain * m + (m - 1 - row).
    tie_break = torch.arange(m - 1, -1, -1, device=h.device)
    picked = torch.zeros(m, dtype=torch.bool, device=h.device)
    picks: list[int] = []
    start, before = covers.sizes.clone(), picked.clone()  # gains as a round begins; what they know
    while len(picks) < budget:
        _lose(start, covers, picked & ~before, ~picked)
        gains, before = start.clone(), picked.clone()
        covered, candidate = picked.clone(), ~picked
        while len(picks) < budget:
            key = int(torch.where(candidate, gains * m + tie_break, -1).max())
            if key < 0:  # no candidate is left
                break
            best = m - 1 - key % m
            cover, reach = covers.around(best)
            fresh = cover & ~covered
            covered |= cover
            candidate &= ~cover
            picked[best] = True
            picks.append(best)
            _lose(gains, covers, fresh, candidate & reach)
    return torch.tensor(picks, device=h.device)


def _lose(
    gains: Tensor, covers: _StoredCovers | _ComputedCovers, fresh: Tensor, affected: Tensor
) -> None:
    """Lowers the gains of the nodes in one mask by how many of another they cover.

    Only gains of candidates are ever read, so that only theirs are kept right.
    """
    rows, owners = torch.nonzero(fresh).flatten(), torch.nonzero(affected).flatten()
    if rows.numel() and owners.numel():
        gains[owners] -= covers.counts(rows, owners)


class _StoredCovers:
    """All covers of a class whose pairs fit one block: distances are computed once.

    A node always covers itself; ``sizes [m]`` counts what every node covers.
    """

    def __init__(self, h: Tensor, r: float) -> None:
        ((_, distance),) = ops.distance_blocks(h, h)
        pairs = max(h.shape[0] * (h.shape[0] - 1), 1)
        self.inside = distance < r * (distance.sum(dtype=torch.float64) / pairs)
        self.inside.fill_diagonal_(True)  # a radius of zero still covers the node itself
        self.sizes = self.inside.sum(dim=0)
        self._everyone = torch.ones_like(self.inside[0])

    def around(self, row: int) -> tuple[Tensor, Tensor]:
        """Returns masks of what ``row`` covers and of all whose covers may overlap with it."""
        return self.inside[row], self._everyone

    def counts(self, rows: Tensor, owners: Tensor) -> Tensor:
        """Counts how many of ``rows`` each of ``owners`` covers; no node is in both."""
        return self.inside[rows].sum(dim=0)[owners]


class _ComputedCovers:
    """Covers computed whenever they are asked for: memory grows with the nodes alone.

    A node becomes covered once a round, so that a round computes each pair at most once.
    """

    def __init__(self, h: Tensor, r: float) -> None:
        self.h = h
        self.radius = r * ops.mean_pairwise_distance(h)
        # A radius of zero still covers the node itself; any other has counted it.
        self.sizes = ops.count_within(h, h, self.radius).clamp(min=1)

    def around(self, row: int) -> tuple[Tensor, Tensor]:
        ((_, distance),) = ops.distance_blocks(self.h[row : row + 1], self.h)
        cover = distance[0] < self.radius
        cover[row] = True
        # Turned round so that infinite distances, which tell nothing, stay within reach.
        return cover, ~(distance[0] > REACH * self.radius + TINY)

    def counts(self, rows: Tensor, owners: Tensor) -> Tensor:
        return ops.count_within(self.h[rows], self.h[owners], self.radius)
