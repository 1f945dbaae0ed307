"""Tuning: searches a method's declared grid on validation nodes alone.

Optuna proposes; every search goes in rounds of :data:`BATCH` trials, whatever the number of
workers, so that the outcome depends neither on them nor on timing. All searches of a command go
round by round together: wherever it is stopped, every method has had the same effort. Optuna's
study is rebuilt from finished run folders, which is how a search continues.

A seed draws its own split, so that a validation node of one seed may be a test node of another, and
settings that are chosen once for all seeds have seen nodes that judge them. In nested tuning trials
are drawn blind, and every seed chooses among them by its own validation nodes, which it never
judges; what the usual choice would have been is known from the same runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from evergraph.config import RunConfig, Variant, resolve
from evergraph.errors import InputError
from evergraph.lab import import_extra
from evergraph.lab.summary import mean_std
from evergraph.lab.tables import METRICS
from evergraph.lab.trials import SeedRow, TrialRow, settings_text
from evergraph.methods import method_class
from evergraph.methods.base import SearchSpace
from evergraph.rng import make_generator

#: Trials that a search asks for at once.
BATCH = 4
#: Trials drawn at random before the sampler learns from them; the first is the start.
STARTUP = 8
#: How often the sampler may propose what was tried already before a draw decides.
PATIENCE = 10
#: What every run of a search adds to its settings: no test node is ever judged.
JUDGED: dict[str, Any] = {"evaluate": "validation", "validation_fraction": 0.1}
#: Training settings that the paper leaves open, for every method alike (decision 0005).
RECIPE: SearchSpace = {
    "lr": (0.001, 0.005, 0.01, 0.02),
    "dropout": (0.0, 0.2, 0.5),
    "weight_decay": (0.0, 5e-4, 5e-3),
    "head_init": ("uniform", "default"),
    "label_smoothing": (0.0, 0.1, 0.2),
}

Settings = dict[str, Any]
Results = dict[str, Any] | None  # of a run, None if it failed
Measure = Callable[[Sequence[RunConfig]], Sequence[Results]]


def _numeric(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)


class Search:
    """The search of one method's settings on one dataset.

    Optuna's tree-structured Parzen estimator proposes points of the grid, none twice. Numbers are
    searched by their place in the grid, which is how a grid of powers is searched by its logarithm;
    words as categories. Settings that are given, and those without effect, are not searched; with
    ``recipe``, :data:`RECIPE` is besides the method's own grid, which comes first.
    """

    def __init__(
        self, dataset: Variant, method: Variant, shared: Mapping[str, Any], *, recipe: bool = False
    ) -> None:
        self.dataset, self.method, self.shared = dataset, method, {**JUDGED, **shared}
        if self.shared["evaluate"] != "validation":
            raise InputError(
                "Expected 'evaluate' to be validation in a search (got "
                f"'{self.shared['evaluate']}'); leave it out: test nodes are for the final "
                "comparison."
            )
        config = resolve(dataset, method, 0, self.shared)
        now = {**config.settings, **config.training.model_dump(), **config.model.model_dump()}
        own = method_class(method.name).search
        declared = {**own, **(RECIPE if recipe else {}), **own}
        fixed = {*method.options, *shared, *config.unused()}
        self.start = {key: now[key] for key in declared if key not in fixed}  # the first trial
        self.space: dict[str, tuple[Any, ...]] = {}  # the grid
        for key, value in self.start.items():  # which the grid may lack; numbers stay in order
            values = declared[key] if value in declared[key] else (*declared[key], value)
            self.space[key] = tuple(sorted(values)) if _numeric(values) else values
        self.names = config.dataset_name, method.label
        self.trials: list[Settings] = []  # points of the grid
        self.asked: list[Any] = []  # Optuna's trials
        self.generator = make_generator(0, "tuning")
        self.runs: dict[tuple[str, int, int], Results] = {}  # by judged nodes, trial and seed

    @property
    def num_points(self) -> int:
        """Counts the points of the grid."""
        return math.prod(len(values) for values in self.space.values())

    @cached_property
    def optuna(self) -> Any:
        """Imports Optuna, an extra that only tuning needs."""
        optuna = import_extra("optuna", "tune", "the package 'optuna' to search with")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return optuna

    @cached_property
    def study(self) -> Any:
        """Makes Optuna's study, which begins with the start."""
        draws = {"seed": 0, "n_startup_trials": STARTUP, "constant_liar": True}
        sampler = self.optuna.samplers.TPESampler(**draws)
        study = self.optuna.create_study(direction="maximize", sampler=sampler)
        study.enqueue_trial(
            {key: values.index(self.start[key]) for key, values in self.space.items()}
        )
        return study

    def propose(self, count: int) -> list[int]:
        """Adds trials and returns their numbers, fewer than asked for where the grid ends."""
        kinds = self.optuna.distributions
        distributions = {
            key: kinds.IntDistribution(0, len(values) - 1)
            if _numeric(values)
            else kinds.CategoricalDistribution(range(len(values)))
            for key, values in self.space.items()
        }
        first = len(self.trials)
        while len(self.trials) < min(first + count, self.num_points):
            for attempt in range(PATIENCE + 1):
                if attempt == PATIENCE:
                    self.study.enqueue_trial(self._draw_new(self.generator))
                trial = self.study.ask(distributions)
                settings = {key: values[trial.params[key]] for key, values in self.space.items()}
                if settings not in self.trials:
                    break
                self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
            self.trials.append(settings)
            self.asked.append(trial)
        return list(range(first, len(self.trials)))

    def tell(self, trial: int) -> None:
        """Tells the study what a trial came to."""
        value = self.mean(trial)
        state = self.optuna.trial.TrialState.FAIL if value is None else None
        self.study.tell(self.asked[trial], value, state=state)

    def draw(self, count: int) -> None:
        """Makes the trials at once: the start, then others drawn blind from the grid.

        The first of a larger number are the same, and a grid with fewer points is taken whole.
        """
        generator = make_generator(0, "candidates")
        self.trials = [self.start]
        while len(self.trials) < min(count, self.num_points):
            places = self._draw_new(generator)
            self.trials.append({key: self.space[key][place] for key, place in places.items()})

    def _draw_new(self, generator: torch.Generator) -> dict[str, int]:
        """Draws a point that is not tried yet, as places in the grid; there must be one."""
        while True:
            places = {
                key: int(torch.randint(len(values), (), generator=generator))
                for key, values in self.space.items()
            }
            if {key: self.space[key][place] for key, place in places.items()} not in self.trials:
                return places

    def config(self, trial: int, seed: int, nodes: str = "validation") -> RunConfig:
        """Describes a run of a trial; its label, and so its folder, names the settings.

        One on ``test`` nodes learns from all training nodes, validation nodes among them.
        """
        settings = self.trials[trial]
        dropped = JUDGED if nodes == "test" else {}
        shared = {key: value for key, value in self.shared.items() if key not in dropped}
        options = {**self.method.options, **settings}
        text = settings_text(settings, ",")
        label = f"{self.method.label}:{text}" if text else self.method.label
        variant = Variant(name=self.method.name, options=options, label=label)
        return resolve(self.dataset, variant, seed, shared)

    def scores(self, trial: int, metric: str) -> list[float | None]:
        """Lists a score on validation nodes by seed, None where a run failed or has none."""
        found = [run for place, run in self.runs.items() if place[:2] == ("validation", trial)]
        return [None if run is None else run[metric] for run in found]

    def mean(self, trial: int, metric: str = "pm") -> float | None:
        """Averages a score on validation nodes over seeds, None where a run has none."""
        values = self.scores(trial, metric)
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known and len(known) == len(values) else None

    def finalists(self, count: int) -> list[int]:
        """Returns the best trials so far, the earlier of equals first."""
        means = [self.mean(trial) for trial in range(len(self.trials))]
        scored = [(-pm, trial) for trial, pm in enumerate(means) if pm is not None]
        return [trial for _, trial in sorted(scored)[:count]]

    def num_runs(self, trials: int, seeds: int, finalists: int = 0) -> int:
        """Counts the runs of the whole search."""
        points = min(trials, self.num_points)
        return (points + min(finalists, points)) * seeds

    def rows(self) -> list[TrialRow]:
        """Returns the log so far, a row per trial."""
        rows = []
        for trial, settings in enumerate(self.trials):
            seeds = len(self.scores(trial, "pm"))
            if seeds:
                pm, fm, current = (self.mean(trial, metric) for metric in METRICS)
                text = settings_text(settings)
                rows.append(
                    TrialRow(*self.names, trial, 0 if pm is None else seeds, pm, fm, current, text)
                )
        return rows

    def seed_rows(self) -> list[SeedRow]:
        """Returns the log so far, a row per run."""
        return [
            SeedRow(
                *self.names, trial, seed, nodes, *(run[key] if run else None for key in METRICS)
            )
            for (nodes, trial, seed), run in self.runs.items()
        ]


