"""The script behind explanations: each change does what it says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
import torch

import why
from evergraph.memory.buffer import SelectionPool
from evergraph.memory.coverage import CoverageDiversity
from evergraph.stream import Adjacency, Graph
from evergraph.structure import StructureConfig, _additions, link_scores

SHORT = "epochs=10,link_epochs=3"


def undirected(pairs: list[tuple[int, int]], count: int) -> Adjacency:
    edges = torch.tensor(pairs).T
    return Adjacency.from_edges(torch.cat([edges, edges.flip(0)], dim=1), count)


class Choice:
    """Four replayed nodes of two classes, all forty nodes as candidates; 0 is on a path."""

    labels = torch.arange(40) % 4
    nodes = torch.tensor([0, 1, 4, 5])
    config = StructureConfig(num_neighbors=3, num_candidates=40)

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.z = torch.randn(40, 3, generator=generator)
        self.z[[1, 4, 5]] = self.z[0] + self.z[[1, 4, 5]] * 0.7  # so that they like the same
        self.adjacency = undirected([(0, 20), (20, 21), (21, 22), (22, 23), (1, 30)], 40)
        order = torch.rand(4, 40, generator=generator).argsort(dim=1)
        self.candidates = order

    def add(self, name: str, entire: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        options = None if entire else self.candidates
        add = why.additions(name, self.labels)
        owners, added = add(self.adjacency, self.nodes, options, self.z, self.config)
        assert not self.adjacency.has_edges(added, owners).any()
        assert (owners != added).all()
        return owners, added


@pytest.mark.parametrize("entire", [False, True])
def test_best_is_what_the_method_adds(entire: bool):
    choice = Choice()
    options = None if entire else choice.candidates
    theirs = _additions(choice.adjacency, choice.nodes, options, choice.z, choice.config)
    assert torch.equal(torch.stack(choice.add("best", entire)), theirs)


def test_once_adds_no_node_twice_and_none_that_is_replayed():
    choice = Choice()
    owners, added = choice.add("once")
    assert torch.equal(torch.bincount(owners)[choice.nodes], torch.full((4,), 3))
    assert added.unique().numel() == added.numel() == 12
    assert not torch.isin(added, choice.nodes).any()


def test_replayed_nodes_are_barred_or_preferred():
    choice = Choice()
    assert not torch.isin(choice.add("fresh")[1], choice.nodes).any()
    assert torch.isin(choice.add("replayed")[1], choice.nodes).all()  # three others for each


def test_nearest_follows_the_order_of_candidates():
    choice = Choice()
    owners, added = choice.add("nearest")
    taken = choice.adjacency.has_edges(choice.candidates, choice.nodes[:, None])
    taken |= choice.candidates == choice.nodes[:, None]
    for row, node in enumerate(choice.nodes.tolist()):
        first = choice.candidates[row][~taken[row]][:3]
        assert set(added[owners == node].tolist()) == set(first.tolist())


def test_local_and_far_reach_three_edges():
    choice = Choice()
    owners, added = choice.add("local")
    assert {21, 22} < set(added[owners == 0].tolist())  # 20 is a neighbour, 23 four edges away
    owners, added = choice.add("far")
    assert not {21, 22} & set(added[owners == 0].tolist())


def test_popular_concentrates_and_random_stays_above_the_threshold():
    choice = Choice()
    best, popular = choice.add("best")[1], choice.add("popular")[1]
    assert popular.unique().numel() < best.unique().numel()
    owners, added = choice.add("random")
    assert (link_scores(choice.z[owners], choice.z[added]) > choice.config.tau).all()
    assert set(added.tolist()) != set(best.tolist())


def test_classes_of_additions_can_be_limited():
    choice = Choice()
    owners, added = choice.add("same-class", entire=True)
    assert torch.equal(choice.labels[owners], choice.labels[added])
    assert choice.labels[choice.add("earlier", entire=True)[1]].max() == 1
    assert choice.labels[choice.add("best", entire=True)[1]].max() > 1


@pytest.mark.parametrize(
    ("name", "expected"), [("core", {0, 1, 2, 3}), ("homophilous", {4, 5, 6, 7})]
)
def test_coverage_chooses_from_the_better_half(name: str, expected: set[int]):
    h = torch.tensor([[0.1], [0.2], [-0.1], [-0.2], [5.0], [6.0], [-5.0], [-6.0]])
    labels = torch.tensor([0] * 8 + [1])
    adjacency = undirected([(4, 5), (6, 7), (0, 8), (1, 8), (2, 8), (3, 8)], 9)
    pool = SelectionPool(
        torch.arange(8), labels[:8], h, torch.ones(9, 1), adjacency, torch.Generator()
    )
    picks = why.rank_half(name, labels)(CoverageDiversity(0.1), pool, 0, 4)
    assert set(picks.tolist()) == expected


def test_thinning_keeps_about_its_share_and_everything_at_one(make_graph: Callable[..., Graph]):
    graph = make_graph(num_nodes=400)
    thinned = why.thin(graph, 0.25)
    assert 0.15 < thinned.edges.shape[1] / graph.edges.shape[1] < 0.35
    assert torch.equal(thinned.edges, why.thin(graph, 0.25).edges)
    assert why.thin(graph, 1.0) is graph


@pytest.mark.parametrize(
    "options", [["--additions", "once"], ["--both-graphs"], ["--kept-from", "core"]]
)
def test_script_compares_methods(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    methods = ["--method", f"dslr:{SHORT}", "--method", f"dslr:structure=none,{SHORT}"]
    seeds = ["--first-seed", "3", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["why.py", *seeds, *options, *methods])
    why.main()
    *runs, end = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [run["seed"] for run in runs] == [3, 3, 4, 4]
    assert runs[0]["loss_refined"] != runs[0]["loss_original"]
    assert runs[1]["loss_refined"] == runs[1]["loss_original"]
    assert 0 < runs[0]["moved"] < 2
    assert "moved" not in runs[1]
    assert (runs[0]["replayed"] == 0) == ("once" in options)
    assert "added" not in runs[1]
    assert end["lead"]["low"] < end["lead"]["high"]
