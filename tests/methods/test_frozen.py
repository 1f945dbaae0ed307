"""Frozen: what it learned first is all that it ever says."""

from __future__ import annotations

import torch

from evergraph.events import Epoch, TaskDone
from evergraph.methods import TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.train import Learner, train

MODEL, TRAINING = ModelConfig(channels=4, heads=2), TrainConfig(epochs=20)


def test_frozen_learns_the_first_task_as_finetune_does_and_no_other(make_graph):
    stream = TaskStream(make_graph(num_nodes=60, num_classes=6), Protocol())
    shown = {}
    for name in ("finetune", "frozen"):
        learner = Learner(make_method(name))
        for event in train(learner, stream, MODEL, TRAINING, seed=0):
            if isinstance(event, Epoch):
                assert name == "finetune" or event.task == 0
            if isinstance(event, TaskDone):
                logits = learner.method.predict_logits(learner.context)
                shown[name, event.task] = logits
                if name == "frozen":
                    assert int(logits.argmax(dim=1).max()) <= 1
                    assert event.row[1:] == [0.0] * event.task
    assert torch.equal(shown["finetune", 0], shown["frozen", 0])
    assert not torch.equal(shown["finetune", 1], shown["frozen", 1])
