"""What several workers do together: every function here runs in each of them and checks itself.

``python -m torch.distributed.run --nproc-per-node 2 in_team.py ANSWERS`` writes what came of each.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from evergraph.closed_form.features import FeatureConfig, PropagatedFeatures
from evergraph.closed_form.moments import Moments
from evergraph.config import Variant, resolve
from evergraph.estimator.graph import sparse as sparse_rows
from evergraph.events import Epoch, Event, TaskDone
from evergraph.launch import end_worker
from evergraph.methods import TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Adjacency, Graph, GraphView, TaskStream
from evergraph.stream.adjacency import Arcs
from evergraph.stream.board import Board
from evergraph.stream.datasets import load_graph
from evergraph.stream.shard import Shard, SharedRows
from evergraph.team import ALONE, Team
from evergraph.train import Learner, learn_task, make_context, plan_for, predict, train

torch.set_num_threads(1)
GRAPH = load_graph(
    "synthetic", None, {"nodes": 600, "mean_degree": 6, "classes": 6, "feature_dim": 24, "steps": 3}
)


def check_sums_and_picks(team: Team) -> None:
    assert team.sum(torch.ones(3) * (team.rank + 1)).tolist() == [3.0] * 3
    rows = torch.arange(4.0)[:, None] + 10 * team.rank  # nodes 0..3 and 4..7
    at = torch.tensor([5, 0, 7]) - 4 * team.rank
    picked = team.pick(rows, torch.where((at >= 0) & (at < 4), at, -1))
    assert picked.flatten().tolist() == [11.0, 0.0, 13.0]


def check_gathered_rows_may_differ_in_number(team: Team) -> None:
    mine = torch.full((1 + 2 * team.rank, 2), float(team.rank))
    assert team.gather(mine)[:, 0].tolist() == [0.0, 1.0, 1.0, 1.0]
    assert team.gather(torch.arange(0)).numel() == 0
    assert team.share(torch.arange(5)).tolist() == [[0, 1, 2], [3, 4]][team.rank]


def check_one_tells_all_the_others(team: Team) -> None:
    said = {"a": torch.arange(3), "b": [1, None, "x"], "c": {"d": team.rank}}
    for teller in (0, 1):
        heard = team.tell(said, teller)
        assert heard["a"].tolist() == [0, 1, 2]
        assert (heard["b"], heard["c"]["d"]) == ([1, None, "x"], teller)


def check_rows_are_fetched_from_whoever_has_them(team: Team) -> None:
    graph = ring(40)
    shard = Shard.of(graph, team)
    own = torch.arange(shard.first, shard.last, dtype=torch.float32)[:, None]
    shared = SharedRows(own, shard)
    wanted = torch.tensor([39, 0, 20, 20, 7])[: 5 - 4 * team.rank]  # each as many as it likes
    assert shared[wanted].flatten().tolist() == wanted.float().tolist()
    assert shard.extend(own).flatten().tolist() == list(range(40))  # on a board that all see
    with without_board():
        sent = Shard.of(graph, team)
    assert sent.extend(own).flatten().tolist() == [
        *range(sent.first, sent.last),
        *sent.halo.tolist(),
    ]


def check_few_rows_are_those_of_all(team: Team) -> None:
    graph, x = ring(300), torch.randn(300, 5, generator=torch.Generator().manual_seed(2))
    config = FeatureConfig(hops="0+1+2")
    for wanted in (torch.tensor([299, 10, 150]), torch.tensor([10])):  # whom both, or one has
        expected = PropagatedFeatures(x, graph, config, 0).rows(wanted)
        for make in (nullcontext, without_board):
            with make():
                shard = Shard.of(graph, team)
            own = x[shard.first : shard.last]
            found = PropagatedFeatures(own, shard, config, 0, known={}).rows(wanted)
            torch.testing.assert_close(found, expected)
            some = PropagatedFeatures(own, shard, config, 0, some=True)
            torch.testing.assert_close(some.rows(wanted), expected)
            mine = wanted[shard.place(wanted) >= 0]
            kept = PropagatedFeatures(x, graph, config, 0).rows(mine)
            torch.testing.assert_close(some.own_rows(shard.place(mine))[:], kept)


def check_rows_of_a_slow_worker_are_not_overwritten(team: Team) -> None:
    graph, x = ring(300), torch.randn(300, 5, generator=torch.Generator().manual_seed(2))
    shard, activate = Shard.of(graph, team), PropagatedFeatures._activate
    assert shard.board is not None

    def late(*given: Any) -> torch.Tensor:
        time.sleep(0.01 * (team.rank == 1))
        return activate(*given)

    own, here = x[shard.first : shard.last], torch.arange(shard.first, shard.last)
    for constant in (False, True, False):  # rows of another width lie elsewhere
        config = FeatureConfig(hops="0+1+2", constant=constant)
        expected = PropagatedFeatures(x, graph, config, 0).own_rows(here)
        with mock.patch.object(PropagatedFeatures, "_activate", late):
            found = PropagatedFeatures(own, shard, config, 0).own_rows(here - shard.first)
        torch.testing.assert_close(found, expected)


def check_moments_of_parts_are_those_of_all(team: Team) -> None:
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(90, 7, generator=generator), torch.arange(90) % 5
    for rank, first in ((None, 60), (None, 3), (2, 40)):  # a matrix, a factor, strongest directions
        whole, shared = Moments(rank, torch.float64), Moments(rank, torch.float64)
        for some in (slice(0, first), slice(first, 90)):
            whole.update(x[some], labels[some])
            mine = torch.arange(90)[some][team.rank :: 2]
            shared.update(x[mine], labels[mine], team)
        assert whole.labels == shared.labels
        assert torch.equal(whole.counts, shared.counts)
        torch.testing.assert_close(whole.means, shared.means)
        if rank is None:
            torch.testing.assert_close(products(whole), products(shared))


def products(moments: Moments) -> torch.Tensor:
    scatter = moments.scatter
    return scatter if scatter.shape[0] == scatter.shape[1] else scatter.t() @ scatter


def check_closed_form_gives_what_one_worker_gives(team: Team) -> None:
    for words in (
        "analytic",
        "analytic:hops=0+1+2,combine=concatenate,teleport=0.5,mean_field=off",
        "analytic:mean_field=on,class_weight=balanced",
        "analytic:memory=2KB,statistics=refresh,buffer_size=24",
        "analytic:rank=3,statistics=arrival",
        "analytic:metric=balanced_accuracy,statistics=exact",
    ):
        alone, together = (trained(words, who) for who in (ALONE, team))
        torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-6, msg=words)
        assert torch.equal(alone.argmax(dim=1), together.argmax(dim=1)), words


def check_rows_that_are_sent_give_the_same(team: Team) -> None:
    with without_board():
        for words in ("analytic:mean_field=on", "dslr:structure=none"):
            shared = {} if words[0] == "a" else {**EXACT, "buffer_size": 24}
            alone, together = (trained(words, who, **shared) for who in (ALONE, team))
            torch.testing.assert_close(alone, together, atol=1e-4, rtol=1e-4, msg=words)


def without_board() -> AbstractContextManager[object]:
    """Makes workers send rows to each other, as those of several machines do."""
    return mock.patch.object(Board, "of", return_value=None)


def check_sparse_features_and_streams_in_time(team: Team) -> None:
    sparse = replace(GRAPH, x=sparse_rows((GRAPH.x > 1).float()))
    for graph, stream in ((sparse, "class"), (GRAPH, "time"), (GRAPH, "blurry:0.3")):
        alone, together = (trained("analytic", who, graph, stream) for who in (ALONE, team))
        torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-6, msg=stream)


def trained(
    words: str, team: Team, graph: Graph = GRAPH, kind: str = "class", **shared: Any
) -> torch.Tensor:
    """Runs a stream and returns the logits after its last task."""
    learner, events = started(words, team, graph, {"stream": kind, **shared})
    rows = [event.row for event in events if type(event) is TaskDone]
    assert all(len(row) == number + 1 for number, row in enumerate(rows))
    assert learner.context is not None
    return predict(learner, learner.context)


def started(
    words: str, team: Team, graph: Graph, shared: dict[str, Any]
) -> tuple[Learner, Iterator[Event]]:
    config = resolve(Variant.parse_dataset("synthetic"), Variant.parse(words), 0, shared)
    stream, learner = TaskStream(graph, config.protocol, 0), Learner(config.make_method())
    return learner, train(learner, stream, config.model, config.training, seed=0, team=team)


def check_directions_and_weights_are_kept(team: Team) -> None:
    graph = ring(300)
    generator = torch.Generator().manual_seed(1)
    led = torch.rand(graph.num_edges // 2, generator=generator) + 0.5
    once = graph.src < graph.dst
    weights = torch.zeros(graph.num_edges, 2)
    weights[once, 0] = led
    weights[~once, 1] = lookup(graph, once, led)
    graph = replace(graph, arcs=Arcs(weights, directed=True))
    x = torch.randn(300, 12, generator=generator)
    labels = torch.arange(300) % 3
    x[:, :3] += torch.nn.functional.one_hot(labels, 3)
    nodes = torch.arange(0, 300, 2)
    found = []
    for who in (ALONE, team):
        view = GraphView(0, x, graph, nodes, labels[nodes], 3, (0, 1, 2))
        settings = {"combine": "concatenate", "hops": "0+1", "direction": True}
        learner = Learner(make_method("analytic", settings))
        plan = plan_for(learner, (300, 600), x, ModelConfig(), TrainConfig(), device=x.device)
        ctx = make_context(learner, view, ModelConfig(), TrainConfig(), plan, seed=0, team=who)
        list(learn_task(learner, ctx))
        found.append(predict(learner, ctx))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-6)


def lookup(graph: Adjacency, once: torch.Tensor, led: torch.Tensor) -> torch.Tensor:
    """Finds what each edge weighs the other way."""
    known = graph.src[once] * graph.num_nodes + graph.dst[once]
    order = torch.argsort(known)
    back = graph.dst[~once] * graph.num_nodes + graph.src[~once]
    return led[order[torch.searchsorted(known[order], back)]]


#: Everything is drawn and nothing dropped: a step of several workers is that of one.
EXACT = {"batch_size": 40, "fanout": 1000, "dropout": 0.0, "epochs": 3, "channels": 4, "heads": 2}


def check_same_batches_give_the_same_losses(team: Team) -> None:
    for words in ("replay:selector=mf", "joint", "dslr:structure=none", "finetune"):
        alone, together = (losses(words, who) for who in (ALONE, team))
        # A worker tells the loss of its own half: they agree on average over the workers.
        mean = team.sum(together.clone()) / team.size
        torch.testing.assert_close(alone, mean, atol=1e-4, rtol=1e-4, msg=words)


def losses(words: str, team: Team) -> torch.Tensor:
    shared = EXACT | ({"buffer_size": 24} if words not in ("joint", "finetune") else {})
    _, events = started(words, team, GRAPH, shared)
    return torch.tensor([float(event.loss) for event in events if type(event) is Epoch])


def check_network_learns_structure_together(team: Team) -> None:
    given = {"buffer_size": 24, "link_epochs": 2, "num_candidates": 10, "num_neighbors": 2}
    learner, events = started("dslr", team, GRAPH, {**EXACT, **given, "fanout": 5})
    list(events)
    assert learner.model is not None
    assert learner.method.buffer is not None
    mine = {"model": dict(learner.model.state_dict()), **learner.method.state_dict()}
    first = team.tell(mine)  # all have learned the same
    for name, value in mine["model"].items():
        torch.testing.assert_close(value, first["model"][name])
    for label, nodes in learner.method.buffer.picks.items():
        assert torch.equal(nodes, first["buffer"]["picks"][str(label)])


def ring(n: int) -> Adjacency:
    ends = torch.arange(n)
    pairs = torch.stack([ends, (ends + 1) % n])
    return Adjacency.from_edges(torch.cat([pairs, pairs.flip(0)], dim=1), n)


CHECKS: dict[str, Callable[[Team], None]] = {
    name: value for name, value in sorted(globals().items()) if name.startswith("check_")
}


def main() -> None:
    team, answers = Team.join(), dict[str, str]()
    for name, check in CHECKS.items():
        try:
            check(team)
            answers[name] = ""
        except Exception:
            answers[name] = traceback.format_exc()
        wrong = team.sum(torch.tensor([float(bool(answers[name]))]))
        if wrong.item():  # the others may be waiting in the middle of something
            break
    Path(f"{sys.argv[1]}-{team.rank}.json").write_text(json.dumps(answers), "utf-8")
    team.leave()
    end_worker(0)


if __name__ == "__main__":
    main()
