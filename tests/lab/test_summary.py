"""Summaries: means over seeds and paired comparisons, against numbers worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evergraph.config import Variant, resolve
from evergraph.errors import InputError
from evergraph.lab.folder import Run
from evergraph.lab.runs import execute
from evergraph.lab.summary import (
    collect_results,
    compare_pairs,
    difference_to_claim,
    estimate,
    mean_std,
    overlap,
    quantile,
    summarise_grid,
    verdict,
)
from evergraph.stream import Protocol
from made_runs import make_run


def result(label: str, seed: int, pm: float, **changes: Any) -> dict[str, Any]:
    return {
        "dataset": "cora",
        "method": label,
        "label": label,
        "overrides": {},
        "settings": {},
        "variant_hash": label,
        "protocol_hash": "p",
        "evaluated_on": "test",
        "seed": seed,
        "pm": pm,
        "fm": 10.0,
        "current": 90.0,
        "seconds": {"total": 2.0},
        "memory_bytes": 100 + seed,
        "overlap": 0.0,
        **changes,
    }


def test_mean_std_uses_ddof_1():
    # mean 4, squared deviations 4 + 0 + 4, divided by 2
    assert mean_std([2.0, 4.0, 6.0]) == {"mean": 4.0, "std": 2.0}


def test_mean_std_is_none_where_undefined():
    assert mean_std([5.0]) == {"mean": 5.0, "std": None}
    assert mean_std([None, None]) == {"mean": None, "std": None}
    assert mean_std([]) == {"mean": None, "std": None}


@given(st.lists(st.floats(0, 100), min_size=2, max_size=10))
def test_mean_std_agrees_with_numpy(values: list[float]):
    part = mean_std(values)
    assert part["mean"] == pytest.approx(np.mean(values))
    assert part["std"] == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_summarise_grid_groups_by_dataset_and_label():
    results = [
        result("dslr", 2, 86.0, seconds={"total": 4.0}),
        result("dslr", 0, 82.0),
        result("dslr", 1, 84.0),
        result("replay", 0, 70.0, dataset="citeseer"),
        result("dslr", 0, 60.0, dataset="citeseer"),
    ]
    summary = summarise_grid(results)
    assert [(entry["dataset"], entry["label"]) for entry in summary] == [
        ("cora", "dslr"),
        ("citeseer", "replay"),
        ("citeseer", "dslr"),
    ]
    first = summary[0]
    assert first["seeds"] == [0, 1, 2]
    assert first["pm"] == {"mean": 84.0, "std": 2.0}
    assert first["fm"] == {"mean": 10.0, "std": 0.0}
    assert first["seconds"]["mean"] == pytest.approx(8 / 3)
    assert first["memory_bytes"] == 102
    assert summary[1]["pm"] == {"mean": 70.0, "std": None}


def test_summarise_grid_joins_runs_of_releases_that_counted_less():
    runs = [result("dslr", seed, 80.0, memory_bytes_without_graph=seed) for seed in (3, 5)]
    (entry,) = summarise_grid(runs)
    assert entry["memory_bytes_without_graph"] == 5
    (entry,) = summarise_grid([*runs, result("dslr", 0, 80.0)])  # as 0.1.0 wrote it
    assert entry["memory_bytes_without_graph"] is None


def test_summarise_grid_of_one_task_has_no_forgetting():
    (entry,) = summarise_grid([result("dslr", seed, 80.0, fm=None) for seed in (0, 1)])
    assert entry["fm"] == {"mean": None, "std": None}
    assert entry["pm"] == {"mean": 80.0, "std": 0.0}
    json.dumps(entry, allow_nan=False)


def test_summarise_grid_refuses_mixed_settings_under_one_label():
    results = [result("dslr", 0, 80.0), result("dslr", 1, 81.0, variant_hash="other")]
    with pytest.raises(InputError, match=r"'dslr' on 'cora' .* @label"):
        summarise_grid(results)


def test_summarise_grid_keeps_generated_graphs_apart(tmp_path: Path):
    # Two generated graphs are two datasets, though both are called 'synthetic'.
    results = []
    for seed in (0, 1):
        dataset = Variant.parse(f"synthetic:nodes=60,classes=4,mean_degree=4,seed={seed}")
        config = resolve(dataset, Variant.parse("finetune"), 0, {"epochs": 1, "channels": 2})
        results.append(execute(Run(tmp_path / str(seed), config)))
    torch.set_flush_denormal(False)
    summary = summarise_grid(results)
    assert [entry["seeds"] for entry in summary] == [[0], [0]]


def test_estimate_of_differences_agrees_with_scipy():
    first, second = [81.2, 79.9, 82.4, 80.3, 83.0], [78.0, 79.5, 80.1, 77.7, 81.9]
    expected = stats.ttest_rel(first, second)
    found = estimate([a - b for a, b in zip(first, second, strict=True)])
    interval = expected.confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high))
    assert found["p"] == pytest.approx(expected.pvalue)


def test_estimate_corrects_for_splits_that_overlap():
    # Nadeau and Bengio: s² (1/3 + 3/7) for three seeds of a 70 / 30 split, s = 1.
    found = estimate([1.0, 2.0, 3.0], 3 / 7)
    error = (1 / 3 + 3 / 7) ** 0.5
    assert found["high"] == pytest.approx(2 + 4.302653 * error)
    assert found["p"] == pytest.approx(2 * stats.t.sf(2 / error, 2))


def test_estimate_of_equal_values_is_sure():
    assert (estimate([3.0, 3.0])["low"], estimate([3.0, 3.0])["p"]) == (3.0, 0.0)
    assert estimate([0.0, 0.0])["p"] == 1.0


def test_overlap_is_test_nodes_per_training_node():
    assert overlap(Protocol()) == pytest.approx(3 / 7)  # 30 % are test nodes
    assert overlap(Protocol(split_seed=1)) == 0.0  # one split: seeds are independent
    assert overlap(Protocol(test_share=(0.5, 0.75))) == pytest.approx((1 + 3) / 2)
    held_out = Protocol(validation_fraction=0.1)
    assert overlap(held_out) == pytest.approx(0.3 / 0.63)
    assert overlap(held_out.model_copy(update={"evaluate": "validation"})) == pytest.approx(1 / 9)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.1, 2.0, "above"),
        (-2.0, -0.1, "below"),
        (-1.0, 1.0, "not distinguishable"),
        (0.0, 1.0, "not distinguishable"),
        (-1.0, 0.0, "not distinguishable"),
        (0.0, 0.0, "not distinguishable"),
        (None, None, "not distinguishable"),
    ],
)
def test_verdict_words(low: float | None, high: float | None, words: str):
    assert verdict(low, high) == words


def test_compare_pairs_uses_common_seeds():
    results = [result("dslr", seed, 80.0 + seed) for seed in range(4)]
    results += [result("replay", seed, 79.0 - seed) for seed in range(1, 6)]
    (entry,) = compare_pairs(results, "dslr")
    # Common seeds 1, 2, 3: differences 81 − 78, 82 − 77, 83 − 76
    assert entry["seeds"] == [1, 2, 3]
    assert entry["difference"] == pytest.approx(5.0)
    assert entry["low"] == pytest.approx(5 - 2 * 2.484138, abs=1e-5)
    assert entry["verdict"] == "above"
    assert (entry["reference"], entry["other"], entry["metric"]) == ("dslr", "replay", "pm")


def test_compare_pairs_corrects_for_splits_that_overlap():
    results = [result("dslr", seed, 80.0 + seed, overlap=3 / 7) for seed in range(3)]
    results += [result("replay", seed, 79.0, overlap=3 / 7) for seed in range(3)]
    (entry,) = compare_pairs(results, "dslr")
    # Differences 1, 2, 3: 4.302653 √(1/3 + 3/7) instead of 4.302653 √(1/3)
    assert entry["high"] == pytest.approx(2 + 4.302653 * (1 / 3 + 3 / 7) ** 0.5)


def test_compare_pairs_of_no_common_seed_decides_nothing():
    (entry,) = compare_pairs([result("dslr", 0, 80.0), result("replay", 1, 10.0)], "dslr")
    assert (entry["difference"], entry["low"], entry["high"]) == (None, None, None)
    assert entry["verdict"] == "not distinguishable"


def test_compare_pairs_skips_what_has_no_value_or_reference():
    results = [result("dslr", 0, 80.0, fm=None), result("replay", 0, 79.0)]
    assert compare_pairs(results, "dslr", "fm") == []
    assert compare_pairs(results, "joint") == []
    other = [result("dslr", 0, 80.0), result("replay", 0, 79.0, dataset="citeseer")]
    assert compare_pairs(other, "dslr") == []


def test_collect_results_reads_finished_runs_alone(tmp_path: Path):
    for seed in (1, 0):
        make_run(tmp_path / "cora" / "dslr" / f"seed-{seed}", seed=seed)
    (tmp_path / "cora" / "dslr" / "seed-2").mkdir()
    found = collect_results(tmp_path)
    assert [entry["seed"] for entry in found] == [0, 1]
    assert found[0]["overlap"] == pytest.approx(3 / 7)  # of Cora's 70 / 30
    assert collect_results(tmp_path / "nowhere") == []


def test_estimate_by_hand():
    # Mean 2, deviations −1 0 1, variance 1; Student's 2.5 % quantile for 2 degrees is 4.302653.
    found = estimate([1.0, 2.0, 3.0, None])
    half = 4.302653 / 3**0.5
    assert found == {
        "n": 3,
        "mean": 2.0,
        "std": 1.0,
        "low": pytest.approx(2 - half),
        "high": pytest.approx(2 + half),
        "p": pytest.approx(0.0742, abs=1e-4),  # t = 2 √3
    }


def test_estimate_of_few():
    nothing = {"std": None, "low": None, "high": None, "p": None}
    assert estimate([5.0]) == {"n": 1, "mean": 5.0, **nothing}
    assert estimate([None]) == {"n": 0, "mean": None, **nothing}


def test_difference_to_claim_agrees_with_welch():
    values = [80.0, 83.0, 81.5, 84.0, 79.5]
    # Ten numbers with mean 81.59 and standard deviation 1.65.
    theirs = [81.59 + 1.65 * sign * (9 / 10) ** 0.5 for sign in [1, -1] * 5]
    expected = stats.ttest_ind(values, theirs, equal_var=False).confidence_interval()
    found = difference_to_claim(values, {"mean": 81.59, "std": 1.65})
    assert found["difference"] == pytest.approx(81.6 - 81.59)
    assert (found["low"], found["high"]) == (
        pytest.approx(expected.low),
        pytest.approx(expected.high),
    )


@pytest.mark.parametrize(
    ("values", "claim", "expected"),
    [
        ([70.0, 72.0], {"mean": 70.0, "std": None}, (1.0, None, None)),
        ([71.0], {"mean": 70.0, "std": 2.0}, (1.0, None, None)),
        ([None], {"mean": 70.0, "std": 2.0}, (None, None, None)),
        ([71.0, 71.0], {"mean": 70.0, "std": 0.0}, (1.0, 1.0, 1.0)),
    ],
)
def test_difference_to_claim_without_interval(values, claim, expected):
    assert tuple(difference_to_claim(values, claim).values()) == expected


def test_quantile_of_one_degree_by_hand():
    assert quantile(1) == pytest.approx(12.7062, abs=1e-4)  # tan(0.475 π)
