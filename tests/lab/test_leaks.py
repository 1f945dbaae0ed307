"""The leak exhibit: each shortcut does what it says, and none is within a run's reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evergraph.config import Variant, resolve, settable_keys
from evergraph.errors import InputError
from evergraph.lab.api import runs_by_hash
from evergraph.lab.folder import Run, finished_runs
from evergraph.lab.leaks import SHORTCUTS, leaks_by_key, measure_leak, propagated, write_leak
from evergraph.lab.runs import execute
from evergraph.methods import METHODS
from evergraph.stream import Graph, Protocol, TaskStream

SMALL = {"epochs": 5, "channels": 4, "heads": 2}


def config(method: str = "finetune"):
    return resolve(Variant.parse_dataset("tiny"), Variant.parse(method), 0, SMALL)


@pytest.fixture
def graph(make_graph) -> Graph:
    return make_graph(num_nodes=90, num_classes=6)


def test_without_a_shortcut_it_is_the_run(graph: Graph, tmp_path: Path):
    found = measure_leak(config(), "none", graph)
    results = execute(Run(tmp_path / "run", config()), graph=graph)
    assert found == {key: results[key] for key in ("pm", "fm", "current")}


def test_own_subgraph_has_no_edge_between_tasks(graph: Graph):
    stream, plain = (SHORTCUTS[name](graph, Protocol()) for name in ("own subgraph", "none"))
    ends = torch.tensor([task.num_nodes for task in stream.tasks])
    first, second = torch.bucketize(stream.edges, ends, right=True)
    assert torch.equal(first, second)
    assert 0 < stream.edges.shape[1] < plain.edges.shape[1]
    for task in stream.tasks:
        assert int((second <= task.index).sum()) == task.num_edges


def test_task_of_test_means_is_one_task_and_chooses_among_its_classes(graph: Graph):
    per_node, of_means = (
        SHORTCUTS[name](graph, Protocol()) for name in ("task of each node", "task of test means")
    )
    # Features that give the task away: every mean is right, and many single nodes are not.
    for stream in (per_node, of_means):
        labels, noise = stream.labels, torch.Generator().manual_seed(0)
        told = torch.nn.functional.one_hot(labels // 2, 3).float()
        stream.features = 1.5 * told + torch.randn(90, 3, generator=noise)
        stream.edges = stream.edges[:, :0]
        stream.tasks = tuple(replace(task, num_edges=0) for task in stream.tasks)
        for task in range(3):
            stream.learned(stream.view(task))
    wrong = torch.full((90, 6), 0.0)
    wrong[torch.arange(90), (labels + 2) % 6] = 2.0  # the best class is always another task's
    wrong[torch.arange(90), labels] = 1.0  # and the second best is right
    assert [of_means.judge(wrong, task) for task in range(3)] == [100.0] * 3
    assert sum(per_node.judge(wrong, task) for task in range(3)) < 270
    assert sum(SHORTCUTS["none"](graph, Protocol()).judge(wrong, task) for task in range(3)) == 0


def test_pseudo_labels_are_of_the_task_and_shown_in_its_view_alone(graph: Graph):
    stream = SHORTCUTS["pseudo-labels on test nodes"](graph, Protocol())
    task, view = stream.tasks[1], stream.view(1)
    both = torch.cat([task.train_nodes, task.test_nodes]).sort().values
    assert torch.equal(view.train_nodes, both)
    assert set(view.train_labels.tolist()) <= {2, 3}
    known = torch.isin(view.train_nodes, task.train_nodes)
    assert torch.equal(view.train_labels[known], stream.labels[task.train_nodes])
    assert torch.equal(stream.evaluation(1).labels, stream.labels[task.test_nodes])


def test_statistics_differ_by_the_nodes_that_they_are_fitted_on(graph: Graph):
    first, whole = (
        SHORTCUTS[name](graph, Protocol())
        for name in ("first-task statistics", "whole-graph statistics")
    )
    plain, n = TaskStream(graph, Protocol()), first.tasks[0].num_nodes
    assert float(first.features[:n].mean(dim=0).abs().max()) < 1e-5
    assert float(whole.features.mean(dim=0).abs().max()) < 1e-5
    assert float(whole.features[:n].mean(dim=0).abs().max()) > 1e-3
    assert first.features.shape[0] == plain.features.shape[0]


def test_propagated_by_hand():
    graph = Graph.build(
        "pair",
        torch.tensor([[1.0], [0.0]] * 4),
        torch.tensor([[0], [1]]),
        torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]),
    )
    stream = TaskStream(graph, Protocol())
    rows = propagated(stream.view(0))
    # Two joined nodes share their features half and half; the others keep theirs.
    assert rows.flatten().tolist() == pytest.approx([0.5, 0.5, 1, 0, 1, 0, 1, 0])


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_every_shortcut_measures_what_the_exhibit_shows(graph: Graph, shortcut: str):
    for method in ("one-per-task", "analytic"):
        found = measure_leak(config(method), shortcut, graph)
        assert 0 <= found["pm"] <= 100
        assert found == measure_leak(config(method), shortcut, graph)


def test_leaks_are_no_runs_and_no_settings(graph: Graph, tmp_path: Path):
    write_leak(tmp_path, config(), "own subgraph", graph, "cpu")
    assert list(leaks_by_key(tmp_path)) == [f"own-subgraph/{config().hash}"]
    assert finished_runs(tmp_path) == []
    assert runs_by_hash(tmp_path) == {}
    for name in METHODS:
        assert not settable_keys(name) & {"shortcut", "leak", *SHORTCUTS}
    with pytest.raises(InputError, match="did you mean 'own subgraph'"):
        measure_leak(config(), "own subgraf", graph)
