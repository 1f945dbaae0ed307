"""One network per task: it sees no more than others, forgets nothing, and is restored whole."""

from __future__ import annotations

import torch

from evergraph.events import TaskDone
from evergraph.methods import METHODS, TrainConfig, make_method
from evergraph.methods.bounds import UNKNOWN
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.testing import find_leaks
from evergraph.train import Learner, train

MODEL, TRAINING = ModelConfig(channels=4, heads=2), TrainConfig(epochs=3)


def streams(make_graph):
    graph = make_graph(num_nodes=60, num_classes=6, average_degree=0.0)
    return lambda: TaskStream(graph, Protocol())


def test_probe_is_no_method_and_leaks_nothing(make_graph):
    assert "one-per-task" not in METHODS
    make_stream = streams(make_graph)
    assert find_leaks(lambda: make_method("one-per-task"), make_stream) == []


def test_logits_of_a_class_are_its_own_networks_for_good(make_graph):
    learner, stream = Learner(make_method("one-per-task")), streams(make_graph)()
    shown = []
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            shown.append(learner.method.predict_logits(learner.context))
    first = shown[0]
    # Without an edge nothing around a node changes, so neither does what is said of it.
    assert torch.equal(shown[2][: first.shape[0], :2], first)
    assert float(shown[2].min()) > UNKNOWN
    again = make_method("one-per-task")
    again.load_state_dict(learner.method.state_dict())
    assert torch.equal(again.predict_logits(learner.context), shown[2])
    sizes = [sum(value.nbytes for value in kept.values()) for kept in again.networks]
    assert again.memory_bytes() == sum(sizes[:2])
