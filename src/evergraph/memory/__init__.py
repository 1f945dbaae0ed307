"""What is kept of earlier tasks (:class:`ReplayBuffer`) and which nodes (selectors)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evergraph.errors import unknown_name
from evergraph.memory.buffer import ReplayBuffer, class_budgets
from evergraph.memory.coverage import CoverageDiversity, coverage_diversity
from evergraph.memory.selection import SelectionPool, Selector
from evergraph.memory.simple import MeanFeature, Random


@dataclass(frozen=True)
class SelectorInfo:
    """A registered selector: how to make it from ``r``, and one line about it."""

    make: Callable[[float], Selector]
    summary: str


SELECTORS: dict[str, SelectorInfo] = {
    "random": SelectorInfo(lambda r: Random(), "drawn once per class, kept as an order"),
    "mf": SelectorInfo(lambda r: MeanFeature(), "closest to the class mean of embeddings"),
    "mf-feature": SelectorInfo(
        lambda r: MeanFeature(of_features=True), "closest to the class mean of features"
    ),
    "cd": SelectorInfo(CoverageDiversity, "coverage-based diversity (DSLR)"),
}


def make_selector(name: str, r: float) -> Selector:
    """Makes a registered selector; ``r`` is the radius of those that have one."""
    if name not in SELECTORS:
        raise unknown_name("selector", name, SELECTORS)
    return SELECTORS[name].make(r)


__all__ = [
    "SELECTORS",
    "CoverageDiversity",
    "MeanFeature",
    "Random",
    "ReplayBuffer",
    "SelectionPool",
    "Selector",
    "SelectorInfo",
    "class_budgets",
    "coverage_diversity",
    "make_selector",
]
