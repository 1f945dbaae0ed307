"""The frontier: who is beaten by whom, worked by hand; what the paper's buffer weighs."""

from __future__ import annotations

import pytest

from evergraph.config import Variant, resolve
from evergraph.lab.paper.experiment import Facts, Row
from evergraph.lab.paper.experiments import EXPERIMENTS
from evergraph.lab.paper.frontier import Point, buffer_bytes, mark_frontiers, points_of


def point(label: str, pm: float, kept: int, seconds: float, dataset: str = "cora") -> Point:
    return Point(dataset, label, label, pm, 1.0, kept, seconds)


def test_frontier_by_hand():
    points = [
        point("large", 90.0, 1000, 1.0),  # the best
        point("small", 80.0, 10, 9.0),  # cheapest in bytes, slowest
        point("beaten", 79.0, 20, 9.0),  # worse than small and heavier, as slow
        point("quick", 70.0, 5000, 0.5),  # nobody is faster
        point("elsewhere", 10.0, 9999, 99.0, "citeseer"),  # alone on its dataset
    ]
    found = {p.label: p.frontier for p in mark_frontiers(points)}
    assert found == {
        "large": ("bytes", "seconds"),
        "small": ("bytes",),
        "beaten": (),
        "quick": ("seconds",),
        "elsewhere": ("bytes", "seconds"),
    }


def test_frontier_keeps_both_of_two_equals():
    twins = mark_frontiers([point("a", 80.0, 10, 1.0), point("b", 80.0, 10, 1.0)])
    assert all(twin.frontier == ("bytes", "seconds") for twin in twins)


def test_buffer_bytes_of_the_papers_buffers():
    assert buffer_bytes("cora") == 100 * (16 + 4 * 1433)
    assert buffer_bytes("citeseer") == 100 * (16 + 4 * 3703)
    assert buffer_bytes("amazon-computers") == 200 * (16 + 4 * 767)
    assert buffer_bytes("synthetic:nodes=50") is None


ROWS = EXPERIMENTS["frontier"].rows(Facts("cora", 100, 3, 6, 2))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_frontier_methods_are_valid(row: Row):
    variant = Variant.parse(f"{row.method}@{row.name}")
    assert resolve(Variant.parse_dataset("cora"), variant, 0).label == row.name


def entry(row: str, method: str, metric: str, mean: float) -> dict[str, object]:
    return {
        "dataset": "cora",
        "row": row,
        "method": method,
        "metric": metric,
        "seeds": [0, 1],
        "mean": mean,
        "std": 1.0,
    }


def test_points_of_an_outcome():
    values = {"small": (80.0, 10.4, 2.0), "all": (85.0, 12.0, 1.5), "mark": (99.0, 0.0, 1.0)}
    methods = {"small": "analytic:rank=2", "all": "analytic", "mark": "joint"}
    rows = [
        entry(row, methods[row], metric, value)
        for row, found in values.items()
        for metric, value in zip(("pm", "bytes", "seconds"), found, strict=True)
    ]
    unmeasured = {**entry("dslr", "dslr", "pm", 1.0), "seeds": []}
    small, everything, mark = points_of({"entries": [*rows, unmeasured]})
    assert (small.label, small.method, small.pm, small.bytes) == ("small", "analytic", 80.0, 10)
    assert small.frontier == ("bytes",)
    assert everything.frontier == ("bytes", "seconds")
    assert (mark.reference, mark.frontier) == (True, ())  # it reads old labels
