"""Graphs that nobody tuned on: the defaults as they stand, beside joint training.

    python scripts/held_out_graphs.py OUTPUT --seeds 5
    python scripts/held_out_graphs.py OUTPUT --seeds 5 --graphs first

Each three are fixed here, before anything was measured on them, and differ in homophily alone.
The first were measured before hops were chosen by the learner, the second after, the third with
score propagation, the fourth with mean-field inference.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evergraph.lab.cli.grids import compare
from evergraph.lab.cli.runs import SettingOptions
from evergraph.lab.engines import Resources

FAMILIES = {
    "first": "nodes=2000,classes=6,mean_degree=8,feature_dim=64,feature_signal=2,seed=1",
    "second": "nodes=1800,classes=8,mean_degree=6,feature_dim=96,feature_signal=2.4,seed=29",
    "third": "nodes=2400,classes=10,mean_degree=7,feature_dim=48,feature_signal=2.2,seed=53",
    "fourth": "nodes=2200,classes=9,mean_degree=9,feature_dim=80,feature_signal=1.9,seed=71",
}
HOMOPHILY = (0.3, 0.6, 0.9)
METHODS = ["analytic", "joint"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--graphs", choices=sorted(FAMILIES), default="fourth")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--merge", type=Path, action="append")
    arguments = parser.parse_args()
    compare(
        arguments.output,
        dataset=[f"synthetic:{FAMILIES[arguments.graphs]},homophily={h}" for h in HOMOPHILY],
        method=METHODS,
        seeds=arguments.seeds,
        merge=arguments.merge,
        settings=SettingOptions(),
        resources=Resources(jobs=arguments.jobs, device=arguments.device),
    )


if __name__ == "__main__":
    main()
