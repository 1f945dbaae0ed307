"""Nested tuning: every seed chooses by its own validation nodes, among the same candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_tuning import SHARED, SpoiltStream, search_of

from evergraph.config import RunConfig, Variant, resolve
from evergraph.lab import runs
from evergraph.lab.cli.grids import nested_sheet
from evergraph.lab.runs import execute
from evergraph.lab.tuning import Search, choices, nested_outcome, search_rounds
from evergraph.methods import method_class
from evergraph.stream import Graph, Protocol, TaskStream


def play(searches: Sequence[Search], trials: int, seeds: int, pm: Callable[[RunConfig], Any]):
    """Runs searches whose scores are made up; returns what ran on validation and test nodes."""
    asked: dict[str, list[RunConfig]] = {}
    effort = {"trials": trials, "seeds": seeds, "per_seed": True}
    for given in search_rounds(searches, Path("nowhere"), **effort):
        asked[given[0].config.protocol.evaluate] = [run.config for run in given]
        for run in given:
            value = pm(run.config)
            if value is not None:
                run.results = {"pm": value, "fm": None, "current": 90.0}
    return asked


def by_hand(config: RunConfig) -> float | None:
    """λ = 3 is best for seed 0, λ = 10 for the others and on the mean; λ = 100 fails there."""
    best = 3.0 if config.seed == 0 else 10.0
    if config.settings["lam"] == 100.0:
        return None if config.seed else 1.0
    on_test = 20.0 if config.protocol.evaluate == "test" else 0.0
    return 50.0 - abs(config.settings["lam"] - best) + config.seed + on_test


def test_every_seed_chooses_by_itself_and_one_choice_by_the_mean(monkeypatch: pytest.MonkeyPatch):
    grid = {"lam": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)}
    monkeypatch.setattr(method_class("lwf"), "search", grid)
    search = search_of("lwf")
    asked = play([search], 12, 3, by_hand)
    lams = [trial["lam"] for trial in search.trials]
    assert lams[0] == 1.0  # the default
    assert len(set(lams)) == len(lams) == 7  # the whole grid
    assert len(asked["validation"]) == 7 * 3
    three, ten = lams.index(3.0), lams.index(10.0)
    assert choices(search, 3) == {
        "preset": [(0, seed) for seed in range(3)],
        "one": [(ten, seed) for seed in range(3)],
        "per_seed": [(three, 0), (ten, 1), (ten, 2)],
    }
    assert {(c.settings["lam"], c.seed) for c in asked["test"]} == {
        *((1.0, seed) for seed in range(3)),
        *((10.0, seed) for seed in range(3)),
        (3.0, 0),
    }
    outcome = nested_outcome(search, 3)
    assert outcome["per_seed"]["chosen"] == [three, ten, ten]
    assert outcome["preset"]["pm"]["mean"] == pytest.approx((68 + 62 + 63) / 3)
    assert outcome["one"]["pm"]["mean"] == pytest.approx((63 + 71 + 72) / 3)
    assert outcome["per_seed"]["pm"]["mean"] == pytest.approx((70 + 71 + 72) / 3)
    assert outcome["change"] == pytest.approx({"mean": 7 / 3, "std": 7 / 3**0.5})
    (row,) = nested_sheet([outcome]).rows
    assert row[1:] == ["7", "3", "64.33 ± 3.21", "68.67 ± 4.93", "71.00 ± 1.00", "+2.33 ± 4.04"]
    assert len(search.seed_rows()) == 7 * 3 + 7
    failed = [row for row in search.seed_rows() if row.pm is None]
    assert {(row.trial, row.seed) for row in failed} == {(lams.index(100.0), s) for s in (1, 2)}
    assert [r.seeds for r in search.rows() if r.settings == "lam=100"] == [0]


def test_candidates_are_blind_the_same_for_all_and_grow_from_the_front():
    few, many = search_of("dslr"), search_of("dslr")
    few.draw(4)
    many.draw(12)
    settings = many.trials
    assert few.trials == settings[:4]
    assert settings[0] == many.start
    assert len({tuple(point.values()) for point in settings}) == 12
    for point in settings:
        assert all(value in many.space[key] for key, value in point.items())
    # What seeds answer changes nothing of what is tried.
    one = play([search_of("dslr")], 5, 2, lambda config: float(config.seed))
    other = play([search_of("dslr")], 5, 2, lambda config: -config.settings["lam"])
    assert one["validation"] == other["validation"]


def test_methods_have_the_same_effort_and_advance_together():
    searches = [search_of(m, d) for d in ("a", "b") for m in ("lwf", "replay")]
    asked = play(searches, 3, 2, lambda config: 1.0)["validation"]
    assert [(c.dataset, c.method, c.seed) for c in asked] == [
        (dataset, method, seed)
        for dataset in ("a", "b")
        for _ in range(3)
        for method in ("lwf", "replay")
        for seed in range(2)
    ]


def test_what_was_chosen_is_judged_as_any_other_run():
    asked = play([search_of("lwf", "cora")], 2, 1, lambda config: 1.0)
    assert {config.protocol.evaluate for config in asked["validation"]} == {"validation"}
    (preset,) = asked["test"]  # the first of equals
    usual = resolve(Variant.parse("cora"), Variant.parse("lwf"), 0, SHARED)
    assert preset.hash == usual.hash


def test_no_seed_judges_a_node_that_it_chose_by(make_graph: Callable[..., Graph]):
    graph = make_graph()
    tuned = Protocol(evaluate="validation", validation_fraction=0.3)
    for seed in range(5):
        pairs = zip(
            TaskStream(graph, tuned, seed).tasks, TaskStream(graph, Protocol(), seed).tasks,
            strict=True,
        )  # fmt: skip
        for trial, final in pairs:
            judged = set(final.test_nodes.tolist())
            assert judged == set(trial.test_nodes.tolist())
            assert not judged & set(trial.validation_nodes.tolist())
            assert set(trial.validation_nodes.tolist()) <= set(final.train_nodes.tolist())


@pytest.mark.parametrize("method", ["lwf", "rclg"])
def test_choice_does_not_depend_on_a_label_of_a_test_node(
    work: Path, monkeypatch: pytest.MonkeyPatch, method: str
):
    def tune(folder: str, stream: type[TaskStream]) -> Search:
        monkeypatch.setattr(runs, "TaskStream", stream)
        search = search_of(method)
        for given in search_rounds([search], work / folder, trials=3, seeds=2, per_seed=True):
            for run in given:
                execute(run)
        return search

    def on(nodes: str, search: Search):
        return [row for row in search.seed_rows() if row.nodes == nodes]

    clean, spoilt = tune("clean", TaskStream), tune("spoilt", SpoiltStream)
    assert on("validation", spoilt) == on("validation", clean)
    assert choices(spoilt, 2) == choices(clean, 2)
    # The labels were indeed spoilt: what was chosen is judged otherwise.
    assert on("test", spoilt) != on("test", clean)
