"""What stands behind a result: one thing changed at a time, seed by seed.

    python scripts/why.py --dataset citeseer --method dslr:lam=0.5 --additions fresh
    python scripts/why.py --dataset amazon-computers --keep-edges 0.125 --seeds 10 \
        --method dslr --method dslr:structure=none
    python scripts/why.py --method dslr:r=0.45 --kept-from core --first-seed 10 --seeds 30

``--additions`` changes which candidates a replayed node is connected to (see ``ADDITIONS``),
``--kept-from`` which nodes coverage may choose from (see ``POOLS``), ``--keep-edges`` takes edges
away at random, and ``--both-graphs`` shows replayed nodes with their own neighbours as well, half
of their loss each. Some changes read labels that no method may see: they ask for causes and are no
methods. A line per run tells how far refinement moves replayed nodes (``moved``), and of the last
task what was added and the loss of replayed nodes on the refined and on the original graph; the end
compares the first method with the others.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pdist

from evergraph import structure as refinement
from evergraph.config import Variant, resolve
from evergraph.events import Epoch, TaskDone
from evergraph.lab.summary import estimate, overlap
from evergraph.memory.buffer import SelectionPool
from evergraph.memory.coverage import CoverageDiversity, coverage_diversity
from evergraph.methods import TaskContext, make_method
from evergraph.methods.dslr import DSLR
from evergraph.methods.replay import ReplayBase
from evergraph.metrics import scores
from evergraph.stream import Adjacency, Graph, TaskStream, protocol_for
from evergraph.stream.datasets import load_graph
from evergraph.stream.tasks import LabelledNodes
from evergraph.structure import StructureConfig
from evergraph.train import Learner, train

#: How far a neighbourhood reaches for ``local`` and ``far``.
HOPS = 3


@dataclass(frozen=True)
class Offer:
    """What one refinement may choose from; a score below 0 is never chosen."""

    adjacency: Adjacency
    nodes: Tensor  # [b] replayed nodes
    options: Tensor  # [b, K] candidates
    scores: Tensor  # [b, K] of links, −1 where there is one already
    labels: Tensor  # [n] of all nodes, also those that no method may see
    config: StructureConfig

    def without(self, barred: Tensor) -> Tensor:
        """Bars some candidates."""
        return self.scores.masked_fill(barred, -1.0)

    def preferring(self, key: Tensor) -> Tensor:
        """Orders the candidates that may be chosen by ``key``, then by score."""
        ranked = key * 2 + self.scores
        return ranked.masked_fill(self.scores < 0, -1.0)

    def near(self) -> Tensor:
        """Tells which candidates are within :data:`HOPS` edges."""
        count, device = self.nodes.numel(), self.adjacency.device
        reached = torch.zeros(self.adjacency.num_nodes, count, device=device)
        reached[self.nodes, torch.arange(count, device=device)] = 1
        for _ in range(HOPS):
            reached.index_add_(0, self.adjacency.dst, reached[self.adjacency.src])
        return reached.T.gather(1, self.options) > 0


def _popularity(offer: Offer) -> Tensor:
    """Counts how many replayed nodes would choose a candidate."""
    best = offer.scores.topk(offer.config.num_neighbors, dim=1).indices
    wanted = offer.options.gather(1, best).flatten()
    return torch.bincount(wanted, minlength=offer.adjacency.num_nodes)[offer.options]


def _at_random(offer: Offer) -> Tensor:
    """Draws among the candidates above τ."""
    generator = torch.Generator().manual_seed(offer.nodes.numel())
    drawn = torch.rand(offer.scores.shape, generator=generator).to(offer.scores.device)
    return drawn.masked_fill(offer.scores <= offer.config.tau, -1.0)


def _once(offer: Offer) -> Tensor:
    """Lets no node be added twice and none that is replayed, best scores first."""
    flat = offer.without(torch.isin(offer.options, offer.nodes)).flatten()
    width = offer.options.shape[1]
    options, allowed = offer.options.flatten().tolist(), torch.full_like(flat, -1.0).cpu()
    wanting = [offer.config.num_neighbors] * offer.nodes.numel()
    taken: set[int] = set()
    order = torch.argsort(flat, descending=True, stable=True)
    for place in order[: int((flat >= 0).sum())].tolist():
        if wanting[place // width] and options[place] not in taken:
            wanting[place // width] -= 1
            taken.add(options[place])
            allowed[place] = 1.0
    return allowed.reshape(offer.options.shape).to(offer.scores.device)


#: What each choice does to the scores of candidates.
ADDITIONS: dict[str, Callable[[Offer], Tensor]] = {
    "best": lambda offer: offer.scores,
    "once": _once,
    "fresh": lambda offer: offer.without(torch.isin(offer.options, offer.nodes)),
    "replayed": lambda offer: offer.preferring(torch.isin(offer.options, offer.nodes)),
    "random": _at_random,
    "nearest": lambda offer: offer.preferring(
        torch.arange(offer.options.shape[1], 0, -1, device=offer.options.device)
    ),
    "local": lambda offer: offer.preferring(offer.near()),
    "far": lambda offer: offer.without(offer.near()),
    "popular": lambda offer: offer.preferring(_popularity(offer)),
    "earlier": lambda offer: offer.without(
        offer.labels[offer.options] > offer.labels[offer.nodes].max()
    ),
    "same-class": lambda offer: offer.without(
        offer.labels[offer.options] != offer.labels[offer.nodes][:, None]
    ),
}


def additions(choice: str, labels: Tensor) -> Callable[..., Tensor]:
    """Makes what stands in for ``refinement._additions``."""

    def add(
        adjacency: Adjacency,
        nodes: Tensor,
        candidates: Tensor | None,
        z: Tensor,
        config: StructureConfig,
    ) -> Tensor:
        if candidates is None:
            everyone = torch.arange(adjacency.num_nodes, device=adjacency.device)
            candidates = everyone.expand(nodes.numel(), -1)
        scored = refinement.candidate_scores(adjacency, nodes, candidates, z)
        known = labels.to(nodes.device)
        liked = ADDITIONS[choice](Offer(adjacency, nodes, candidates, scored, known, config))
        keep = refinement.best_candidates(liked, config.num_neighbors)
        return torch.stack([nodes[:, None].expand_as(candidates)[keep], candidates[keep]])

    return add


def _core(pool: SelectionPool, rows: Tensor, labels: Tensor) -> Tensor:
    """Ranks rows by how near they are to the middle of their class."""
    return -torch.linalg.vector_norm(pool.h[rows] - pool.h[rows].mean(dim=0), dim=1)


def _homophily(pool: SelectionPool, rows: Tensor, labels: Tensor) -> Tensor:
    """Ranks rows by the share of their neighbours that have their class."""
    nodes = pool.nodes[rows]
    owner, neighbour = pool.adjacency.edges_into(nodes)
    same = (labels[nodes[owner]] == labels[neighbour]).float()
    count = pool.adjacency.degree[nodes].clamp(min=1)
    return torch.zeros(nodes.numel(), device=same.device).index_add_(0, owner, same) / count


#: By what the better half of a class is told.
POOLS: dict[str, Callable[[SelectionPool, Tensor, Tensor], Tensor]] = {
    "core": _core,
    "homophilous": _homophily,
}


def rank_half(choice: str, labels: Tensor) -> Callable[..., Tensor]:
    """Makes what stands in for ``CoverageDiversity.rank``: it sees the better half of a class."""

    def rank(self: CoverageDiversity, pool: SelectionPool, label: int, budget: int) -> Tensor:
        rows = pool.rows_of(label)
        liked = POOLS[choice](pool, rows, labels.to(rows.device))
        half = max(budget, rows.numel() // 2)
        rows = rows[torch.argsort(liked, descending=True, stable=True)[:half].sort().values]
        return pool.nodes[rows[coverage_diversity(pool.h[rows], budget, self.r)]]

    return rank


def thin(graph: Graph, share: float) -> Graph:
    """Keeps a share of the edges, drawn with seed 0 whatever the run's."""
    if share >= 1:
        return graph
    kept = torch.rand(graph.edges.shape[1], generator=torch.Generator().manual_seed(0)) < share
    return replace(graph, edges=graph.edges[:, kept])


