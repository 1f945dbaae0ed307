"""The selectors that two experiments compare, all under plain replay."""

from evergraph.experiments.experiment import Facts, Row

SELECTORS = ("random", "kmeans", "importance", "mf", "cm", "cd")


def rows(facts: Facts) -> list[Row]:
    """Lists replay with every selector; ``importance`` is ContinualGNN's."""
    return [Row(name, f"replay:selector={name}") for name in SELECTORS]
