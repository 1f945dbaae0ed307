"""What structure learning owes to a graph's degree, and to the neighbours that it adds.

    python scripts/why_structure.py --dataset amazon-computers --keep-edges 0.125 --seeds 10 \
        --method dslr --method dslr:structure=none
    python scripts/why_structure.py --method dslr:lam=1 --method dslr:lam=0.5 --seeds 5
    python scripts/why_structure.py --method dslr:lam=0.5 --as-printed --once

``--keep-edges`` takes edges away at random. ``--once`` lets no node be added twice, and none
that is replayed itself. ``--both-graphs`` shows replayed nodes with their own neighbours as
well, half of their loss each. After the last task a line per run tells what was added and the
loss of replayed nodes on the refined and on the original graph; the end compares the first
method with the others, seed by seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.events import TaskDone
from evergraph.experiments.config import Variant, resolve
from evergraph.experiments.verdicts import judge_statement
from evergraph.methods import TaskContext, make_method
from evergraph.methods.replay import ReplayBase
from evergraph.metrics import scores
from evergraph.stream import Adjacency, Graph, TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.structure import StructureConfig, refinement
from evergraph.structure.link_loss import link_scores
from evergraph.train import Learner, train


def thin(graph: Graph, share: float) -> Graph:
    """Keeps a share of the edges, drawn with seed 0 whatever the run's."""
    if share >= 1:
        return graph
    kept = torch.rand(graph.edges.shape[1], generator=torch.Generator().manual_seed(0)) < share
    return replace(graph, edges=graph.edges[:, kept])


def add_once(
    adjacency: Adjacency, nodes: Tensor, candidates: Tensor, z: Tensor, config: StructureConfig
) -> Tensor:
    """Adds N neighbours to each node, best scores first, each only once and none replayed."""
    owner = nodes[:, None].expand_as(candidates)
    scored = link_scores(z[nodes][:, None, :], z[candidates])
    barred = adjacency.has_edges(candidates, owner) | torch.isin(candidates, nodes)
    flat = scored.masked_fill(barred, -1.0).flatten()
    owners, options = owner.flatten().tolist(), candidates.flatten().tolist()
    wanting = dict.fromkeys(nodes.tolist(), config.num_neighbors)
    taken: set[int] = set()
    chosen = []
    for place in torch.argsort(flat, descending=True, stable=True).tolist():
        if flat[place] < 0:
            break
        if wanting[owners[place]] and options[place] not in taken:
            wanting[owners[place]] -= 1
            taken.add(options[place])
            chosen.append((owners[place], options[place]))
    return torch.tensor(chosen, dtype=torch.int64).reshape(-1, 2).T.contiguous()


def loss_on_both(self: ReplayBase[Any], ctx: TaskContext) -> Tensor:
    """Weighs current and replayed nodes, these on the refined and on the original graph."""
    if not len(self.buffer):
        return ctx.cross_entropy(ctx.forward(ctx.batch.nodes), ctx.batch.labels)
    kept, weight, count = self.replayed(), self._weight, ctx.batch.nodes.numel()
    logits, own = ctx.forward(ctx.together(kept.nodes)), ctx.forward(kept.nodes, ctx.view.adjacency)
    replayed = ctx.cross_entropy(logits[count:], kept.labels, weight)
    replayed = (replayed + ctx.cross_entropy(own, kept.labels, weight)) / 2
    beta = self.beta(ctx)
    return beta * ctx.cross_entropy(logits[:count], ctx.batch.labels) + (1 - beta) * replayed


def run(graph: Graph, method_text: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Learns all tasks and describes the last one's replayed nodes."""
    presets = "printed" if arguments.as_printed else "tuned"
    dataset, variant = Variant.parse_dataset(arguments.dataset), Variant.parse(method_text)
    config = resolve(dataset, variant, seed, None, presets)
    learner = Learner(make_method(config.method, config.settings))
    stream = TaskStream(graph, config.protocol, seed)
    events = train(learner, stream, config.model, config.training, seed=seed)
    found = scores([event.row for event in events if isinstance(event, TaskDone)])
    answer = {"method": method_text, "seed": seed, "pm": found.pm, "fm": found.fm}
    answer |= {"current": found.current}
    ctx, method = learner.context, learner.method
    assert ctx is not None
    assert isinstance(method, ReplayBase)
    kept = method.replayed()
    for name, adjacency in (("refined", ctx.adjacency), ("original", ctx.view.adjacency)):
        logits = ctx.observe(kept.nodes, adjacency).logits
        answer[f"loss_{name}"] = float(cross_entropy(logits, kept.labels))
    change = getattr(method, "refinement", None)
    if change is not None:
        ends = torch.cat([change.added, change.added.flip(0)], dim=1)
        new = ends[1, torch.isin(ends[0], kept.nodes)]
        answer |= {"added": new.numel(), "different": torch.unique(new).numel()}
        answer["replayed"] = float(torch.isin(new, kept.nodes).double().mean())
    return {key: round(v, 4) if isinstance(v, float) else v for key, v in answer.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--method", action="append", required=True, help="a variant; repeat")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--as-printed", action="store_true")
    parser.add_argument("--keep-edges", type=float, default=1.0, metavar="SHARE")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--both-graphs", action="store_true")
    parser.add_argument("--data-root", type=Path, default=None)
    arguments = parser.parse_args()
    graph = thin(load_graph(arguments.dataset, arguments.data_root), arguments.keep_edges)
    additions = add_once if arguments.once else refinement._additions
    loss = loss_on_both if arguments.both_graphs else ReplayBase.loss
    pms: dict[str, list[float]] = {}
    with (
        mock.patch.object(refinement, "_additions", additions),
        mock.patch.object(ReplayBase, "loss", loss),
    ):
        for seed in range(arguments.seeds):
            for method in arguments.method:
                answer = run(graph, method, seed, arguments)
                pms.setdefault(method, []).append(answer["pm"])
                print(json.dumps(answer), flush=True)
    first, *others = pms.values()
    for name, values in zip(arguments.method[1:], others, strict=True):
        lead = judge_statement([mine - theirs for mine, theirs in zip(first, values, strict=True)])
        print(json.dumps({"minus": name, "pm": statistics.fmean(values), "lead": vars(lead)}))


if __name__ == "__main__":
    main()
