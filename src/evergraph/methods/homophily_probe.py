"""A probe for one question: does it harm to replay nodes with neighbours of other classes?

Replay whose buffer holds, for one class, one part of its training nodes sorted by homophily, and
random nodes of all others (Appendix A of the DSLR paper). Homophily is judged by the labels that
may be read, those of the task's training nodes; what the kept nodes' homophily really is, the
diagnostics tell afterwards (decision 0021).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from evergraph.memory import SelectionPool
from evergraph.memory.selectors import Random
from evergraph.methods.replay import ReplayBase, ReplayConfig


class HomophilyProbeConfig(ReplayConfig):
    """Settings of the probe: those of replay and which nodes of which class are kept."""

    probed_class: int = Field(default=0, ge=0)  # the class, in order of arrival
    #: Which part of it: 0 the least homophilous nodes, 1 the most.
    position: float = Field(default=0.0, ge=0, le=1)

    def unused(self) -> frozenset[str]:
        """Names the settings of other selectors."""
        return frozenset({"selector", "r"})


class HomophilyProbe(ReplayBase[HomophilyProbeConfig]):
    """Replay of nodes with a chosen homophily."""

    Config = HomophilyProbeConfig
    summary = "replay of one class's nodes by their homophily, random nodes of the others"
    paper = (
        "Choi et al., DSLR: Diversity Enhancement and Structure Learning for Rehearsal-based GCL"
    )
    year = 2024

    def selector(self) -> HomophilyPart:
        """Makes the selector that knows the probed class."""
        return HomophilyPart(self.config.probed_class, self.config.position)


@dataclass(frozen=True)
class HomophilyPart:
    """Keeps one of ⌈m/e⌉ consecutive parts of a class sorted by homophily, others at random."""

    probed_class: int
    position: float

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Returns the part at the position, the least homophilous of its nodes first."""
        if label != self.probed_class:
            return Random().rank(pool, label, budget)
        nodes = pool.nodes[pool.rows_of(label)]
        homophily, alike = known_homophily(pool, nodes, label)
        by_count = torch.argsort(alike, stable=True)  # among equals, more evidence is more
        order = by_count[torch.argsort(homophily[by_count], stable=True)]
        num_parts = -(-nodes.numel() // max(budget, 1))
        part = min(int(self.position * num_parts), num_parts - 1)
        # The last part is whole too: it ends with the last node.
        first = min(part * budget, nodes.numel() - budget)
        return nodes[order[first : first + budget]]


def known_homophily(pool: SelectionPool, nodes: Tensor, label: int) -> tuple[Tensor, Tensor]:
    """Computes the share of same-class neighbours among those with a readable label.

    A node without such neighbours counts as 0, as an isolated one does. Returns the shares
    and the counts of same-class neighbours, both ``[m]``.
    """
    owner, neighbour = pool.adjacency.edges_into(nodes)
    known = torch.isin(neighbour, pool.nodes)
    same = torch.isin(neighbour, pool.nodes[pool.rows_of(label)])
    total = torch.zeros(nodes.numel(), dtype=torch.float64, device=nodes.device)
    alike = total.index_add(0, owner, same.double())
    return alike / total.index_add(0, owner, known.double()).clamp(min=1), alike
