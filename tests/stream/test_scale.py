"""Robust scaling: columns of any unit, outliers, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from evergraph.estimator.graph import sparse
from evergraph.stream import Graph, Protocol, SparseRows, TaskStream, protocol_for
from evergraph.stream.features import FAR, Scale


def test_columns_by_hand():
    # Quartiles 2 and 4 of 1 … 5 near zero; a year, far from it; a count, mostly absent.
    x = torch.tensor([[1.0, 2001, 0], [2, 2002, 0], [3, 2003, 8], [4, 2004, 0], [5, 2005, 4]])
    scale = Scale.fit(x)
    width = 2 / 1.349
    assert scale.kind == "robust"
    assert scale.width.tolist() == pytest.approx([width, width, 4.0])
    assert scale.center.tolist() == pytest.approx([0, 2003 - width, 0])
    found, beyond = scale.apply(x)
    assert found[2].tolist() == pytest.approx([3 / width, 1, 2], abs=1e-3)
    assert beyond == 0


def test_a_factor_does_not_matter_and_an_outlier_hardly():
    x = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    plain = Scale.fit(x).apply(x)[0]
    assert torch.allclose(Scale.fit(1000 * x).apply(1000 * x)[0], plain, rtol=1e-4)
    spoilt = x.clone()
    spoilt[7] = 1e30
    found, beyond = Scale.fit(spoilt).apply(spoilt)
    assert torch.allclose(found[:7], plain[:7], rtol=0.05)
    assert beyond == 1
    assert found[7].norm() < 4 * plain.norm(dim=1).max()


def test_beyond_the_range_order_is_kept():
    scale = Scale("robust", torch.zeros(1), torch.ones(1), 3e38)
    x = torch.tensor([[FAR], [2 * FAR], [100 * FAR], [-1e30]])
    found, beyond = scale.apply(x)
    assert beyond == 3
    assert found[0] == FAR
    assert (found[1:3] > found[:2]).all()
    assert -1000 < found[3] < -found[2]


def test_sparse_features_stay_sparse_and_are_scaled_alike():
    x = torch.rand(50, 8, generator=torch.Generator().manual_seed(0)) * 100
    x[torch.rand(50, 8, generator=torch.Generator().manual_seed(1)) < 0.6] = 0
    dense, rows = Scale.fit(x).apply(x)[0], Scale.fit(sparse(x)).apply(sparse(x))[0]
    assert isinstance(rows, SparseRows)
    assert torch.allclose(rows.dense(), dense)


def test_a_users_file_is_scaled_by_what_the_first_task_sees(make_graph: Callable[..., Graph]):
    graph = make_graph(60, 6)
    protocol = protocol_for("mine.npz")
    assert protocol.feature_scaling == "auto"
    assert protocol.hash != Protocol().hash
    assert Protocol(feature_scaling="none").hash == Protocol().hash
    plain, scaled = (TaskStream(graph, p, seed=0) for p in (Protocol(), protocol))
    seen = plain.features[: plain.tasks[0].num_nodes]
    assert torch.equal(scaled.features, Scale.fit(seen).apply(plain.features)[0])
    assert not torch.equal(scaled.features, plain.features)
