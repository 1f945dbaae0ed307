"""The script behind two explanations: its variants do what they say."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
import torch

import why_structure
from evergraph.stream import Adjacency, Graph
from evergraph.structure import StructureConfig


def test_thinning_keeps_about_its_share_and_everything_at_one(make_graph: Callable[..., Graph]):
    graph = make_graph(num_nodes=400)
    thinned = why_structure.thin(graph, 0.25)
    assert 0.15 < thinned.edges.shape[1] / graph.edges.shape[1] < 0.35
    assert torch.equal(thinned.edges, why_structure.thin(graph, 0.25).edges)
    assert why_structure.thin(graph, 1.0) is graph


def test_once_adds_no_node_twice_and_none_that_is_replayed():
    generator = torch.Generator().manual_seed(0)
    edges = torch.tensor([[0, 1, 5], [5, 6, 0]])
    adjacency = Adjacency.from_edges(torch.cat([edges, edges.flip(0)], dim=1), 40)
    nodes, z = torch.arange(4), torch.randn(40, 8, generator=generator)
    candidates = torch.arange(40).expand(4, 40)
    config = StructureConfig(num_neighbors=3, num_candidates=40)
    owners, added = why_structure.add_once(adjacency, nodes, candidates, z, config)
    assert torch.equal(torch.bincount(owners), torch.full((4,), 3))
    assert added.unique().numel() == added.numel() == 12
    assert not torch.isin(added, nodes).any()
    assert not adjacency.has_edges(added, owners).any()


@pytest.mark.parametrize("option", ["--once", "--both-graphs"])
def test_script_compares_methods(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    short = "epochs=10,link_epochs=3"
    methods = ["--method", f"dslr:{short}", "--method", f"dslr:structure=none,{short}"]
    monkeypatch.setattr(sys, "argv", ["why_structure.py", "--seeds", "2", option, *methods])
    why_structure.main()
    *runs, end = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [run["seed"] for run in runs] == [0, 0, 1, 1]
    assert runs[0]["loss_refined"] != runs[0]["loss_original"]
    assert runs[1]["loss_refined"] == runs[1]["loss_original"]
    assert (runs[0]["replayed"] == 0) == (option == "--once")
    assert "added" not in runs[1]
    assert end["lead"]["low"] < end["lead"]["high"]
