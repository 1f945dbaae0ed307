"""Recovers the training nodes of the analytic learner from its state and the graph.

    python scripts/recover_nodes.py --dataset cora --seeds 3 --method analytic:rank=15

Of every class the learner keeps the number and the mean of its training rows, and of all of them
the scatter. While there are fewer rows than columns, a class's rows lie in the span of the scatter
around the class's mean and hardly any other row does. The attack ranks all nodes by the squared
Mahalanobis distance of their row and claims as many as the class has rows. It is made after every
task on that task's new classes, with the graph, the settings and the seed known.

Prints, over seeds: the share of training nodes among the claimed ones, the share among all nodes
of these classes (what a claim is worth to one who knows the classes and not the state), the
probability that a training node ranks before another node of its class (AUC; 50 is a coin), the
bytes kept, and PM.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evergraph.config import Variant, resolve
from evergraph.events import TaskDone
from evergraph.metrics import scores
from evergraph.stream import TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.train import Learner, train

#: Energy of directions that a factor does not have, relative to its strongest.
NOWHERE = 1e-9


class Scatter(NamedTuple):
    """The scatter of all training rows around the means of their classes, decomposed."""

    directions: Tensor  # [r, d]
    energy: Tensor  # [r]
    elsewhere: float  # of every other direction; what a rank limit dropped is spread evenly

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Scatter:
        """Decomposes what a state holds, the matrix or its factor."""
        kept = state["scatter"].double()
        if kept.shape[0] < kept.shape[1]:
            _, strength, directions = torch.linalg.svd(kept, full_matrices=False)
            energy = strength.square()
        else:
            energy, vectors = torch.linalg.eigh(kept)
            directions, energy = vectors.T, energy.clamp(min=0)
        return cls(directions, energy, float(state["rest"]) + NOWHERE * float(energy.max()))


def distances(scatter: Scatter, mean: Tensor, rows: Tensor) -> Tensor:
    """Computes the squared Mahalanobis distance of rows ``[n, d]`` to a class's mean, ``[n]``."""
    apart = rows - mean.double()
    along = (apart @ scatter.directions.T).square()
    outside = (apart.square().sum(dim=1) - along.sum(dim=1)).clamp(min=0)
    return (along / (scatter.energy + scatter.elsewhere)).sum(dim=1) + outside / scatter.elsewhere


class Attack(NamedTuple):
    """What was found of one class."""

    claimed: int  # as many as were trained on
    right: int  # that were trained on
    members: int  # nodes of the class, trained on or not
    auc: float


def attack(learner: Learner, stream: TaskStream) -> list[Attack]:
    """Attacks the classes of the task just learned, from the state and the graph of then."""
    assert learner.context is not None
    view = learner.context.view
    rows = learner.method.rows(learner.context).rows(torch.arange(view.num_nodes))
    state = learner.method.state_dict()["moments"]
    scatter, found = Scatter.of(state), []
    for label in view.new_classes:
        trained = torch.zeros(view.num_nodes, dtype=torch.bool)
        trained[view.train_nodes[view.train_labels == label]] = True
        place = state["labels"].index(label)
        order = torch.argsort(distances(scatter, state["means"][place], rows), stable=True)
        claimed = order[: int(state["counts"][place])]  # surest first
        members = order[stream.labels[order] == label]
        ranked = trained[members]
        before = torch.cumsum(~ranked, 0)[ranked]  # others that rank before each training node
        auc = 1 - float(before.double().mean()) / max(int((~ranked).sum()), 1)
        right = int(trained[claimed].sum())
        found.append(Attack(claimed.numel(), right, members.numel(), auc))
    return found


def attack_run(dataset: str, method: str, seed: int, data_root: Path | None) -> dict[str, float]:
    """Learns a stream, attacks the state after every task, and returns a line of the table."""
    config = resolve(Variant.parse_dataset(dataset), Variant.parse(method), seed)
    stream = TaskStream(load_graph(config.dataset, data_root), config.protocol, seed)
    learner = Learner(config.make_method())
    done, found = [], list[Attack]()
    for event in train(learner, stream, config.model, config.training, seed=seed):
        if isinstance(event, TaskDone):
            done.append(event)
            found += attack(learner, stream)
    claimed = sum(part.claimed for part in found)
    return {
        "recovered": 100 * sum(part.right for part in found) / claimed,
        "training share": 100 * claimed / sum(part.members for part in found),
        "AUC": 100 * statistics.fmean(part.auc for part in found),
        "bytes": max(event.memory_bytes for event in done),
        "PM": scores([event.row for event in done]).pm,
    }


def main() -> None:
    """Prints a Markdown table with a line for every method, means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--method", action="append", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-root", type=Path)
    given = parser.parse_args()
    print("| | recovered, % | training share, % | AUC, % | bytes kept | PM |")
    print("|---|---:|---:|---:|---:|---:|")
    for method in given.method:
        seeds = range(given.seeds)
        lines = [attack_run(given.dataset, method, seed, given.data_root) for seed in seeds]
        means = [statistics.fmean(line[name] for line in lines) for name in lines[0]]
        *shares, kept, pm = means
        cells = [f"`{method}`", *(f"{share:.1f}" for share in shares), f"{kept:,.0f}", f"{pm:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
