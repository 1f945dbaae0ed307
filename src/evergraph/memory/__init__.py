"""What is kept of earlier tasks (:class:`ReplayBuffer`) and which nodes (selectors)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evergraph.memory.buffer import ReplayBuffer, SelectionPool, Selector
from evergraph.memory.coverage import CoreDiversity, CoverageDiversity
from evergraph.memory.selectors import (
    CoverageMaximization,
    HopCoverage,
    Importance,
    InfluenceMaximization,
    KMeansCenters,
    MeanFeature,
    Random,
)


@dataclass(frozen=True)
class SelectorInfo:
    """A registered selector: how to make it from ``r``, and one line about it.

    ``prefix`` tells whether a smaller budget gives the beginning of a larger one's picks.
    """

    make: Callable[[float], Selector]
    summary: str
    prefix: bool = True


SELECTORS: dict[str, SelectorInfo] = {
    "random": SelectorInfo(lambda r: Random(), "drawn once per class, kept as an order"),
    "mf": SelectorInfo(lambda r: MeanFeature(), "closest to the class mean of embeddings"),
    "mf-feature": SelectorInfo(
        lambda r: MeanFeature(of_features=True), "closest to the class mean of features"
    ),
    "cd": SelectorInfo(CoverageDiversity, "coverage-based diversity (DSLR)"),
    "cd-core": SelectorInfo(CoreDiversity, "coverage of the half nearest to the class mean"),
    "kmeans": SelectorInfo(lambda r: KMeansCenters(), "closest to five centres of each class"),
    "cm": SelectorInfo(CoverageMaximization, "fewest nodes of other classes near (ER-GNN)"),
    "im": SelectorInfo(lambda r: InfluenceMaximization(), "largest influence on the head (ER-GNN)"),
    "importance": SelectorInfo(
        lambda r: Importance(), "a reservoir that favours mixed neighbourhoods", prefix=False
    ),
    "tem": SelectorInfo(
        lambda r: HopCoverage(), "drawn by how many training nodes are within two hops (PDGNN)"
    ),
}


__all__ = ["SELECTORS", "ReplayBuffer", "SelectionPool", "Selector", "SelectorInfo"]
