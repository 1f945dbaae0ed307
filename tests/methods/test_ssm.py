"""SSM: what is kept of neighbourhoods, and that replay reads nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from evergraph.events import TaskDone
from evergraph.methods import TrainConfig, make_method
from evergraph.methods.ssm import SSM
from evergraph.nn import ModelConfig
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.train import Learner, train


def learner_of(stream: TaskStream, tasks: int, **settings: Any) -> Learner:
    learner = Learner(make_method("ssm", {"buffer_size": 12, **settings}))
    training, model = TrainConfig(epochs=2), ModelConfig(channels=4, heads=2)
    for event in train(learner, stream, model, training, seed=0):
        if isinstance(event, TaskDone) and event.task == tasks - 1:
            break
    return learner


@pytest.fixture
def stream(make_graph: Callable[..., Graph]) -> TaskStream:
    return TaskStream(make_graph(60, 6, average_degree=6.0), Protocol(), 0)


def sparse(learner: Learner) -> tuple[SSM, Any, Any]:
    method, ctx = learner.method, learner.context
    assert isinstance(method, SSM)
    assert ctx is not None
    return method, ctx.view.adjacency, method.sparse_graph(ctx)


@pytest.mark.parametrize("sparsify", ["uniform", "degree"])
def test_kept_edges_are_edges_and_no_more_than_asked(stream: TaskStream, sparsify: str):
    method, graph, kept = sparse(learner_of(stream, 1, kept_neighbors=2, sparsify=sparsify))
    assert bool(graph.has_edges(kept.src, kept.dst).all())
    edges = method.buffer.neighbours["edges"]
    assert edges.shape == (len(method.buffer), 2 * (2 + 4))  # two neighbours, two of each
    for node, row in zip(method.buffer.nodes.tolist(), edges.tolist(), strict=True):
        assert row[0] == row[2] == node
        assert len({row[1], row[3]} - {node}) == min(2, int(graph.degree[node]))
    assert 0 < kept.num_edges < graph.num_edges


def test_enough_neighbours_keep_the_whole_neighbourhood(stream: TaskStream):
    method, graph, kept = sparse(learner_of(stream, 1, kept_neighbors=30))
    nodes = method.buffer.nodes
    assert torch.equal(kept.degree[nodes], graph.degree[nodes])
    near = kept.edges_into(nodes)[1]
    assert torch.equal(kept.degree[near], graph.degree[near])


def test_neighbourhoods_stay_as_they_were_when_their_node_was_chosen(stream: TaskStream):
    first = learner_of(stream, 1).method.buffer
    second = learner_of(stream, 2).method.buffer
    stays = torch.isin(second.nodes, first.nodes)
    assert 0 < int(stays.sum()) < len(second)
    for name, near in first.neighbours.items():
        place = [first.nodes.tolist().index(node) for node in second.nodes[stays].tolist()]
        assert torch.equal(second.neighbours[name][stays], near[place])


def test_a_neighbour_that_is_gone_takes_what_it_led_to_with_it(stream: TaskStream):
    learner = learner_of(stream, 1, kept_neighbors=2)
    buffer, graph = learner.method.buffer, learner.context.view.adjacency
    gone = int(buffer.neighbours["edges"][0, 1])
    assert gone not in buffer.nodes.tolist()
    assert int(sparse(learner)[2].degree[gone]) > 0
    new_rows = torch.arange(graph.num_nodes)
    new_rows[gone] = -1
    buffer.renumber(new_rows)
    _, _, kept = sparse(learner)
    assert int(kept.degree[gone]) == 0
    assert bool(graph.has_edges(kept.src, kept.dst).all())  # nothing is joined that was not


def test_bytes_without_the_graph_are_those_of_the_kept_neighbourhoods(stream: TaskStream):
    few, many = (learner_of(stream, 1, kept_neighbors=count) for count in (1, 4))
    for learner in (few, many):
        method, _, kept = sparse(learner)
        nodes = torch.unique(torch.cat([kept.src, method.buffer.nodes]))
        width = learner.context.view.num_features
        expected = nodes.numel() * (8 + 4 * width)  # the edges are kept anyway
        assert method.graph_bytes(learner.context) == expected
    replay = make_method("replay", {"buffer_size": 12})
    replay.buffer = many.method.buffer
    assert few.method.graph_bytes(few.context) < many.method.graph_bytes(many.context)
    assert many.method.graph_bytes(many.context) <= replay.graph_bytes(many.context)
