"""Distillation: values worked by hand, minima where nothing changed, only old columns."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.methods.lwf import distillation_loss
from evergraph.methods.rclg import stored_logits_loss


def test_distillation_loss_by_hand():
    # T = 2 turns the teacher's (2 ln 3, 0) into (3/4, 1/4) and the student's (0, 0) into
    # halves: ln 2. The other node: (1/2, 1/2) against (1/4, 3/4): (ln 4 + ln 4/3) / 2.
    teacher = torch.tensor([[2 * math.log(3), 0.0], [5.0, 5.0]])
    logits = torch.tensor([[0.0, 0.0, 9.0], [1.0, 1.0 + 2 * math.log(3), -4.0]])
    expected = (math.log(2) + (math.log(4) + math.log(4 / 3)) / 2) / 2
    assert distillation_loss(logits, teacher, 2.0).item() == pytest.approx(expected, rel=1e-6)


def test_distillation_loss_has_no_factor_of_temperature():
    # With a high temperature both are nearly uniform: ln k, whatever T is.
    teacher, logits = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[0.0, 3.0, 1.0]])
    assert distillation_loss(logits, teacher, 1e4).item() == pytest.approx(math.log(3), rel=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 2.0, 20.0])
def test_distillation_loss_is_least_where_nothing_changed(temperature):
    teacher = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = torch.cat([teacher, torch.ones(5, 2, dtype=torch.float64)], dim=1).requires_grad_()
    (gradient,) = torch.autograd.grad(distillation_loss(logits, teacher, temperature), logits)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))
    least = distillation_loss(logits, teacher, temperature)
    moved = logits.detach().clone()
    moved[2, 1] += 0.1
    assert distillation_loss(moved, teacher, temperature) > least


def test_distillation_loss_sees_old_columns_alone():
    teacher = torch.tensor([[1.0, -1.0], [0.0, 2.0]])
    logits = torch.tensor([[0.5, 0.0, 3.0], [1.0, 1.0, -2.0]], requires_grad=True)
    loss = distillation_loss(logits, teacher, 2.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[:, 2].tolist() == [0, 0]
    assert (gradient[:, :2] != 0).all()
    other = logits.detach().clone()
    other[:, 2] = 100
    assert torch.equal(distillation_loss(other, teacher, 2.0), loss)


def test_stored_logits_loss_by_hand():
    # Entries that existed: (1 − 0)² and (2 − 4)² and (3 − 3)² of the first two nodes, (−1)² of
    # the third: (1 + 4 + 0 + 1) / 4.
    logits = torch.tensor([[1.0, 7.0, 7.0], [2.0, 3.0, 7.0], [-1.0, 7.0, 7.0]])
    stored = torch.tensor([[0.0, 55.0], [4.0, 3.0], [0.0, 55.0]])
    assert stored_logits_loss(logits, stored, torch.tensor([1, 2, 1])).item() == 1.5


def test_stored_logits_loss_moves_nothing_that_did_not_exist():
    logits = torch.zeros(2, 3, requires_grad=True)
    loss = stored_logits_loss(logits, torch.full((2, 2), torch.nan), torch.tensor([0, 0]))
    assert loss.isnan()  # no entry at all: there is nothing to average
    loss = stored_logits_loss(logits, torch.tensor([[1.0, 9.0], [2.0, 3.0]]), torch.tensor([1, 2]))
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.tensor([[-2.0, 0, 0], [-4.0, -6.0, 0]]) / 3)
