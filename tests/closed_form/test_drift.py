"""Drift: a mean row worked by hand, whatever the blocks."""

from __future__ import annotations

import pytest
import torch

from evergraph.closed_form import Drift, FeatureConfig, HeldRows, SmoothedFeatures
from evergraph.closed_form import features as module
from evergraph.closed_form.drift import mean_row
from support import adjacency, seeded


def test_drift_is_how_far_the_nodes_seen_have_moved():
    drift = Drift()
    before = HeldRows(torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double())
    assert drift.since(before, 0) is None
    assert drift.memory_bytes() == 0
    drift.look(before, 2)
    # The first two nodes have moved to (2, 0) and (1, 1); the third was not there.
    now = HeldRows(torch.tensor([[2.0, 0.0], [1.0, 1.0], [9.0, 9.0]]).double())
    moved = drift.since(now, 2)
    assert moved is not None
    assert moved.tolist() == [1.0, 0.0]
    assert drift.memory_bytes() == 2 * 8


def test_drift_keeps_the_precision_it_is_given():
    drift = Drift(torch.float32)
    drift.look(HeldRows(torch.tensor([[1 / 3]]).double()), 1)
    assert drift.mean is not None
    assert drift.mean.dtype is torch.float32
    assert drift.memory_bytes() == 4


@pytest.mark.parametrize("combine", ["sum", "concatenate"])
def test_mean_row_is_that_of_the_rows_in_any_blocks(monkeypatch, combine):
    graph = adjacency(6, [(0, 1), (1, 2), (2, 0), (2, 3), (4, 3)])
    x = torch.randn(6, 7, generator=seeded())
    monkeypatch.setattr(module, "BLOCK", 18)  # three columns at a time
    source = SmoothedFeatures(x, graph, FeatureConfig(combine=combine), seed=0)
    expected = source.rows(torch.arange(4)).mean(dim=0)
    torch.testing.assert_close(mean_row(source, 4), expected, rtol=0, atol=1e-7)
