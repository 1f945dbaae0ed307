"""Cross-validated losses: by hand, and of rows really left out."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.closed_form import cross_validation as module
from evergraph.closed_form.cross_validation import (
    TEMPERATURES,
    LeftOut,
    LossTotals,
    leave_one_out_losses,
    surely_best,
)
from evergraph.closed_form.features import EmbeddingRows
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.ridge import Judges, Ridge, row_weights
from evergraph.stream import LabelledNodes
from support import seeded


def ridge(labels: list[int], weighing: bool = True) -> Ridge:
    moments = Moments()
    moments.update(torch.eye(len(labels), dtype=torch.float64), torch.tensor(labels))
    return Ridge(moments, weighing)


def left_out(made: Ridge, train: LabelledNodes, num_seen: int, old_classes: list[int]) -> LeftOut:
    x = torch.zeros(train.nodes.numel(), made.basis.shape[0], dtype=torch.float64)
    return LeftOut(
        made, EmbeddingRows(x), x, train, 0.1, num_seen=num_seen, old_classes=old_classes
    )


def trained(nodes: list[int], labels: list[int]) -> LabelledNodes:
    return LabelledNodes(torch.tensor(nodes), torch.tensor(labels))


def scores(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_training_nodes_count_by_their_class_classes_alike():
    loss = left_out(ridge([2, 5]), trained([0, 1, 2], [5, 5, 2]), 0, [])
    shown = scores([0, 0], [math.log(3), 0], [0, 0])
    # Class 5 is given 1/2 and 1/4, class 2 is given 1/2: means over classes.
    expected = ((math.log(2) + math.log(4)) / 2 + math.log(2)) / 2
    assert loss.at(shown, 1.0) == pytest.approx(expected)
    assert loss.by_temperature(shown)[3.0] == pytest.approx(loss.at(shown / 3, 1.0))


def test_nodes_seen_before_count_by_any_class_known_before(monkeypatch):
    monkeypatch.setattr(module, "least_loss", lambda loss: (loss(1.0), 1.0))
    loss = left_out(ridge([0, 1, 4]), trained([3, 4], [4, 4]), 4, [0, 1])
    assert loss.old_nodes.tolist() == [0, 1, 2]  # node 3 is trained on
    everyone = scores([0, 0, 0], [0, 0, math.log(2)], [0, 0, 0], [9, 9, 9], [9, 9, 9])
    # Two thirds, a half and two thirds are of an old class; these count for two classes of three.
    taken = (2 * math.log(3 / 2) + math.log(2)) / 3
    current = math.log(3)
    found = loss.loss(scores([0, 0, 0], [0, 0, 0]), everyone[loss.old_nodes])
    assert found == pytest.approx((current + 2 * taken) / 3)


def test_classes_weigh_what_they_weigh_in_the_regression(monkeypatch):
    monkeypatch.setattr(module, "least_loss", lambda loss: (loss(1.0), 1.0))
    natural = ridge([0, 0, 0, 1, 4, 4], weighing=0.0)
    loss = left_out(natural, trained([3, 4], [4, 4]), 3, [0, 1])
    # Two rows of six are of the new class, four of old ones.
    shown = scores([0, 0, 0], [0, 0, math.log(2)])
    current = (math.log(3) + math.log(2)) / 2
    earlier = torch.zeros(3, 3, dtype=torch.float64)
    expected = (2 * current + 4 * math.log(3 / 2)) / 6
    assert loss.loss(shown, earlier) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("num_seen", "old_classes"),
    [(0, []), (5, [0, 1]), (2, [0])],
    ids=["nobody was there", "no class is new", "all are trained on"],
)
def test_nodes_seen_before_count_only_where_they_can_tell(num_seen, old_classes):
    loss = left_out(ridge([0, 1]), trained([0, 1], [0, 1]), num_seen, old_classes)
    shown = torch.zeros(5, 2, dtype=torch.float64)
    assert loss.past == 0
    assert loss.loss(shown[:2], shown[loss.old_nodes]) == pytest.approx(math.log(2))


def test_nodes_seen_before_are_evenly_spaced_when_there_are_many(monkeypatch):
    monkeypatch.setattr(module, "OLD_NODES", 3)
    loss = left_out(ridge([0, 1]), trained([4], [1]), 10, [0])
    assert loss.old_nodes.tolist() == [0, 8]


def test_loss_totals_add_up_and_the_least_is_best():
    totals = LossTotals()
    totals.add({0.1: 2.0, 0.5: 1.0}, 10)
    assert totals.best == 0.5
    totals.add({0.1: 0.0, 0.5: 1.0}, 20)
    assert totals == pytest.approx({0.1: 20.0, 0.5: 30.0})
    assert totals.best == 0.1
    totals.add({0.1: 1.0, 0.5: 0.0}, 10, keep=0.5)
    assert totals == pytest.approx({0.1: 20.0, 0.5: 15.0})


def test_loss_totals_take_the_first_of_equals():
    assert LossTotals({1.0: 3.0, 0.8: 3.0}).best == 1.0


def test_loss_totals_are_restored():
    totals, other = LossTotals({1e-4: 1 / 3, 0.35: 2.0}), LossTotals({9.0: 1.0})
    other.load_state_dict(totals.state_dict())
    assert other == totals


def test_leave_one_out_losses_are_those_of_solving_without_each_row():
    x = torch.randn(12, 4, generator=seeded(), dtype=torch.float64)
    labels = torch.tensor([3, 5, 5] * 4)  # any labels, eight of one and four of the other
    column = (labels == 5).long()
    scores = torch.zeros(12, 2, dtype=torch.float64)
    for i in range(12):
        rest = torch.arange(12) != i
        left = x[rest].t() @ x[rest] / 12 + 0.01 * torch.eye(4)
        right = x[rest].t() @ torch.nn.functional.one_hot(column[rest]).double() / 12
        scores[i] = x[i] @ torch.linalg.solve(left, right)
    best = None
    for temperature in TEMPERATURES:
        losses = [
            math.log(sum(math.exp((s - row[c]) / temperature) for s in row))
            for row, c in zip(scores.tolist(), column.tolist(), strict=True)
        ]
        if best is None or sum(losses) < sum(best):
            best = losses
    found = leave_one_out_losses(Judges(labels, x), [0.01], weighing=0.0)
    assert found.tolist() == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("balanced", [False, True])
def test_leave_one_out_losses_do_not_depend_on_the_scale_of_scores(balanced):
    # Rows ten times as long with a strength a hundred times as large have the same scores.
    x = torch.randn(20, 4, generator=seeded(), dtype=torch.float64)
    labels = torch.arange(20) % 2
    one = leave_one_out_losses(Judges(labels, x), [0.01], balanced)
    longer = leave_one_out_losses(Judges(labels, 10 * x), [1.0], balanced)
    torch.testing.assert_close(longer, one)


def loss_of(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def alike(count: int) -> torch.Tensor:
    return row_weights(torch.zeros(count, dtype=torch.int64), 0.0)


def test_surely_best_needs_more_than_two_standard_errors():
    usual = loss_of(1.0, 1.0, 1.0, 1.0)
    # Saved 0.5, 0.5, 0.5, 0.1: mean 0.4, standard deviation 0.2, standard error 0.1.
    sure = surely_best({"0+1+2": usual, "2+3": loss_of(0.5, 0.5, 0.5, 0.9)}, alike(4))
    assert sure[0] == "2+3"
    assert sure[1] == pytest.approx({"0+1+2": 1.0, "2+3": 0.6})
    # Saved 0.5, 0.5, 0, 0: mean 0.25, standard error 0.289 / 2 = 0.144.
    unsure = surely_best({"0+1+2": usual, "2+3": loss_of(0.5, 0.5, 1.0, 1.0)}, alike(4))
    assert unsure[0] == "0+1+2"


def test_surely_best_lets_nodes_weigh_what_they_weigh():
    usual = loss_of(*[1.0] * 10)
    # Eight save 0.1 and two lose 0.3: as nodes that is a gain of 0.02, as classes a loss of 0.1.
    losses = {"0+1+2": usual, "0": loss_of(*[0.9] * 8, 1.3, 1.3)}
    choice = surely_best(losses, row_weights(torch.tensor([0] * 8 + [1] * 2), 1.0))
    assert choice[0] == "0+1+2"
    assert choice[1]["0"] == pytest.approx(1.1)
    assert surely_best(losses, alike(10))[1]["0"] == pytest.approx(0.98)
