"""What features tell: regressing again without each node."""

from __future__ import annotations

import pytest
import torch

from evergraph.closed_form import HeldRows, OwnFeatures
from evergraph.closed_form import own_features as module
from support import seeded


def regressed(x: torch.Tensor, beliefs: torch.Tensor, count: int) -> torch.Tensor:
    """Ridge regression of some nodes' beliefs, each of ``count`` nodes weighing the same."""
    left = x.t() @ x / count + module.STRENGTH * torch.eye(x.shape[1])
    return torch.linalg.solve(left, x.t() @ beliefs / count)


@pytest.mark.parametrize("columns", [3, 30], ids=["tall", "wide"])
def test_every_node_is_told_what_the_others_make_of_it(columns):
    x = torch.randn(12, columns, generator=seeded(), dtype=torch.float64)
    beliefs = torch.rand(12, 4, generator=seeded(1), dtype=torch.float64).softmax(dim=1)
    told = OwnFeatures(HeldRows(x), 12, x.device).tell(beliefs)
    for node in range(12):
        rest = torch.arange(12) != node
        expected = x[node] @ regressed(x[rest], beliefs[rest], 12)
        torch.testing.assert_close(told[node], expected)


def test_some_nodes_tell_all_when_there_are_many(monkeypatch):
    monkeypatch.setattr(module, "MOST_NODES", 4)
    x = torch.randn(10, 3, generator=seeded(), dtype=torch.float64)
    beliefs = torch.rand(10, 2, generator=seeded(1), dtype=torch.float64)
    some = torch.tensor([0, 3, 6, 9])
    told = OwnFeatures(HeldRows(x), 10, x.device).tell(beliefs)
    expected = x @ regressed(x[some], beliefs[some], 4)
    others = torch.tensor([1, 2, 4, 5, 7, 8])
    torch.testing.assert_close(told[others], expected[others])
    without_first = x[0] @ regressed(x[some[1:]], beliefs[some[1:]], 4)
    torch.testing.assert_close(told[0], without_first)
