"""Quadratic penalties worked by hand, on a head that grows."""

from __future__ import annotations

import pytest
import torch

from evergraph.methods.anchors import (
    add_importance,
    bytes_of,
    quadratic_penalty,
    snapshot,
    zeros_like,
)
from evergraph.nn import ModelConfig, NodeClassifier


@pytest.fixture
def model():
    config = ModelConfig(channels=2, heads=1)
    return NodeClassifier(config, 3, 2, torch.Generator().manual_seed(0))


def test_penalty_is_zero_at_the_anchor_and_quadratic_away_from_it(model):
    anchor = snapshot(model)
    importance = {name: torch.full_like(value, 2.0) for name, value in anchor.items()}
    assert float(quadratic_penalty(model, importance, anchor)) == 0
    with torch.no_grad():
        model.head.bias += torch.tensor([1.0, 3.0])
    assert float(quadratic_penalty(model, importance, anchor)) == pytest.approx(2 * (1 + 9))


def test_penalty_covers_only_rows_that_existed(model):
    anchor = snapshot(model)
    importance = {name: torch.ones_like(value) for name, value in anchor.items()}
    model.head.grow(4, torch.Generator().manual_seed(1))
    penalty = quadratic_penalty(model, importance, anchor)
    assert float(penalty) == 0
    with torch.no_grad():
        model.head.bias[0] += 1
    penalty = quadratic_penalty(model, importance, anchor)
    penalty.backward()
    assert model.head.bias.grad.tolist() == [2, 0, 0, 0]


def test_importance_adds_up_over_a_grown_head(model):
    first = {"a": torch.tensor([1.0, 2.0])}
    total = add_importance(first, {"a": torch.tensor([10.0, 10.0, 10.0])})
    assert total["a"].tolist() == [11, 12, 10]
    assert first["a"].tolist() == [1, 2]
    assert bytes_of(total, first) == 20
    assert all(float(value.sum()) == 0 for value in zeros_like(model).values())