def run_trials(
    places: Sequence[tuple[Search, int, int]], measure: Measure, nodes: str = "validation"
) -> None:
    """Runs trials of searches, each with a seed, and notes their results."""
    configs = [search.config(trial, seed, nodes) for search, trial, seed in places]
    results = measure(configs) if configs else []
    for (search, trial, seed), result in zip(places, results, strict=True):
        search.runs[nodes, trial, seed] = result


def run_searches(
    searches: Sequence[Search],
    *,
    trials: int,
    seeds: int,
    finalists: int = 0,
    per_seed: bool = False,
    measure: Measure,
    after_round: Callable[[], None],
) -> None:
    """Runs all searches together, then the ``finalists``, the best trials, on as many seeds again.

    For a choice per seed, trials are drawn blind and run on all seeds, then what was chosen in any
    way on test nodes. A grid with fewer points than trials is searched whole. ``measure`` runs
    configurations and returns results in their order, None for failures.
    """
    if per_seed:
        for search in searches:
            search.draw(trials)
        places = [
            (search, trial, seed)
            for dataset in dict.fromkeys(search.names[0] for search in searches)
            for trial in range(trials)  # candidate by candidate: all methods advance alike
            for search in searches
            if search.names[0] == dataset and trial < len(search.trials)
            for seed in range(seeds)
        ]
        run_trials(places, measure)
        after_round()
        best = [
            (search, *pair)
            for search in searches
            for pair in sorted({p for pairs in choices(search, seeds).values() for p in pairs})
        ]
    else:
        for done in range(0, trials, BATCH):
            count = min(BATCH, trials - done)
            new = [(search, trial) for search in searches for trial in search.propose(count)]
            run_trials([(*pair, seed) for pair in new for seed in range(seeds)], measure)
            for search, trial in new:
                search.tell(trial)
            after_round()
        best = [
            (search, trial, seed)
            for search in searches
            for trial in search.finalists(finalists)
            for seed in range(seeds, 2 * seeds)
        ]
    run_trials(best, measure, "test" if per_seed else "validation")
    after_round()


