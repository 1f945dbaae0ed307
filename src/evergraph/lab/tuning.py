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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from evergraph.config import RunConfig, Variant, resolve
from evergraph.device import make_generator
from evergraph.errors import InputError, import_extra
from evergraph.lab.folder import Run, make_runs
from evergraph.lab.summary import mean_std
from evergraph.lab.tables import METRICS
from evergraph.lab.trials import SeedRow, TrialRow, settings_text
from evergraph.methods import method_class
from evergraph.methods.base import SearchSpace

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
        self.runs: dict[tuple[str, int, int], Run] = {}  # by judged nodes, trial and seed

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
        study.enqueue_trial({key: self.space[key].index(self.start[key]) for key in self.space})
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

    def scores(self, trial: int, metric: str = "pm", nodes: str = "validation") -> dict[int, Any]:
        """Returns a score of a trial by seed, None where a run failed or has none."""
        found = {place[2]: run for place, run in self.runs.items() if place[:2] == (nodes, trial)}
        return {s: run.results[metric] if run.is_finished else None for s, run in found.items()}

    def mean(self, trial: int, metric: str = "pm") -> float | None:
        """Averages a score on validation nodes over seeds, None where a run has none."""
        values = self.scores(trial, metric).values()
        return statistics.fmean(values) if values and None not in values else None

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
            if seeds := len(self.scores(trial)):
                pm, fm, current = (self.mean(trial, metric) for metric in METRICS)
                seeds, text = 0 if pm is None else seeds, settings_text(settings)
                rows.append(TrialRow(*self.names, trial, seeds, pm, fm, current, text))
        return rows

    def seed_rows(self) -> list[SeedRow]:
        """Returns the log so far, a row per run."""
        rows = []
        for (nodes, trial, seed), run in self.runs.items():
            results = run.results if run.is_finished else {}
            pm, fm, current = (results.get(key) for key in METRICS)
            rows.append(SeedRow(*self.names, trial, seed, nodes, pm, fm, current))
        return rows


def search_rounds(
    searches: Sequence[Search],
    output: Path,
    *,
    trials: int,
    seeds: int,
    finalists: int = 0,
    per_seed: bool = False,
) -> Iterator[list[Run]]:
    """Gives what all searches have to run, then the ``finalists``, the best trials, on more seeds.

    For a choice per seed, trials are drawn blind and run on all seeds, then what was chosen in any
    way on test nodes, which are no trials. A grid with fewer points than trials is searched whole.
    What a round has to run is run before the next is asked for; a run without results has failed.
    """

    def given(places: Sequence[tuple[Search, int, int]], nodes: str = "validation") -> list[Run]:
        configs = [search.config(trial, seed, nodes) for search, trial, seed in places]
        judged = nodes == "test"
        runs = make_runs(configs, output / "test" if judged else output, trial=not judged)
        for (search, trial, seed), run in zip(places, runs, strict=True):
            search.runs[nodes, trial, seed] = run
        return runs

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
        yield given(places)
        best = [
            (search, *pair)
            for search in searches
            for pair in sorted({p for pairs in choices(search, seeds).values() for p in pairs})
        ]
    else:
        for done in range(0, trials, BATCH):
            count = min(BATCH, trials - done)
            new = [(search, trial) for search in searches for trial in search.propose(count)]
            yield given([(*pair, seed) for pair in new for seed in range(seeds)])
            for search, trial in new:
                search.tell(trial)
        best = [
            (search, trial, seed)
            for search in searches
            for trial in search.finalists(finalists)
            for seed in range(seeds, 2 * seeds)
        ]
    yield given(best, "test" if per_seed else "validation")


def choices(search: Search, seeds: int) -> dict[str, list[tuple[int, int]]]:
    """Returns by each way to choose the trial that every seed gets, as (trial, seed).

    A seed is left out where no trial could be measured.
    """
    ways: dict[str, list[tuple[int, int]]] = {"preset": [], "one": [], "per_seed": []}
    one, scores = search.finalists(1), [search.scores(t) for t in range(len(search.trials))]
    for seed in range(seeds):
        own = {trial: pm[seed] for trial, pm in enumerate(scores) if pm[seed] is not None}
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
        known = {seed: run.results for seed, run in runs.items() if run.is_finished}
        pm[way] = {seed: results["pm"] for seed, results in known.items()}
        scores = {key: mean_std([results[key] for results in known.values()]) for key in METRICS}
        found[way] = {"chosen": [trial for trial, _ in pairs], **scores}
    both = pm["one"].keys() & pm["per_seed"].keys()
    change = mean_std([pm["per_seed"][seed] - pm["one"][seed] for seed in sorted(both)])
    about = {"dataset": search.names[0], "method": search.names[1], "trials": len(search.trials)}
    return {**about, "seeds": list(range(seeds)), **found, "change": change}
