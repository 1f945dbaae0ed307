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


def of_class(state: Mapping[str, Any], label: int) -> dict[str, Any]:
    """Returns what a state tells of one class: count, mean, and a factor of the scatter."""
    place, factor = state["labels"].index(label), state["scatter"].double()
    if factor.shape[0] == factor.shape[1]:  # the matrix itself, not its factor
        energy, directions = torch.linalg.eigh(factor)
        factor = energy.clamp(min=0).sqrt()[:, None] * directions.T
    mean, count = state["means"][place], state["counts"][place]
    return {"count": int(count), "mean": mean, "factor": factor, "rest": state["rest"]}


def distances(moments: Mapping[str, Any], rows: Tensor) -> Tensor:
    """Computes the squared Mahalanobis distance of rows ``[n, d]`` to one class's state, ``[n]``.

    What a rank limit dropped is spread evenly, as the learner spreads it.
    """
    apart = rows - moments["mean"].double()
    _, strength, directions = torch.linalg.svd(moments["factor"].double(), full_matrices=False)
    energy = strength.square()
    elsewhere = float(moments["rest"]) + NOWHERE * float(energy[0])
    along = (apart @ directions.T).square()
    outside = (apart.square().sum(dim=1) - along.sum(dim=1)).clamp(min=0)
    return (along / (energy + elsewhere)).sum(dim=1) + outside / elsewhere


def claim(moments: Mapping[str, Any], rows: Tensor) -> Tensor:
    """Returns the nodes that are taken for one class's training nodes, surest first."""
    return torch.argsort(distances(moments, rows), stable=True)[: int(moments["count"])]


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
    found = []
    for label in view.new_classes:
        trained = torch.zeros(view.num_nodes, dtype=torch.bool)
        trained[view.train_nodes[view.train_labels == label]] = True
        moments = of_class(state, label)
        claimed = claim(moments, rows)
        members = torch.nonzero(stream.labels[: view.num_nodes] == label).flatten()
        ranked = trained[members][torch.argsort(distances(moments, rows[members]))]
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
