"""The paper's numbers: found where it makes a claim, absent where it makes none."""

from __future__ import annotations

from typing import Any

import pytest

from evergraph.config import Variant, resolve
from evergraph.lab.tables import claims, paper_numbers
from evergraph.memory import SELECTORS
from evergraph.methods import METHODS
from evergraph.stream.datasets import DATASETS

DSLR = METHODS["dslr"].Config().model_dump(mode="json")


def test_claims_of_dslr_on_cora():
    assert claims("cora", "dslr", DSLR) == {
        "pm": {"mean": 81.59, "std": 1.65},
        "fm": {"mean": 14.59, "std": 2.61},
    }
    assert claims("cora", "dslr", {}) == claims("cora", "dslr", DSLR)


def test_claims_of_replay_go_by_selector():
    assert claims("cora", "replay", {"selector": "random"})["pm"] == {"mean": 77.99, "std": None}
    assert claims("cora", "replay", {"selector": "mf"})["pm"] == {"mean": 78.98, "std": None}
    assert claims("cora", "replay", {"selector": "cd"})["fm"] == {"mean": 20.03, "std": None}
    assert claims("cora", "replay", {"selector": "mf-feature"}) == {}
    assert claims("citeseer", "replay", {"selector": "random"}) == {}
    assert claims("cora", "replay", {}) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"structure": "none"},
        {"structure": "homophily"},
        {"selector": "random"},
        {"candidates": "entire"},
        {"addition": "threshold"},
        {"deletion": "lowest"},
        {"sl_ratio": 0.5},
    ],
)
def test_claims_of_variants_are_none(change: dict[str, Any]):
    assert claims("cora", "dslr", {**DSLR, **change}) == {}


def test_claims_of_tuned_settings_stay():
    tuned = {**DSLR, "beta": 0.2, "r": 0.25, "tau": 0.7}
    assert claims("cora", "dslr", tuned)["pm"]["mean"] == 81.59


def test_claims_are_of_the_protocol_that_the_method_has_by_itself():
    # RCLG holds out nodes for its controller; it is the paper's RCLG all the same.
    for method in ("rclg", "dslr"):
        mine = resolve(Variant.parse("cora"), Variant.parse(method), 0).protocol
        assert claims("cora", method, {}, mine.hash), method
        other = mine.model_copy(update={"classes_per_task": 3})
        assert claims("cora", method, {}, other.hash) == {}
    held_out = resolve(Variant.parse("cora"), Variant.parse("dslr:validation_fraction=0.1"), 0)
    assert claims("cora", "dslr", {}, held_out.protocol.hash) == {}


def test_claims_out_of_memory_are_none():
    assert paper_numbers()["main"]["reddit"]["rclg"] == "oom"
    assert claims("reddit", "rclg", {}) == {}
    assert claims("reddit", "continual-gnn", {}) == {}


@pytest.mark.parametrize(("dataset", "method"), [("mine.npz", "dslr"), ("cora", "finetune")])
def test_claims_of_the_unknown_are_none(dataset: str, method: str):
    assert claims(dataset, method, {}) == {}


def test_paper_numbers_are_percentages_of_known_datasets():
    numbers = paper_numbers()
    for table in ("main", "selectors"):
        for dataset, entries in numbers[table].items():
            assert dataset in DATASETS
            for name, entry in entries.items():
                assert table == "main" or name in SELECTORS
                if entry != "oom":
                    assert entry.keys() == {"pm", "fm"}
                    for mean, std in entry.values():
                        assert 0 <= mean <= 100
                        assert std is None or 0 < std < 20
    assert all("dslr" in entries for entries in numbers["main"].values())


def test_contradictions_are_in_the_tables():
    numbers = paper_numbers()
    listed = {entry["what"]: entry["values"] for entry in numbers["contradictions"]}
    assert listed["random on Amazon FM"] == {
        "Table 13": numbers["selector-quality"]["amazon-computers"]["random"]["fm"],
        "Table 15": numbers["selectors"]["amazon-computers"]["random"]["fm"][0],
    }
    assert listed["MF on Cora PM"]["Table 4"] == numbers["ablation"]["cora"]["(1) MF"]["pm"]
    assert listed["MF on Cora PM"]["Table 15"] == numbers["selectors"]["cora"]["mf"]["pm"][0]
    assert all(len(set(values.values())) > 1 for values in listed.values())


def test_contradictions_of_beta_break_the_identity():
    # PM = Current − (T − 1)/T · FM for any accuracy matrix.
    numbers = paper_numbers()
    tasks = {"cora": 3, "amazon-computers": 4, "ogbn-arxiv": 5}
    broken = {}
    for dataset, rows in numbers["beta"].items():
        for beta, row in rows.items():
            share = (tasks[dataset] - 1) / tasks[dataset]
            implied = row["current"] - share * row["fm"]
            if abs(implied - row["pm"]) > 0.02:
                broken[dataset, beta] = implied
    assert len(broken) == 12
    listed = {entry["what"]: entry["values"] for entry in numbers["contradictions"]}
    implied = listed["PM on Cora at beta = 0.05"]["Table 6, from its FM and Current"]
    assert implied == pytest.approx(broken["cora", "0.05"], abs=0.01)