def choices(search: Search, seeds: int) -> dict[str, list[tuple[int, int]]]:
    """Returns by each way to choose the trial that every seed gets, as (trial, seed).

    A seed is left out where no trial could be measured.
    """
    ways: dict[str, list[tuple[int, int]]] = {"preset": [], "one": [], "per_seed": []}
    one = search.finalists(1)
    for seed in range(seeds):
        runs = [search.runs["validation", trial, seed] for trial in range(len(search.trials))]
        own = {trial: run["pm"] for trial, run in enumerate(runs) if run is not None}
        ways["preset"].append((0, seed))
        ways["one"] += [(trial, seed) for trial in one]
        ways["per_seed"] += [(max(own, key=own.__getitem__), seed)] if own else []
    return ways


def nested_outcome(search: Search, seeds: int) -> dict[str, Any]:
    """Summarises what every way to choose comes to on test nodes, and what it changes."""
    found: dict[str, Any] = {}
    pm: dict[str, dict[int, float]] = {}
    for way, pairs in choices(search, seeds).items():
        runs = {seed: search.runs["test", trial, seed] for trial, seed in pairs}
        known = {seed: run for seed, run in runs.items() if run is not None}
        pm[way] = {seed: run["pm"] for seed, run in known.items()}
        scores = {key: mean_std([run[key] for run in known.values()]) for key in METRICS}
        found[way] = {"chosen": [trial for trial, _ in pairs], **scores}
    both = pm["one"].keys() & pm["per_seed"].keys()
    change = mean_std([pm["per_seed"][seed] - pm["one"][seed] for seed in sorted(both)])
    about = {"dataset": search.names[0], "method": search.names[1], "trials": len(search.trials)}
    return {**about, "seeds": list(range(seeds)), **found, "change": change}
