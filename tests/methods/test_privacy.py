"""What can be recovered from a state: the attack that docs/privacy.md measures."""

from __future__ import annotations

import pytest
import torch

from evergraph.config import Variant, resolve
from evergraph.events import TaskDone
from evergraph.stream import TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.train import Learner, train
from recover_nodes import attack, claim


def test_claim_finds_the_rows_that_a_factor_is_made_of():
    x = torch.randn(30, 12, generator=torch.Generator().manual_seed(0)).double()
    taken = torch.tensor([2, 3, 5, 7, 11, 13])
    mean = x[taken].mean(dim=0)
    factor = torch.linalg.qr(x[taken] - mean, mode="r").R
    moments = {"count": 6, "mean": mean, "factor": factor, "rest": 0.0}
    assert sorted(claim(moments, x).tolist()) == taken.tolist()


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
