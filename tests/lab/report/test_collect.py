"""Collecting runs: what is found, what may be compared, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evergraph.errors import InputError
from evergraph.lab.folder import Run
from evergraph.lab.page.data import page_data
from made_runs import make_grid, make_run


def names(folder: Path) -> list[str]:
    return [dataset["name"] for dataset in page_data(folder)["datasets"]]


def groups(folder: Path) -> dict[str, dict[str, Any]]:
    """Describes the variants on the first dataset."""
    return {group["name"]: group for group in page_data(folder)["datasets"][0]["groups"]}


def test_collect_reads_one_run(tmp_path: Path):
    make_run(tmp_path / "run")
    found = page_data(tmp_path / "run")
    assert (found["title"], found["num_runs"], found["unfinished"]) == ("run", 1, [])
    assert names(tmp_path / "run") == ["cora"]
    group = groups(tmp_path / "run")["dslr"]
    assert group["seeds"] == [0]
    assert group["environments"][0]["environment"]["device_name"] == "abacus"
    assert len(group["by_task"]) == 2
    assert Run(tmp_path / "run").config.seed == 0


def test_collect_groups_by_variant_and_sorts_by_seed(tmp_path: Path):
    for seed in (10, 2, 0):
        make_run(tmp_path / f"{seed}", "replay:selector=mf@mine", seed)
    make_run(tmp_path / "deep" / "below", "joint", 1)
    found = groups(tmp_path)
    assert found["mine"]["seeds"] == [0, 2, 10]
    assert set(found) == {"mine", "joint"}


def test_collect_tells_variants_of_one_label_apart(tmp_path: Path):
    make_run(tmp_path / "a", shared={"beta": 0.2})
    make_run(tmp_path / "b", shared={"beta": 0.4, "lr": 0.1})
    make_run(tmp_path / "c", "joint")
    assert set(groups(tmp_path)) == {
        "dslr (beta=0.2, lr=0.005)",
        "dslr (beta=0.4, lr=0.1)",
        "joint",
    }


def test_collect_separates_what_may_not_be_compared(tmp_path: Path):
    results = make_run(tmp_path / "a")
    validation = {"evaluate": "validation", "validation_fraction": 0.1}
    make_run(tmp_path / "b", shared=validation)
    make_run(tmp_path / "c", dataset="citeseer")
    make_run(tmp_path / "d", graph="beef", config_hash="other")
    protocol = results["protocol_hash"][:6]
    assert names(tmp_path) == [
        f"cora · test · {protocol} · beef",
        f"cora · test · {protocol} · f00d",
        "cora · validation",
        "citeseer",
    ]


def test_collect_orders_datasets_as_they_are_listed(tmp_path: Path):
    for name in ("zebra", "amazon-computers", "apple", "citeseer", "cora"):
        make_run(tmp_path / name, dataset=name)
    assert names(tmp_path) == ["cora", "citeseer", "amazon-computers", "apple", "zebra"]


def test_collect_passes_over_copies_and_unfinished_runs(tmp_path: Path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    make_run(tmp_path / "c", seed=1)
    (tmp_path / "c" / "results.json").unlink()
    make_run(tmp_path / ".hidden" / "d", seed=2)
    found = page_data(tmp_path)
    assert (found["num_runs"], found["copies"], found["unfinished"]) == (1, ["b"], ["c"])


def test_collect_ignores_results_that_are_not_a_runs(tmp_path: Path):
    make_run(tmp_path / "a")
    (tmp_path / "results.json").write_text('{"experiment": "main"}')
    assert page_data(tmp_path)["num_runs"] == 1


def test_collect_reads_the_reference_of_a_grid(tmp_path: Path):
    make_grid(tmp_path, ("dslr", "joint"), 1)
    assert page_data(tmp_path)["order"] == ["dslr", "joint"]
    (tmp_path / "comparisons.json").write_text('[{"reference": "joint", "other": "dslr"}]')
    assert page_data(tmp_path)["order"] == ["joint", "dslr"]


def test_collect_does_without_events_and_environment(tmp_path: Path):
    make_run(tmp_path / "a")
    (tmp_path / "a" / "events.jsonl").unlink()
    (tmp_path / "a" / "environment.json").unlink()
    run = Run(tmp_path / "a")
    assert (run.events, run.environment) == ([], {})
    group = groups(tmp_path)["dslr"]
    assert group["by_task"] == []
    assert group["environments"] == [{"environment": {}, "seeds": [0]}]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda results: results.pop("pm"), r"Expected the results of a run in '.*results\.json'"),
        (lambda results: results.update(schema_version=9), r"'schema_version' 1 .* \(got 9\)"),
    ],
)
def test_collect_refuses_foreign_results(tmp_path: Path, damage, words: str):
    results = make_run(tmp_path / "a")
    damage(results)
    (tmp_path / "a" / "results.json").write_text(json.dumps(results))
    with pytest.raises(InputError, match=words):
        page_data(tmp_path)


@pytest.mark.parametrize("text", ["{", "7"])
def test_collect_refuses_broken_events(tmp_path: Path, text: str):
    make_run(tmp_path / "a")
    (tmp_path / "a" / "events.jsonl").write_text(text)
    with pytest.raises(InputError, match=r"events\.jsonl.*one JSON object per line"):
        page_data(tmp_path)


def test_collect_refuses_folders_without_runs(tmp_path: Path):
    with pytest.raises(InputError, match="folder with runs"):
        page_data(tmp_path / "nowhere")
    with pytest.raises(InputError, match="finished run"):
        page_data(tmp_path)
