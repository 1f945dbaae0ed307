"""Searches: what is proposed and searched, in rounds that depend on nothing else, no test node."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evergraph.config import RunConfig, Variant, read_presets, resolve
from evergraph.errors import InputError
from evergraph.lab import runs
from evergraph.lab.folder import Run
from evergraph.lab.runs import execute
from evergraph.lab.tuning import RECIPE, Search, search_rounds
from evergraph.methods import METHODS, method_class
from evergraph.stream import TaskStream

SHARED = {"epochs": 2, "channels": 4, "heads": 2}


def search_of(method: str = "lwf", dataset: str = "graph.npz", recipe: bool = False, **shared: Any):
    return Search(Variant.parse(dataset), Variant.parse(method), SHARED | shared, recipe=recipe)


@pytest.mark.parametrize("dataset", [*list(read_presets())[1:], "graph.npz"])
@pytest.mark.parametrize("method", METHODS)
def test_declared_grids_hold_values_that_the_method_takes_and_the_start(method: str, dataset: str):
    grid = {**RECIPE, **method_class(method).search}
    search = search_of(method, dataset, recipe=True)
    for key, values in grid.items():
        assert len(set(values)) == len(values) > 1
        if not isinstance(values[0], str):
            assert list(values) == sorted(values)
        for value in values:
            variant = Variant(name=method, options={key: value}, label="x")
            config = resolve(Variant.parse(dataset), variant, 0)
            assert config.overrides == {key: value}
        if key in search.start:  # otherwise the grid is not where the search begins
            assert search.start[key] in values
        assert key != "buffer_size"  # the budget is the same for all


def test_search_starts_from_the_preset_and_leaves_alone_what_is_set():
    untuned = search_of("twp", "ogbn-arxiv")
    weights = {"lam_loss": 1e4, "lam_topology": 1e4, "beta": 0.01}
    assert untuned.start == weights | {"squares": "mean"}
    presets = read_presets()["cora"]["twp"]
    tuned = {key: presets[key]["tuned"] for key in untuned.start if key in presets}
    assert search_of("twp", "cora").start == untuned.start | tuned != untuned.start
    assert search_of("replay", "amazon-computers").start["beta"] == 0.3
    assert search_of("replay:beta=0.2", "cora").start.keys() == {"replay_weights"}
    assert search_of("replay", "cora", beta=0.2).start.keys() == {"replay_weights"}
    assert search_of("finetune").start == {}
    assert search_of("finetune", recipe=True).start.keys() == RECIPE.keys()


def test_search_leaves_out_what_has_no_effect():
    joint = method_class("joint").search.keys() - SHARED.keys()
    assert search_of("joint", recipe=True).start.keys() == joint - {"teleport"}
    assert search_of("joint:learner=appnp", recipe=True).start.keys() == joint
    assert search_of("joint:learner=analytic", recipe=True).start == {}
    assert search_of("analytic", recipe=True).start == {}
    plain = {"beta", "replay_weights", "r"}
    assert search_of("dslr:structure=none").start.keys() == plain
    assert search_of("dslr:structure=homophily").start.keys() == plain | {"num_neighbors"}


def test_search_adds_a_start_that_the_grid_lacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(method_class("lwf"), "search", {"lam": (0.5, 2.0)})
    assert search_of("lwf").space["lam"] == (0.5, 1.0, 2.0)
    monkeypatch.setattr(method_class("replay"), "search", {"selector": ("mf", "cd")})
    assert search_of("replay").space["selector"] == ("mf", "cd", "random")


def test_search_runs_are_judged_on_validation_nodes_only():
    search = search_of()
    for trial in search.propose(3):
        config = search.config(trial, 1)
        assert config.protocol.evaluate == "validation"
        assert config.protocol.validation_fraction == 0.1
        assert search.trials[trial].items() <= config.settings.items()
    with pytest.raises(InputError, match=r"'evaluate' to be validation.*'test'"):
        search_of(evaluate="test")
    other = search_of(validation_fraction=0.3)
    other.propose(1)
    assert other.config(0, 0).protocol.validation_fraction == 0.3


def scores_of(config: RunConfig) -> dict[str, Any]:
    """Stands for a run: λ = 10 is best, and seeds from 2 on disagree in favour of 3."""
    lam, late = config.settings["lam"], config.seed >= 2
    pm = 50.0 - abs(lam - (3.0 if late else 10.0)) + config.seed
    return {"pm": pm, "fm": None, "current": 90.0}


def play(searches: Sequence[Search], **kwargs: Any) -> list[list[RunConfig]]:
    rounds: list[list[RunConfig]] = []
    effort = {"trials": 7, "seeds": 2, "finalists": 2} | kwargs
    for given in search_rounds(searches, Path("nowhere"), **effort):
        rounds.append([run.config for run in given])
        for run in given:
            if run.config.settings["lam"] != 100.0:  # which fails
                run.results = scores_of(run.config)
    return rounds


def test_search_rounds_gives_every_search_the_same_rounds_and_its_best_more_seeds():
    searches = [search_of("lwf:temperature=2"), search_of("lwf:temperature=5")]
    rounds = play(searches)
    assert [len(configs) for configs in rounds] == [2 * 4 * 2, 2 * 3 * 2, 2 * 2 * 2]
    assert [{c.seed for c in configs} for configs in rounds] == [{0, 1}, {0, 1}, {2, 3}]
    for search in searches:
        rows = search.rows()
        assert [row.trial for row in rows] == list(range(7))  # λ has seven values: the whole grid
        by_lam = {row.settings: row for row in rows}
        assert (by_lam["lam=100"].seeds, by_lam["lam=100"].pm) == (0, None)
        assert {row.settings for row in rows if row.seeds == 4} == {"lam=10", "lam=3"}
        # Seeds 0 to 3 by hand: λ = 10 has 50, 51, 45, 46; λ = 3 has 43, 44, 52, 53.
        assert (by_lam["lam=10"].pm, by_lam["lam=3"].pm) == (48.0, 48.0)
        assert by_lam["lam=1"].pm == 41.5
        assert by_lam["lam=1"].fm is None


def test_search_rounds_stops_where_grids_end_and_counts_its_runs():
    search = search_of("lwf:temperature=2")
    assert search.num_runs(trials=12, seeds=2, finalists=3) == (7 + 3) * 2
    rounds = play([search], trials=12, finalists=3)
    assert sum(map(len, rounds)) == (7 + 3) * 2
    assert search_of("finetune").num_runs(12, 2, 3) == (1 + 1) * 2


class SpoiltStream(TaskStream):
    """A stream whose test nodes all bear a wrong label, put in after the split."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for task in self.tasks:
            first, last = task.classes[0], task.classes[-1]
            self.labels[task.test_nodes] = first + last - self.labels[task.test_nodes]


