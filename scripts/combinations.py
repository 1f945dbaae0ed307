"""The analytic learner combined with DSLR's ideas, on validation nodes.

    python scripts/combinations.py --dataset cora --seeds 5 --only smoothed-0.3,structure

Each combination is a method of its own, made here and judged as any other; PM and FM are
printed beside those of ``analytic`` alone, with the paired difference. Those that train a
network (``structure``, ``dslr-head``, ``first-encoder``) take half a minute a run on Cora.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evergraph.closed_form.features import propagation_matrix
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.ridge import Ridge
from evergraph.closed_form.selection import STRENGTHS
from evergraph.config import Variant, resolve
from evergraph.events import Epoch, TaskDone
from evergraph.lab.summary import estimate, overlap
from evergraph.methods import Method, TaskContext, make_method
from evergraph.methods.analytic import Analytic
from evergraph.methods.dslr import DSLR, train_link_predictor
from evergraph.metrics import scores
from evergraph.stream import Graph, LabelledNodes, TaskStream, protocol_for
from evergraph.stream.datasets import load_graph
from evergraph.structure import StructureConfig, nearest_nodes, refine
from evergraph.train import Learner, train


class Propagated(Analytic):
    """Scores are propagated with the symmetric matrix instead of the mean."""

    teleport, steps = 0.5, 5

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        first = super().predict_logits(ctx)
        matrix = propagation_matrix(ctx.adjacency, "symmetric", self_loops=True)
        shown = first
        for _ in range(self.steps):
            mixed = matrix.times(shown.float()).double()
            shown = self.teleport * first + (1 - self.teleport) * mixed
        return shown


class SelfTraining(Analytic):
    """The surest of the nodes without a label join under what they are taken for, never kept."""

    surest, rounds = 0.5, 1

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch]:
        yield from super().fit_task(ctx)
        everyone = torch.ones(ctx.view.num_nodes, dtype=torch.bool)
        everyone[ctx.view.train_nodes] = False
        nodes = torch.nonzero(everyone).flatten()
        for _ in range(self.rounds):
            shown = self.predict_logits(ctx)[nodes]
            top = shown.topk(2, dim=1).values
            margin, found = top[:, 0] - top[:, 1], shown.argmax(dim=1)
            sure = margin >= margin.quantile(1 - self.surest)
            joint = copy.deepcopy(self.moments)
            joint.update(self.rows(ctx).rows(nodes[sure]), found[sure])
            self._weights = Ridge(joint, self.selection.balanced).weights(self.selection.strength)


class Structured(Analytic):
    """Rows of training nodes are taken on a graph whose neighbourhoods DSLR has refined."""

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch]:
        config = StructureConfig(lam=1.0, num_neighbors=3, num_candidates=25, tau=0.75)
        train_nodes = LabelledNodes(ctx.view.train_nodes, ctx.view.train_labels)
        z = yield from train_link_predictor(ctx, train_nodes, config, beta=0.5)
        rows = self.rows(ctx).rows(torch.arange(ctx.view.num_nodes)).float()
        candidates = nearest_nodes(rows, train_nodes.nodes, config.num_candidates)
        graph, _ = refine(ctx.view.adjacency, train_nodes.nodes, candidates, z, config)
        original, ctx.adjacency = ctx.adjacency, graph
        try:
            yield from super().fit_task(ctx)
        finally:
            ctx.adjacency = original


class DslrHead(DSLR):
    """A network trained by DSLR; its head is replaced by ridge regression on its training nodes."""

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        h = ctx.embed().relu().double()
        h = h / h.norm(dim=1, keepdim=True).clamp(min=1e-12)
        nodes, labels = ctx.view.train_nodes, ctx.view.train_labels
        old = ~torch.isin(self.buffer.labels, labels)
        nodes = torch.cat([nodes, self.buffer.nodes[old]])
        labels = torch.cat([labels, self.buffer.labels[old]])
        moments = Moments()
        moments.update(h[nodes], labels)
        ridge = Ridge(moments, balanced=True)
        errors = ridge.leave_one_out_errors(ridge.training_rows(h[nodes], labels), STRENGTHS)
        return h @ ridge.weights(min(errors, key=errors.__getitem__))


def variant(base: type[Method[Any]], **attributes: Any) -> Callable[[Any], Method[Any]]:
    return type(base.__name__, (base,), attributes)


#: Name → (registered method whose settings it takes, settings, class).
COMBINATIONS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "analytic": ("analytic", {}, Analytic),
    "refresh-cd": ("analytic", {"statistics": "refresh"}, Analytic),
    "refresh-random": ("analytic", {"statistics": "refresh", "selector": "random"}, Analytic),
    "smoothed-0.3": ("analytic", {}, variant(Propagated, teleport=0.7)),
    "smoothed-0.6": ("analytic", {}, variant(Propagated, teleport=0.4)),
    "smoothed-0.8": ("analytic", {}, variant(Propagated, teleport=0.2)),
    "self-training-0.25": ("analytic", {}, variant(SelfTraining, surest=0.25)),
    "self-training-0.5": ("analytic", {}, variant(SelfTraining, surest=0.5)),
    "self-training-0.75": ("analytic", {}, variant(SelfTraining, surest=0.75)),
    "self-training-0.5-3": ("analytic", {}, variant(SelfTraining, surest=0.5, rounds=3)),
    "structure": ("analytic", {}, Structured),
    "dslr": ("dslr", {}, DSLR),
    "dslr-head": ("dslr", {}, DslrHead),
    "first-encoder": ("analytic", {"rows": "encoder"}, Analytic),
}


def measure(name: str, graph: Graph, arguments: argparse.Namespace, seed: int) -> tuple[float, ...]:
    """Runs one combination with one seed; returns PM and FM."""
    base, settings, cls = COMBINATIONS[name]
    shared = {"evaluate": "validation", "validation_fraction": 0.1}
    if base == "analytic":
        # The same rows on either side, as they arrived and as they are.
        alone = {"hops": "0+1+2", "teleport": 1, "mean_field": False, "statistics": "arrival"}
        settings = {**alone, **settings}
    config = resolve(
        Variant.parse_dataset(arguments.dataset),
        Variant(name=base, options=settings, label=name),
        seed,
        shared,
    )
    stream = TaskStream(graph, config.protocol, seed)
    learner = Learner(cls(make_method(base, config.settings).config))
    matrix = [
        event.row
        for event in train(learner, stream, config.model, config.training, seed=seed)
        if isinstance(event, TaskDone)
    ]
    found = scores(matrix)
    return found.pm, found.fm or 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", help="names of combinations, joined by commas")
    parser.add_argument("--data-root", type=Path, default=None)
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(COMBINATIONS)
    if unknown := [name for name in names if name not in COMBINATIONS]:
        parser.error(f"unknown combination '{unknown[0]}': choose among {', '.join(COMBINATIONS)}")
    graph = load_graph(arguments.dataset, arguments.data_root)
    alone = [measure("analytic", graph, arguments, seed) for seed in range(arguments.seeds)]
    for name in names:
        found = [measure(name, graph, arguments, seed) for seed in range(arguments.seeds)]
        differences = [mine[0] - theirs[0] for mine, theirs in zip(found, alone, strict=True)]
        lead = estimate(differences, overlap(protocol_for(arguments.dataset)))
        answer = {
            "dataset": arguments.dataset,
            "combination": name,
            "seeds": arguments.seeds,
            "pm": round(statistics.fmean(pm for pm, _ in found), 2),
            "fm": round(statistics.fmean(fm for _, fm in found), 2),
            "minus_analytic": round(statistics.fmean(differences), 2),
            "interval": None if lead["p"] is None else [round(lead[k], 2) for k in ("low", "high")],
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
