"""PDGNN-TEM: what is kept is the propagated row of the time, and nothing more is needed."""

from __future__ import annotations

from collections.abc import Callable

import torch

from evergraph.events import TaskDone
from evergraph.memory.buffer import carried_over
from evergraph.methods import TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.train import Learner, train


def test_rows_that_were_kept_are_carried_over_and_others_are_fresh():
    before, rows = torch.tensor([7, 2]), torch.tensor([[70.0], [20.0]])
    now, fresh = torch.tensor([2, 5, 7, 1]), torch.tensor([[50.0], [10.0]])
    assert carried_over(before, rows, now, fresh).flatten().tolist() == [20, 50, 70, 10]
    assert carried_over(before[:0], None, now[:2], fresh) is fresh


def test_embeddings_are_propagated_by_hand_and_stay_as_they_were(make_graph: Callable[..., Graph]):
    stream = TaskStream(make_graph(60, 6), Protocol(), 0)
    learner, kept = Learner(make_method("pdgnn-tem", {"buffer_size": 12})), []
    model, training = ModelConfig(channels=4, heads=2), TrainConfig(epochs=2)
    for event in train(learner, stream, model, training, seed=0):
        if isinstance(event, TaskDone):
            buffer, view = learner.method.buffer, learner.context.view
            kept.append((buffer.nodes, buffer.rows["embedding"], view))
    nodes, rows, view = kept[0]
    n = view.num_nodes
    looped = torch.eye(n, dtype=torch.float64)
    looped[view.adjacency.dst, view.adjacency.src] = 1
    root = looped.sum(dim=1).rsqrt()
    step = root[:, None] * looped * root
    expected = (step @ step @ view.features.double())[nodes]
    expected /= expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close(rows.double(), expected, atol=1e-6, rtol=0)
    later, after, _ = kept[1]
    stays = torch.isin(later, nodes)
    assert 0 < int(stays.sum()) < later.numel()
    place = [nodes.tolist().index(node) for node in later[stays].tolist()]
    assert torch.equal(after[stays], rows[place])
    assert learner.method.graph_bytes(learner.context) == 0
