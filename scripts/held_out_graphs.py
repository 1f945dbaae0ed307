"""Three graphs that nobody tuned on: the defaults as they stand, beside joint training.

    python scripts/held_out_graphs.py OUTPUT --seeds 5

The graphs are fixed here, before anything was measured on them, and differ in homophily alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evergraph.cli.grids import compare

GRAPH = "synthetic:nodes=2000,classes=6,mean_degree=8,feature_dim=64,feature_signal=2,seed=1"
GRAPHS = [f"{GRAPH},homophily={homophily}" for homophily in (0.3, 0.6, 0.9)]
METHODS = ["analytic", "joint"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--merge", type=Path, action="append")
    arguments = parser.parse_args()
    compare(
        arguments.output,
        dataset=GRAPHS,
        method=METHODS,
        seeds=arguments.seeds,
        jobs=arguments.jobs,
        merge=arguments.merge,
        device=arguments.device,
    )


if __name__ == "__main__":
    main()
