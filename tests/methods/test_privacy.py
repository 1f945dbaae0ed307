"""What can be recovered from a state: the attack that docs/privacy.md measures."""

from __future__ import annotations

import pytest
import torch

from evergraph.config import Variant, resolve
from evergraph.events import TaskDone
from evergraph.stream import TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.train import Learner, train
from recover_nodes import Scatter, attack, distances


@pytest.mark.parametrize("as_factor", [True, False])
def test_rows_that_a_scatter_is_made_of_are_nearest(as_factor):
    x = torch.randn(30, 12, generator=torch.Generator().manual_seed(0)).double()
    taken = torch.tensor([2, 3, 5, 7, 11, 13])
    mean = x[taken].mean(dim=0)
    apart = x[taken] - mean
    kept = torch.linalg.qr(apart, mode="r").R if as_factor else apart.T @ apart
    near = torch.argsort(distances(Scatter.of({"scatter": kept, "rest": 0.0}), mean, x))
    assert sorted(near[:6].tolist()) == taken.tolist()


@pytest.mark.parametrize(
    ("method", "least", "most"), [("analytic", 0.99, 1.0), ("analytic:projection=50", 0.6, 0.85)]
)
def test_training_nodes_of_cora_are_recovered_unless_columns_are_few(method, least, most):
    config = resolve(Variant.parse_dataset("cora"), Variant.parse(method), 0)
    stream = TaskStream(load_graph("cora"), config.protocol, 0)
    learner = Learner(config.make_method())
    events = train(learner, stream, config.model, config.training, seed=0)
    next(event for event in events if isinstance(event, TaskDone))
    found = attack(learner, stream)
    assert sum(part.claimed for part in found) == 500
    assert least <= sum(part.right for part in found) / 500 <= most
