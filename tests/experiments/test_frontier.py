"""The frontier: who is beaten by whom, worked by hand; what the paper's buffer weighs."""

from __future__ import annotations

import json

import pytest

from evergraph.errors import InputError
from evergraph.experiments.config import Variant, resolve
from evergraph.experiments.frontier import (
    METHODS,
    Point,
    buffer_bytes,
    collect_points,
    mark_frontiers,
    table_rows,
)


def point(label: str, pm: float, kept: int, seconds: float, dataset: str = "cora") -> Point:
    return Point(dataset, label, label, 3, pm, 1.0, 5.0, kept, seconds, "cpu")


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


def test_table_rows_rank_by_accuracy_within_datasets():
    points = [
        point("a", 70.0, 1, 1.0, "x"),
        point("b", 60.0, 1, 1.0, "y"),
        point("c", 80.0, 1, 1.0, "x"),
    ]
    assert [(row["dataset"], row["label"]) for row in table_rows(points)] == [
        ("x", "c"),
        ("x", "a"),
        ("y", "b"),
    ]


def test_buffer_bytes_of_the_papers_buffers():
    assert buffer_bytes("cora") == 100 * (16 + 4 * 1433)
    assert buffer_bytes("citeseer") == 100 * (16 + 4 * 3703)
    assert buffer_bytes("amazon-computers") == 200 * (16 + 4 * 767)
    assert buffer_bytes("synthetic:nodes=50") is None


@pytest.mark.parametrize("text", METHODS)
def test_frontier_methods_are_valid(text):
    variant = Variant.parse(text)
    assert resolve(Variant.parse_dataset("cora"), variant, 0).label == variant.label


def write_run(folder, label: str, seed: int, *, pm: float, kept: int, device=None) -> None:
    run = folder / label / f"seed-{seed}"
    run.mkdir(parents=True)
    result = {
        "dataset": "cora",
        "label": label,
        "method": {"b": "joint"}.get(label, "replay"),
        "variant_hash": label,
        "overrides": {},
        "settings": {},
        "protocol_hash": "p",
        "evaluated_on": "test",
        "seed": seed,
        "pm": pm,
        "fm": None,
        "current": pm,
        "seconds": {"total": 1.0 + seed},
        "memory_bytes": kept,
    }
    (run / "results.json").write_text(json.dumps(result))
    if device is not None:
        (run / "environment.json").write_text(json.dumps({"device_name": device}))


def test_collect_points_averages_seeds_and_names_devices(tmp_path):
    write_run(tmp_path, "a", 0, pm=80.0, kept=10, device="x86_64")
    write_run(tmp_path, "a", 1, pm=90.0, kept=12, device="H200")
    write_run(tmp_path, "b", 0, pm=70.0, kept=12)
    write_run(tmp_path, "b", 1, pm=60.0, kept=12)
    first, second = collect_points(tmp_path)
    assert (first.pm, first.fm, first.bytes, first.seconds) == (85.0, None, 12, 1.5)
    assert first.seeds == 2
    assert first.device == "H200 and x86_64"
    assert second.device == "unknown"
    assert (first.reference, second.reference) == (False, True)
    assert second.frontier == ()  # it reads old labels


def test_collect_points_compares_on_shared_seeds(tmp_path):
    for seed, pm in enumerate((80.0, 90.0, 100.0)):
        write_run(tmp_path, "a", seed, pm=pm, kept=1)
    write_run(tmp_path, "c", 1, pm=91.0, kept=1)
    a, c = collect_points(tmp_path)
    assert (a.pm, a.seeds, c.pm, c.seeds) == (90.0, 1, 91.0, 1)
    write_run(tmp_path, "d", 7, pm=50.0, kept=1)
    with pytest.raises(InputError, match="share a seed"):
        collect_points(tmp_path)
