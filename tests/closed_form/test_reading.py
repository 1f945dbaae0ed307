"""Reading through neighbours: coefficients by hand, leaving one out by solving again."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.closed_form import (
    HeldRows,
    Known,
    Moments,
    Questions,
    RidgeSystem,
    judge_shares,
    read,
)
from evergraph.closed_form import reading as module
from evergraph.closed_form.calibration import TEMPERATURES
from evergraph.closed_form.smoothing import smoothing
from evergraph.stream import LabelledNodes
from support import adjacency, seeded

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 0), (7, 8), (8, 9), (9, 4), (2, 7)]
GRAPH = adjacency(10, EDGES)
AVERAGE = smoothing(GRAPH, "mean", self_loops=True)


def dense_average() -> torch.Tensor:
    average = torch.eye(10, dtype=torch.float64)
    average[GRAPH.dst, GRAPH.src] = 1
    return average / average.sum(dim=1, keepdim=True)


def through(scores: torch.Tensor, share: float) -> torch.Tensor:
    """What reading is by its definition."""
    found = scores
    for _ in range(5):
        found = (1 - share) * scores + share * dense_average() @ found
    return found


def test_coefficients_halve():
    assert module.coefficients(0.5) == [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125]
    assert module.coefficients(0.0) == [1, 0, 0, 0, 0, 0]
    assert sum(module.coefficients(0.9)) == pytest.approx(1)


@pytest.mark.parametrize("share", [0.0, 0.35, 0.9])
def test_read_mixes_step_by_step(share):
    scores = torch.randn(10, 3, generator=seeded(), dtype=torch.float64)
    found = read(scores, AVERAGE, share)
    torch.testing.assert_close(found, through(scores, share), rtol=0, atol=1e-6)


def least(loss) -> float:
    return min(loss(temperature) for temperature in TEMPERATURES)


@pytest.mark.parametrize("columns", [3, 30], ids=["tall", "wide"])
def test_judge_shares_is_solving_without_each_node(columns):
    x = torch.randn(10, columns, generator=seeded(), dtype=torch.float64)
    old, new = torch.tensor([0, 1, 2]), torch.tensor([4, 5, 7, 8, 9])
    old_labels, new_labels = torch.tensor([0, 1, 1]), torch.tensor([4, 2, 2, 4, 4])
    moments = Moments()
    moments.update(x[old], old_labels)
    moments.update(x[new], new_labels)
    factor = RidgeSystem(moments).decompose(0.02)
    trained = LabelledNodes(new, new_labels)
    found = judge_shares(
        factor,
        HeldRows(x),
        AVERAGE,
        trained,
        Questions(factor.system, trained, Known(4, [0, 1])),
        x=x[new],
        shares=(0.0, 0.5, 0.8),
    )

    nodes = torch.cat([old, new])
    column = torch.tensor([0, 1, 1, 3, 2, 2, 3, 3])  # of classes 0, 1, 2 and 4
    weight = (4 * torch.tensor([1.0, 2.0, 2.0, 3.0]))[column].double().reciprocal()[:, None]
    targets = torch.nn.functional.one_hot(column).double()

    def solved(rest: torch.Tensor) -> torch.Tensor:
        rows = x[nodes[rest]]
        left = rows.t() @ (weight[rest] * rows) + 0.02 * torch.eye(columns)
        return x @ torch.linalg.solve(left, rows.t() @ (weight[rest] * targets[rest]))

    everyone = torch.ones(8, dtype=torch.bool)
    for share in (0.0, 0.5, 0.8):
        left_out = []
        for place in range(3, 8):
            rest = everyone.clone()
            rest[place] = False
            left_out.append(through(solved(rest), share)[nodes[place]].tolist())
        seen = through(solved(everyone), share)[:4].tolist()  # nodes that were there before

        def loss(t: float, left_out=left_out, seen=seen) -> float:
            told = 0.0
            for row, c in zip(left_out, [3, 2, 2, 3, 3], strict=True):
                cost = math.log(sum(math.exp((s - row[c]) / t) for s in row))
                told += cost / (2 * {2: 2, 3: 3}[c])  # classes alike
            asked = 0.0
            for row in seen:
                top = max(row)
                odds = [math.exp((s - top) / t) for s in row]
                asked += -math.log(max(sum(odds[:2]), 1e-300) / sum(odds)) / len(seen)
            return (2 * told + 2 * asked) / 4

        assert found[share] == pytest.approx(least(loss), rel=1e-5)