def loss_on_both(self: ReplayBase[Any], ctx: TaskContext) -> Tensor:
    """Weighs current and replayed nodes, these on the refined and on the original graph."""
    if not len(self.buffer):
        return ctx.cross_entropy(ctx.forward(ctx.batch.nodes), ctx.batch.labels)
    kept, weight = self.buffer.labelled, self.weights(ctx)
    current, refined, *_ = ctx.replay(kept)
    own = ctx.forward(kept.nodes, ctx.view.adjacency)
    replayed = ctx.cross_entropy(refined, kept.labels, *weight)
    replayed = (replayed + ctx.cross_entropy(own, kept.labels, *weight)) / 2
    beta = self.beta(ctx)
    return beta * ctx.cross_entropy(current, ctx.batch.labels) + (1 - beta) * replayed


def moved(ctx: TaskContext, kept: LabelledNodes) -> float:
    """Tells how far refinement moves replayed nodes, as a share of their distance from each other.

    Distances are those of the network before it learns the task, means within classes.
    """
    before = ctx.observe(kept.nodes, ctx.view.adjacency).h
    after = ctx.observe(kept.nodes, ctx.adjacency).h
    way = torch.linalg.vector_norm(after - before, dim=1)
    shares = [
        float(way[mine].mean() / pdist(before[mine]).mean())
        for label in kept.labels.unique()
        if int((mine := kept.labels == label).sum()) > 1
    ]
    return statistics.fmean(shares)