@pytest.mark.parametrize("method", ["lwf", "replay", "rclg"])
def test_search_does_not_depend_on_a_label_of_a_test_node(
    work: Path, monkeypatch: pytest.MonkeyPatch, method: str
):
    def rows(folder: str, stream: type[TaskStream]):
        monkeypatch.setattr(runs, "TaskStream", stream)
        search = search_of(method)

        for given in search_rounds([search], work / folder, trials=3, seeds=1, finalists=1):
            for run in given:
                execute(run)
        return search.rows()

    clean = rows("clean", TaskStream)
    assert len(clean) == 3
    assert rows("spoilt", SpoiltStream) == clean
    # The labels were indeed spoilt: judged on test nodes the same run has other scores.
    judged = []
    for name, stream in (("a", TaskStream), ("b", SpoiltStream)):
        monkeypatch.setattr(runs, "TaskStream", stream)
        config = resolve(Variant.parse("graph.npz"), Variant.parse(method), 0, SHARED)
        judged.append(execute(Run(work / name, config))["accuracy_matrix"])
    assert judged[0] != judged[1]


# --- proposals -----------------------------------------------------------------------------

SPACE = {"lam": (1.0, 10.0, 100.0, 1000.0), "kind": ("a", "b", "c")}
START = {"lam": 100.0, "kind": "b"}


def proposing(space: dict[str, tuple[Any, ...]], start: dict[str, Any]) -> Search:
    search = search_of()
    search.space, search.start = space, start
    return search


def tell(search: Search, trial: int, value: float | None) -> None:
    search.runs["validation", trial, 0] = run = Run(Path("nowhere"))
    if value is not None:
        run.results = {"pm": value}
    search.tell(trial)


def play_proposals(search: Search, count: int, batch: int = 4) -> list[tuple[float, str]]:
    """Asks in batches; the highest λ of kind c is best."""
    while len(search.trials) < count:
        new = search.propose(min(batch, count - len(search.trials)))
        if not new:
            break
        for trial in new:
            point = search.trials[trial]
            value = SPACE["lam"].index(point["lam"]) + 10.0 * (point["kind"] == "c")
            tell(search, trial, None if point["kind"] == "a" else value)
    return [tuple(point.values()) for point in search.trials]


def test_proposals_begin_with_the_start_and_repeat_nothing():
    tried = play_proposals(proposing(SPACE, START), 10)
    assert tried[0] == (100.0, "b")
    assert len(set(tried)) == len(tried) == 10


def test_proposals_of_a_small_grid_are_all_of_it():
    tried = play_proposals(proposing(SPACE, START), 50)
    assert sorted(tried) == sorted((lam, kind) for lam in SPACE["lam"] for kind in SPACE["kind"])
    nothing = proposing({}, {})
    assert (nothing.propose(5), nothing.propose(5)) == ([0], [])
    assert nothing.trials == [{}]


def test_proposals_are_the_same_every_time_and_learn():
    first, again = (play_proposals(proposing(SPACE, START), 10) for _ in range(2))
    assert first == again
    search = proposing({"lam": tuple(range(100))}, {"lam": 0})
    for _ in range(10):
        for trial in search.propose(4):
            tell(search, trial, -abs(search.trials[trial]["lam"] - 77.0))
    # By chance, 21 of a hundred numbers are this near to 77: 8.4 of forty draws.
    assert sum(abs(point["lam"] - 77) <= 10 for point in search.trials) > 12


def test_proposals_without_optuna_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"'optuna'.*pip install 'evergraph\[tune\]'"):
        search_of().propose(1)
