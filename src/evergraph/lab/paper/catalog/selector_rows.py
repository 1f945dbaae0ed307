"""The selectors that two experiments compare, all in DSLR without structure learning."""

from evergraph.lab.paper.experiment import Facts, Row

SELECTORS = ("random", "kmeans", "importance", "mf", "cm", "cd")


def rows(facts: Facts) -> list[Row]:
    """Lists every selector under DSLR's settings; ``importance`` is ContinualGNN's."""
    others = [Row(name, f"dslr:structure=none,selector={name}") for name in SELECTORS[:-1]]
    return [*others, Row("cd", "dslr:structure=none")]
