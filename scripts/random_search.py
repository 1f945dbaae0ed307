"""Random search of DSLR's settings on validation nodes, the same draws for every dataset.

    python scripts/random_search.py OUTPUT --stage training --draws 60 --seeds 2 --jobs 16

Stage ``training`` varies what the paper leaves open and the settings every method shares;
stages ``refined`` and ``shortlist`` narrow that down; stage ``structure`` varies DSLR's
own settings on top of
the presets. Finished cells are kept, so that a search can be stopped and continued. It prints
the draws in order of validation PM.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from evergraph.experiments.config import RunConfig, Variant, resolve
from evergraph.experiments.grid import make_cells, run_grid
from evergraph.experiments.summary import collect_results, summarise_grid
from evergraph.rng import make_generator

SPACES: dict[str, dict[str, list[object]]] = {
    "training": {
        "beta": [0.01, 0.05, 0.1, 0.2, 0.3],
        "lr": [0.0005, 0.001, 0.005, 0.01],
        "dropout": [0.0, 0.2, 0.35, 0.5, 0.65],
        "head_init": ["uniform", "default"],
        "label_smoothing": [0.0, 0.1, 0.2],
        "replay_weights": ["none", "balanced"],
    },
    "refined": {  # what the first draws left worth a closer look
        "beta": [0.05, 0.1, 0.2, 0.3],
        "lr": [0.005, 0.01],
        "dropout": [0.0, 0.2, 0.35, 0.5],
        "head_init": ["uniform", "default"],
        "label_smoothing": [0.0, 0.1, 0.2],
        "replay_weights": ["none", "balanced"],
    },
    "structure": {
        "lam": [0.0, 0.25, 0.5, 0.75, 1.0],
        "num_neighbors": [1, 2, 3, 4, 5],
        "num_candidates": [25, 50, 75, 100],
        "tau": [0.75, 0.8, 0.85, 0.9, 0.95],
        "r": [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5],
    },
}

#: What the draws left in the running: (beta, dropout, head_init, label_smoothing, weights).
SHORTLIST = [
    (0.05, 0.5, "uniform", 0.0, "none"),
    (0.05, 0.5, "uniform", 0.1, "none"),
    (0.05, 0.35, "uniform", 0.1, "balanced"),
    (0.1, 0.5, "uniform", 0.1, "none"),
    (0.1, 0.5, "uniform", 0.2, "none"),
    (0.1, 0.5, "uniform", 0.1, "balanced"),
    (0.1, 0.35, "uniform", 0.2, "none"),
    (0.1, 0.35, "default", 0.2, "none"),
    (0.2, 0.5, "uniform", 0.1, "none"),
    (0.2, 0.2, "uniform", 0.1, "none"),
    (0.2, 0.2, "default", 0.1, "none"),
    (0.3, 0.35, "uniform", 0.0, "none"),
    (0.3, 0.2, "default", 0.1, "none"),
    (0.3, 0.35, "uniform", 0.1, "balanced"),
]
SHORTLIST_KEYS = ("beta", "dropout", "head_init", "label_smoothing", "replay_weights")


def draw(space: dict[str, list[object]], count: int, seed: int) -> list[dict[str, object]]:
    generator = make_generator(seed, "random search")
    draws: list[dict[str, object]] = [{}]  # the presets themselves come first
    for _ in range(count):
        picks = {
            key: values[int(torch.randint(len(values), (1,), generator=generator))]
            for key, values in space.items()
        }
        draws.append(picks)
    return draws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--stage", choices=[*SPACES, "shortlist"], required=True)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--method", default="dslr")
    parser.add_argument("--dataset", action="append")
    arguments = parser.parse_args()
    shared = {"evaluate": "validation", "validation_fraction": 0.1}
    configs: list[RunConfig] = []
    if arguments.stage == "shortlist":
        trials = [dict(zip(SHORTLIST_KEYS, values, strict=True)) for values in SHORTLIST]
    else:
        trials = draw(SPACES[arguments.stage], arguments.draws, 0)
    for index, settings in enumerate(trials):
        variant = Variant(
            name=arguments.method, options=settings, label=f"{arguments.stage}-{index:03d}"
        )
        for dataset in arguments.dataset or ("cora", "citeseer", "amazon-computers"):
            for seed in range(arguments.seeds):
                graph = Variant(name=dataset, label=dataset)
                configs.append(resolve(graph, variant, seed, shared))
    failed = run_grid(
        make_cells(configs, arguments.output),
        jobs=arguments.jobs,
        device=arguments.device,
        data_root=arguments.data_root,
        on_message=lambda message: None,
        on_cell=lambda cell, results, reason: print(
            cell.name, f"{results['pm']:.2f}" if results else reason, flush=True
        ),
    )
    for name in failed:
        print("failed:", name)
    summary = summarise_grid(collect_results(arguments.output / "runs"))
    for entry in sorted(summary, key=lambda entry: (entry["dataset"], -entry["pm"]["mean"])):
        numbers = " ".join(f"{entry[key]['mean']:6.2f}" for key in ("pm", "fm", "current"))
        print(entry["dataset"], entry["label"], numbers, entry["overrides"])


if __name__ == "__main__":
    main()