def noted(ways: list[float]) -> Callable[..., Iterator[Epoch]]:
    """Makes what stands in for ``DSLR._learn_structure``: the same, and a note of the way."""
    learn = DSLR._learn_structure

    def learn_and_note(self: DSLR, ctx: TaskContext) -> Iterator[Epoch]:
        yield from learn(self, ctx)
        ways.append(moved(ctx, self.buffer.labelled))

    return learn_and_note


@contextmanager
def changed(arguments: argparse.Namespace, labels: Tensor) -> Iterator[None]:
    """Puts in place what was asked for, and nothing else."""
    with ExitStack() as stack:
        if arguments.additions != "best":
            add = additions(arguments.additions, labels)
            stack.enter_context(mock.patch.object(refinement, "_additions", add))
        if arguments.kept_from is not None:
            rank = rank_half(arguments.kept_from, labels)
            stack.enter_context(mock.patch.object(CoverageDiversity, "rank", rank))
        if arguments.both_graphs:
            stack.enter_context(mock.patch.object(ReplayBase, "loss", loss_on_both))
        yield


def run(graph: Graph, method_text: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Learns all tasks and describes the last one's replayed nodes."""
    presets = "printed" if arguments.as_printed else "tuned"
    dataset, variant = Variant.parse_dataset(arguments.dataset), Variant.parse(method_text)
    config = resolve(dataset, variant, seed, None, presets)
    learner = Learner(make_method(config.method, config.settings))
    stream = TaskStream(graph, config.protocol, seed)
    ways: list[float] = []
    with (
        changed(arguments, stream.labels),
        mock.patch.object(DSLR, "_learn_structure", noted(ways)),
    ):
        events = train(
            learner, stream, config.model, config.training, seed=seed, device=arguments.device
        )
        found = scores([event.row for event in events if isinstance(event, TaskDone)])
    answer = {"method": method_text, "seed": seed, "pm": found.pm, "fm": found.fm}
    answer |= {"current": found.current}
    answer |= {"moved": ways[-1]} if ways else {}
    return {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in (answer | describe(learner, stream.labels)).items()
    }


def describe(learner: Learner, labels: Tensor) -> dict[str, Any]:
    """Tells the loss of replayed nodes, and what they were connected to."""
    ctx, method = learner.context, learner.method
    assert ctx is not None
    assert isinstance(method, ReplayBase)
    kept = method.buffer.labelled
    answer: dict[str, Any] = {}
    for name, adjacency in (("refined", ctx.adjacency), ("original", ctx.view.adjacency)):
        logits = ctx.observe(kept.nodes, adjacency).logits
        answer[f"loss_{name}"] = float(cross_entropy(logits, kept.labels))
    change = getattr(method, "refinement", None)
    if change is None:
        return answer
    ends = torch.cat([change.added, change.added.flip(0)], dim=1)
    owner, new = ends[:, torch.isin(ends[0], kept.nodes)]
    classes = labels.to(new.device)
    answer |= {"added": new.numel(), "different": torch.unique(new).numel()}
    answer["replayed"] = float(torch.isin(new, kept.nodes).double().mean())
    answer["same_class"] = float((classes[owner] == classes[new]).double().mean())
    answer["current_classes"] = float((classes[new] >= ctx.view.new_classes[0]).double().mean())
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--method", action="append", required=True, help="a variant; repeat")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--as-printed", action="store_true")
    parser.add_argument("--keep-edges", type=float, default=1.0, metavar="SHARE")
    parser.add_argument("--additions", choices=list(ADDITIONS), default="best")
    parser.add_argument("--kept-from", choices=list(POOLS), default=None)
    parser.add_argument("--both-graphs", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", type=Path, default=None)
    arguments = parser.parse_args()
    graph = thin(load_graph(arguments.dataset, arguments.data_root), arguments.keep_edges)
    pms: dict[str, list[float]] = {}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for method in arguments.method:
            answer = run(graph, method, seed, arguments)
            pms.setdefault(method, []).append(answer["pm"])
            print(json.dumps(answer), flush=True)
    first, *others = pms.values()
    for name, values in zip(arguments.method[1:], others, strict=True):
        leads = [mine - theirs for mine, theirs in zip(first, values, strict=True)]
        lead = estimate(leads, overlap(protocol_for(arguments.dataset)))
        print(json.dumps({"minus": name, "pm": statistics.fmean(values), "lead": lead}))


if __name__ == "__main__":
    main()
