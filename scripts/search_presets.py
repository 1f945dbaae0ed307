"""Search of DSLR's settings on validation nodes: same space, draws and effort for every dataset.

    python scripts/search_presets.py OUTPUT --dataset cora --device cuda

Two stages of successive halving. ``training`` varies what the paper leaves open and what
every method shares, on top of :data:`BASE`; ``structure`` varies DSLR's own settings on top
of the first stage's best. In each round the settings with the highest mean validation PM go
on to more seeds. Finished runs are kept, so that a search can be stopped and continued.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch

from evergraph.config import Variant, resolve
from evergraph.lab.folder import make_jobs
from evergraph.lab.runs import execute
from evergraph.rng import make_generator
from evergraph.stream import Graph
from evergraph.stream.datasets import load_graph

Settings = dict[str, object]

SPACES: dict[str, dict[str, list[object]]] = {
    "training": {
        "beta": [0.01, 0.05, 0.1, 0.2, 0.3],
        "lr": [0.005, 0.01],
        "dropout": [0.2, 0.35, 0.5],
        "head_init": ["uniform", "default"],
        "label_smoothing": [0.0, 0.1, 0.2],
        "replay_weights": ["none", "balanced"],
    },
    "structure": {
        "lam": [0.0, 0.25, 0.5, 0.75, 1.0],
        "num_neighbors": [1, 2, 3, 4, 5],
        "num_candidates": [25, 50, 75, 100],
        "tau": [0.75, 0.8, 0.85, 0.9, 0.95],
        "r": [0.1, 0.15, 0.2, 0.25],
    },
}
PAPER: Settings = {"lam": 0.5, "num_neighbors": 5, "num_candidates": 50, "tau": 0.8, "r": 0.1}
#: Where each search starts: the paper's values but for r, and the best of an earlier search.
BASE: dict[str, Settings] = {
    "cora": {
        **PAPER,
        **{"beta": 0.1, "dropout": 0.35, "head_init": "uniform"},
        **{"label_smoothing": 0.2, "replay_weights": "none", "lr": 0.005},
    },
    "citeseer": {
        **PAPER,
        **{"beta": 0.1, "dropout": 0.5, "head_init": "uniform"},
        **{"label_smoothing": 0.2, "replay_weights": "none", "lr": 0.005},
    },
    "amazon-computers": {
        **PAPER,
        **{"beta": 0.3, "dropout": 0.2, "head_init": "default"},
        **{"label_smoothing": 0.1, "replay_weights": "none", "lr": 0.005},
    },
}
#: Tried besides the draws: the start itself, and what single measurements pointed to.
STARTS: dict[str, list[Settings]] = {
    "training": [
        {},
        {"beta": 0.05, "dropout": 0.5, "head_init": "uniform", "label_smoothing": 0.0},
        {"beta": 0.1, "dropout": 0.5, "head_init": "uniform", "label_smoothing": 0.1},
        {"beta": 0.2, "dropout": 0.35, "head_init": "default", "label_smoothing": 0.1},
    ],
    "structure": [{}, {"num_neighbors": 1}, {"tau": 0.9}],
}
#: (settings kept, seeds each has run in all) of every round.
ROUNDS = {"training": [(16, 2), (5, 4), (2, 8)], "structure": [(12, 2), (4, 4), (2, 8)]}


def draw(stage: str, seed: int = 0) -> list[Settings]:
    """Returns the starting points and random draws of a stage, as many as its first round."""
    generator = make_generator(seed, "preset search", stage)
    count = ROUNDS[stage][0][0] - len(STARTS[stage])

    def column(values: list[object]) -> list[object]:
        """Draws every value about equally often, in random order."""
        repeats = -(-count // len(values))
        order = torch.cat(
            [torch.randperm(len(values), generator=generator) for _ in range(repeats)]
        )
        return [values[int(index)] for index in order[:count]]

    columns = {key: column(values) for key, values in SPACES[stage].items()}
    drawn = [{key: values[i] for key, values in columns.items()} for i in range(count)]
    return [*STARTS[stage], *drawn]


class Search:
    """One dataset's search."""

    def __init__(self, dataset: str, graph: Graph, arguments: argparse.Namespace) -> None:
        self.dataset, self.graph, self.arguments = dataset, graph, arguments

    def stage(self, name: str, base: Settings) -> Settings:
        """Runs all rounds of a stage and returns its best settings."""
        trials = {f"{name}-{i:02d}": {**base, **extra} for i, extra in enumerate(draw(name))}
        ranked = list(trials)
        means: dict[str, tuple[float, float, float]] = {}
        for count, seeds in ROUNDS[name]:
            ranked = ranked[:count]
            for label in ranked:
                means[label] = self._measure(label, trials[label], seeds)
                text = " ".join(f"{value:6.2f}" for value in means[label])
                print(f"{self.dataset} {label} x{seeds} {text} {trials[label]}", flush=True)
            ranked.sort(key=lambda label: -means[label][0])
        print(f"{self.dataset} {name} best: {trials[ranked[0]]}", flush=True)
        return trials[ranked[0]]

    def _measure(self, label: str, settings: Settings, seeds: int) -> tuple[float, float, float]:
        """Returns mean validation PM, FM and Current over the first seeds."""
        shared = {"evaluate": "validation", "validation_fraction": 0.1}
        method = Variant(name="dslr", options=settings, label=label)
        configs = [
            resolve(Variant(name=self.dataset, label=self.dataset), method, seed, shared)
            for seed in range(seeds)
        ]
        results = []
        for job in make_jobs(configs, self.arguments.output):
            finished = job.finished()
            results.append(
                finished
                or execute(
                    job.config,
                    job.path,
                    device=self.arguments.device,
                    data_root=self.arguments.data_root,
                    on_event=lambda event: None,
                    graph=self.graph,
                )
            )
        pm, fm, current = (
            statistics.fmean(result[key] for result in results) for key in ("pm", "fm", "current")
        )
        return pm, fm, current


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--dataset", action="append", choices=list(BASE), required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root", type=Path, default=None)
    arguments = parser.parse_args()
    for dataset in arguments.dataset:
        search = Search(dataset, load_graph(dataset, arguments.data_root), arguments)
        search.stage("structure", search.stage("training", BASE[dataset]))


if __name__ == "__main__":
    main()
