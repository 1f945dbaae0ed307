"""A selector of your own in ten lines: keep the best connected nodes of every class."""

import sys

from evergraph.config import Variant, resolve
from evergraph.lab.runs import execute
from evergraph.memory import SELECTORS, SelectionPool, SelectorInfo


class Hubs:
    """Prefers nodes with many neighbours; ties go to the lowest id."""

    def rank(self, pool: SelectionPool, label: int, budget: int):
        """Returns ``budget`` nodes of one class, best first."""
        nodes = pool.nodes[pool.rows_of(label)]
        return nodes[pool.adjacency.degree[nodes].argsort(descending=True, stable=True)][:budget]


SELECTORS["hubs"] = SelectorInfo(lambda r: Hubs(), "the best connected nodes")

if __name__ == "__main__":
    from pathlib import Path

    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for selector in ("random", "hubs"):
        method = Variant.parse(f"replay:selector={selector},epochs={epochs}")
        config = resolve(Variant.parse_dataset("cora"), method, seed=0)
        results = execute(config, Path("runs") / f"{selector}-{epochs}")
        print(f"{selector}: PM {results['pm']:.2f}, FM {results['fm']:.2f}")
