"""The two questions by hand: a label of nodes trained on, an old class of nodes seen before."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.closed_form import Known, Moments, Questions, RidgeSystem
from evergraph.closed_form import questions as module
from evergraph.stream import LabelledNodes


def system(labels: list[int]) -> RidgeSystem:
    moments = Moments()
    moments.update(torch.eye(len(labels), dtype=torch.float64), torch.tensor(labels))
    return RidgeSystem(moments)


def trained(nodes: list[int], labels: list[int]) -> LabelledNodes:
    return LabelledNodes(torch.tensor(nodes), torch.tensor(labels))


def scores(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_training_nodes_are_asked_for_their_class_classes_alike():
    asked = Questions(system([2, 5]), trained([0, 1, 2], [5, 5, 2]), Known(0, []))
    shown = scores([0, 0], [math.log(3), 0], [0, 0])
    # Class 5 is given 1/2 and 1/4, class 2 is given 1/2: means over classes.
    expected = ((math.log(2) + math.log(4)) / 2 + math.log(2)) / 2
    assert asked.told(shown, 1.0) == pytest.approx(expected)
    assert asked.by_temperature(shown)[3.0] == pytest.approx(asked.told(shown / 3, 1.0))


def test_nodes_seen_before_are_asked_for_any_class_known_before(monkeypatch):
    monkeypatch.setattr(module, "least_loss", lambda loss: (loss(1.0), 1.0))
    asked = Questions(system([0, 1, 4]), trained([3, 4], [4, 4]), Known(4, [0, 1]))
    assert asked.before.tolist() == [0, 1, 2]  # node 3 is trained on
    everyone = scores([0, 0, 0], [0, 0, math.log(2)], [0, 0, 0], [9, 9, 9], [9, 9, 9])
    # Two thirds, a half and two thirds are of an old class; these count for two classes of three.
    intruded = (2 * math.log(3 / 2) + math.log(2)) / 3
    told = math.log(3)
    found = asked.cost(scores([0, 0, 0], [0, 0, 0]), everyone)
    assert found == pytest.approx((told + 2 * intruded) / 3)


@pytest.mark.parametrize(
    ("known", "nodes"),
    [(Known(0, []), [0, 1]), (Known(5, [0, 1]), [0, 1]), (Known(2, [0]), [0, 1])],
    ids=["nobody was there", "no class is new", "all are trained on"],
)
def test_nobody_is_asked_without_need(known, nodes):
    asked = Questions(system([0, 1]), trained(nodes, [0, 1]), known)
    shown = torch.zeros(5, 2, dtype=torch.float64)
    assert asked.asked == 0
    assert asked.cost(shown[:2], shown) == pytest.approx(math.log(2))


def test_nodes_before_are_evenly_spaced_when_there_are_many(monkeypatch):
    monkeypatch.setattr(module, "MOST_ASKED", 3)
    assert Known(10, [0]).nodes_beside(torch.tensor([4])).tolist() == [0, 8]
