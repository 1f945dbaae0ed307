"""What the analytic learner loses when a graph arrives in many small batches.

    python scripts/arrival_batches.py --dataset cora --batches 100 --seeds 5

Nodes come in random order, so that every class returns again and again, or task by task
(``--order tasks``) and in random order within a task. A batch's training nodes are learned with
the rows they have among the nodes seen so far. PM is the mean accuracy over the protocol's tasks
after the last batch, beside that of one batch with everything.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from evergraph.config import RunConfig, Variant, resolve
from evergraph.methods import TaskContext, make_method
from evergraph.stream import Adjacency, GraphView, TaskStream
from evergraph.stream.datasets import load_graph


class Arrival:
    """A stream's nodes in another order, cut into batches."""

    def __init__(self, stream: TaskStream, order: Tensor, num_batches: int) -> None:
        self.stream, self.order = stream, order
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        self.place = place
        self.features = stream.features[order]
        self.labels = stream.labels[order]
        self.edges = place[stream.edges]
        self.later_end = self.edges.max(dim=0).values
        self.trains = torch.zeros(order.numel(), dtype=torch.bool)
        self.trains[place[torch.cat([task.train_nodes for task in stream.tasks])]] = True
        self.ends = [order.numel() * (i + 1) // num_batches for i in range(num_batches)]

    def view(self, index: int) -> GraphView:
        """All that has come by batch ``index``; its own training nodes are the current ones."""
        start, stop = (self.ends[index - 1] if index else 0), self.ends[index]
        edges = self.edges[:, self.later_end < stop]
        nodes = start + torch.nonzero(self.trains[start:stop]).flatten()
        return GraphView(
            task=index,
            features=self.features[:stop],
            adjacency=Adjacency.from_edges(torch.cat([edges, edges.flip(0)], dim=1), stop),
            train_nodes=nodes,
            train_labels=self.labels[nodes],
            num_classes=self.stream.num_classes,
            new_classes=(),
        )

    def pm(self, logits: Tensor) -> float:
        """Averages accuracy over the protocol's tasks, in percent."""
        found = logits.argmax(dim=1)
        right = []
        for index in range(self.stream.num_tasks):
            judged = self.stream.evaluation(index)
            right.append(float((found[self.place[judged.nodes]] == judged.labels).double().mean()))
        return 100 * statistics.fmean(right)


def learn(arrival: Arrival, method_text: str, arguments: argparse.Namespace, seed: int) -> float:
    """Learns batch after batch and returns PM after the last."""
    config = _config(arguments, method_text, seed)
    method = make_method(config.method, config.settings)
    for index in range(len(arrival.ends)):
        view = arrival.view(index)
        final = index == len(arrival.ends) - 1
        if not view.train_nodes.numel() and not final:
            continue
        ctx = TaskContext(
            view,
            model=None,
            model_config=config.model,
            training=config.training,
            seed=seed,
            final=final,
        )
        if view.train_nodes.numel():
            method.begin_task(ctx)
            list(method.fit_task(ctx))
            method.end_task(ctx)
    return arrival.pm(method.predict_logits(ctx))


def make_order(stream: TaskStream, kind: str, seed: int) -> Tensor:
    """Draws the order of arrival."""
    generator = torch.Generator().manual_seed(seed)
    starts = [0, *(task.num_nodes for task in stream.tasks)] if kind == "tasks" else None
    if starts is None:
        return torch.randperm(stream.labels.numel(), generator=generator)
    parts = [
        start + torch.randperm(stop - start, generator=generator)
        for start, stop in pairwise(starts)
    ]
    return torch.cat(parts)


def _config(arguments: argparse.Namespace, method: str, seed: int) -> RunConfig:
    shared = {"evaluate": arguments.evaluate}
    if arguments.evaluate == "validation":
        shared["validation_fraction"] = 0.1
    graph = Variant.parse_dataset(arguments.dataset)
    return resolve(graph, Variant.parse(method), seed, shared)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--method", action="append", help="variants; [analytic and its refresh]")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--order", choices=["random", "tasks"], default="random")
    parser.add_argument("--evaluate", choices=["test", "validation"], default="test")
    parser.add_argument("--data-root", type=Path, default=None)
    arguments = parser.parse_args()
    methods = arguments.method or ["analytic", "analytic:statistics=refresh"]
    graph = load_graph(arguments.dataset, arguments.data_root)
    for method in methods:
        pms: dict[int, list[float]] = {1: [], arguments.batches: []}
        for seed in range(arguments.seeds):
            stream = TaskStream(graph, _config(arguments, method, seed).protocol, seed)
            order = make_order(stream, arguments.order, seed)
            for count, found in pms.items():
                found.append(learn(Arrival(stream, order, count), method, arguments, seed))
        one, many = (statistics.fmean(values) for values in pms.values())
        answer = {"dataset": arguments.dataset, "method": method, "order": arguments.order}
        answer |= {"batches": arguments.batches, "seeds": arguments.seeds}
        answer |= {"pm_one_batch": round(one, 2), "pm": round(many, 2), "gap": round(one - many, 2)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
