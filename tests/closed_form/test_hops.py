"""Choosing hops: losses of rows really left out, a rule worked by hand, graphs that tell."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.closed_form import CHOICES, FeatureConfig, SmoothedFeatures, choose_hops
from evergraph.closed_form import hops as module
from evergraph.closed_form.calibration import TEMPERATURES
from support import adjacency, seeded

STRENGTHS = (1e-3, 1e-1)


def loss_of(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_decide_needs_more_than_two_standard_errors():
    labels = torch.tensor([0, 0, 1, 1])
    usual = loss_of(1.0, 1.0, 1.0, 1.0)
    # Saved 0.5, 0.5, 0.5, 0.1: mean 0.4, standard deviation 0.2, standard error 0.1.
    sure = module.decide({"0+1+2": usual, "2+3": loss_of(0.5, 0.5, 0.5, 0.9)}, labels)
    assert sure.hops == "2+3"
    assert sure.losses == pytest.approx({"0+1+2": 1.0, "2+3": 0.6})
    # Saved 0.5, 0.5, 0, 0: mean 0.25, standard error 0.289 / 2 = 0.144.
    unsure = module.decide({"2+3": loss_of(0.5, 0.5, 1.0, 1.0), "0+1+2": usual}, labels)
    assert unsure.hops == "0+1+2"


def test_decide_lets_classes_weigh_the_same():
    labels = torch.tensor([0] * 8 + [1] * 2)
    usual = loss_of(*[1.0] * 10)
    # Eight save 0.1 and two lose 0.3: as nodes that is a gain of 0.02, as classes a loss of 0.1.
    other = loss_of(*[0.9] * 8, 1.3, 1.3)
    choice = module.decide({"0": other, "0+1+2": usual}, labels)
    assert choice.hops == "0+1+2"
    assert choice.losses["0"] == pytest.approx(1.1)


@pytest.mark.parametrize("labels", [[0], [0, 1], [0, 0, 0]], ids=str)
def test_choose_hops_keeps_the_usual_ones_when_nothing_can_be_told(labels):
    x = torch.randn(len(labels), 3, generator=seeded(), dtype=torch.float64)
    rows = [(hops, x) for hops in CHOICES]
    assert choose_hops(rows, torch.tensor(labels), STRENGTHS).hops == "0+1+2"


def test_left_out_losses_are_those_of_solving_without_each_row():
    x = torch.randn(12, 4, generator=seeded(), dtype=torch.float64)
    labels = torch.tensor([3, 5, 5] * 4)  # any labels, eight of one and four of the other
    column = (labels == 5).long()
    weight = torch.tensor([1 / 8, 1 / 16])[column].double()  # 1 / (2 classes · rows of its class)
    scores = torch.zeros(12, 2, dtype=torch.float64)
    for i in range(12):
        rest = torch.arange(12) != i
        left = x[rest].t() @ (weight[rest, None] * x[rest]) + 0.01 * torch.eye(4)
        right = x[rest].t() @ (weight[rest, None] * torch.nn.functional.one_hot(column[rest]))
        scores[i] = x[i] @ torch.linalg.solve(left, right.double())
    best = None
    for temperature in TEMPERATURES:
        losses = [
            math.log(sum(math.exp((s - row[c]) / temperature) for s in row))
            for row, c in zip(scores.tolist(), column.tolist(), strict=True)
        ]
        mean = sum(w * loss for w, loss in zip(weight.tolist(), losses, strict=True))
        if best is None or mean < best[0]:
            best = mean, losses
    found = module.left_out_losses(x, labels, [0.01])
    assert found.tolist() == pytest.approx(best[1], rel=1e-9)


def test_left_out_losses_do_not_depend_on_the_scale_of_scores():
    # Rows ten times as long with a strength a hundred times as large have the same scores.
    x = torch.randn(20, 4, generator=seeded(), dtype=torch.float64)
    labels = torch.arange(20) % 2
    one = module.left_out_losses(x, labels, [0.01])
    torch.testing.assert_close(module.left_out_losses(10 * x, labels, [1.0]), one)


@pytest.mark.parametrize("combine", ["sum", "concatenate"])
@pytest.mark.parametrize("extra", [{}, {"projection": 5}, {"projection": 5, "activation": "cos"}])
def test_rows_by_hops_are_the_rows_of_each_choice(combine, extra):
    graph = adjacency(6, [(0, 1), (1, 2), (2, 0), (2, 3), (4, 3)])
    x, nodes = torch.randn(6, 7, generator=seeded()), torch.tensor([4, 0, 5])
    source = SmoothedFeatures(x, graph, FeatureConfig(combine=combine, **extra), seed=0)
    for hops, rows in zip(CHOICES, source.rows_by_hops(nodes, CHOICES), strict=True):
        config = FeatureConfig(hops=hops, combine=combine, **extra)
        expected = SmoothedFeatures(x, graph, config, seed=0).rows(nodes)
        torch.testing.assert_close(rows, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("inside", "chosen"), [(True, "2+3"), (False, "0")])
def test_choose_hops_tells_a_graph_that_helps_from_one_that_misleads(inside, chosen):
    n = 400
    labels = torch.arange(n) % 2
    generator = seeded(1)
    pairs = torch.randint(n // 2, (2, 2 * n), generator=generator) * 2
    pairs[:, ::2] += 1  # half of the edges among odd nodes, half among even ones
    if not inside:
        pairs[1] = torch.randint(n, (2 * n,), generator=generator)
    graph = adjacency(n, [(int(a), int(b)) for a, b in pairs.t() if a != b])
    signal = 0.4 if inside else 3.0
    x = torch.randn(n, 8, generator=generator)
    x[:, 0] += signal * (2 * labels - 1)
    source = SmoothedFeatures(x, graph, FeatureConfig(), seed=0)
    rows = source.rows_by_hops(torch.arange(n), CHOICES)
    assert choose_hops(zip(CHOICES, rows, strict=True), labels, STRENGTHS).hops == chosen
