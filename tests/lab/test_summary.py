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
from evergraph.lab.runs import execute
from evergraph.lab.summary import (
    collect_results,
    compare_pairs,
    difference_to_claim,
    estimate,
    mean_std,
    paired_interval,
    quantile,
    summarise_grid,
    verdict,
)
from evergraph.lab.tables import Claim


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
        results.append(execute(config, tmp_path / str(seed)))
    torch.set_flush_denormal(False)
    summary = summarise_grid(results)
    assert [entry["seeds"] for entry in summary] == [[0], [0]]


def test_paired_interval_by_hand():
    # Differences 1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.30265, half width 4.30265 / √3
    low, high = paired_interval([1.0, 2.0, 3.0])
    assert low == pytest.approx(2 - 2.484138, abs=1e-6)
    assert high == pytest.approx(2 + 2.484138, abs=1e-6)


def test_paired_interval_agrees_with_scipy():
    first, second = [81.2, 79.9, 82.4, 80.3, 83.0], [78.0, 79.5, 80.1, 77.7, 81.9]
    differences = [a - b for a, b in zip(first, second, strict=True)]
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    low, high = paired_interval(differences)
    assert low == pytest.approx(expected.low)
    assert high == pytest.approx(expected.high)


def test_paired_interval_needs_two_pairs():
    assert paired_interval([]) == (None, None)
    assert paired_interval([3.0]) == (None, None)
    assert paired_interval([3.0, 3.0]) == (3.0, 3.0)


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
        folder = tmp_path / "cora" / "dslr" / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps({"seed": seed}))
    (tmp_path / "cora" / "dslr" / "seed-2").mkdir()
    assert [entry["seed"] for entry in collect_results(tmp_path)] == [0, 1]
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
    }


def test_estimate_of_few():
    assert estimate([5.0]) == {"n": 1, "mean": 5.0, "std": None, "low": None, "high": None}
    assert estimate([None]) == {"n": 0, "mean": None, "std": None, "low": None, "high": None}


def test_difference_to_claim_agrees_with_welch():
    values = [80.0, 83.0, 81.5, 84.0, 79.5]
    # Ten numbers with mean 81.59 and standard deviation 1.65.
    theirs = [81.59 + 1.65 * sign * (9 / 10) ** 0.5 for sign in [1, -1] * 5]
    expected = stats.ttest_ind(values, theirs, equal_var=False).confidence_interval()
    found = difference_to_claim(values, Claim(81.59, 1.65))
    assert found["difference"] == pytest.approx(81.6 - 81.59)
    assert (found["low"], found["high"]) == (
        pytest.approx(expected.low),
        pytest.approx(expected.high),
    )


@pytest.mark.parametrize(
    ("values", "claim", "expected"),
    [
        ([70.0, 72.0], Claim(70.0, None), (1.0, None, None)),
        ([71.0], Claim(70.0, 2.0), (1.0, None, None)),
        ([None], Claim(70.0, 2.0), (None, None, None)),
        ([71.0, 71.0], Claim(70.0, 0.0), (1.0, 1.0, 1.0)),
    ],
)
def test_difference_to_claim_without_interval(values, claim, expected):
    assert tuple(difference_to_claim(values, claim).values()) == expected


def test_quantile_of_one_degree_by_hand():
    assert quantile(1) == pytest.approx(12.7062, abs=1e-4)  # tan(0.475 π)
