"""Tuning: searches a method's declared grid on validation nodes alone.

Optuna proposes; every search goes in rounds of :data:`BATCH` trials, whatever the number of
workers, so that the outcome depends neither on them nor on timing. All searches of a command go
round by round together: wherever it is stopped, every method has had the same effort. Optuna's
study is rebuilt from finished run folders, which is how a search continues. Trials may also be
drawn blind, for every seed to choose among (:mod:`evergraph.lab.nested`).
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
Point = tuple[int, ...]  # of a grid: the place of every setting among its values
Results = dict[str, Any] | None  # of a run, None if it failed
Measure = Callable[[Sequence[RunConfig]], Sequence[Results]]


def settings_at(space: SearchSpace, point: Point) -> Settings:
    """Returns the values at a point of a grid."""
    return {key: space[key][place] for key, place in zip(space, point, strict=True)}


def point_of(space: SearchSpace, settings: Settings) -> Point:
    """Finds the point of a grid that has some values."""
    return tuple(values.index(settings[key]) for key, values in space.items())


def draw_new(space: SearchSpace, known: Iterable[Point], generator: torch.Generator) -> Point:
    """Draws a point of a grid that is not known yet; there must be one."""
    while True:
        sizes = [len(values) for values in space.values()]
        point = tuple(int(torch.randint(size, (), generator=generator)) for size in sizes)
        if point not in known:
            return point


def num_points(space: SearchSpace) -> int:
    """Counts the points of a grid."""
    return math.prod(len(values) for values in space.values())


class Proposals:
    """Asks Optuna's tree-structured Parzen estimator for points of a grid, none twice.

    Numbers are searched by their place in the grid, which is how a grid of powers is searched
    by its logarithm; words as categories.

    Args:
        space: The grid.
        start: The point that is proposed first.
        seed: Source of all draws.
    """

    def __init__(self, space: SearchSpace, start: Settings, seed: int = 0) -> None:
        optuna = _import_optuna()
        self.failed = optuna.trial.TrialState.FAIL
        self.space = space
        self.distributions = {
            key: optuna.distributions.IntDistribution(0, len(values) - 1)
            if _numeric(values)
            else optuna.distributions.CategoricalDistribution(range(len(values)))
            for key, values in space.items()
        }
        self.asked: dict[Point, Any] = {}
        self.generator = make_generator(seed, "tuning")
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=STARTUP, constant_liar=True
        )
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self._enqueue(point_of(space, start))

    def ask(self, count: int) -> list[Settings]:
        """Returns new points, as many as asked for or as the grid still has."""
        count = min(count, num_points(self.space) - len(self.asked))
        return [settings_at(self.space, self._ask_new()) for _ in range(count)]

    def tell(self, settings: Settings, value: float | None) -> None:
        """Takes the value of a point, None if it has none."""
        trial = self.asked[point_of(self.space, settings)]
        self.study.tell(trial, value, state=self.failed if value is None else None)

    def _enqueue(self, point: Point) -> None:
        self.study.enqueue_trial(dict(zip(self.space, point, strict=True)))

    def _ask_new(self) -> Point:
        for attempt in range(PATIENCE + 1):
            if attempt == PATIENCE:
                self._enqueue(draw_new(self.space, self.asked, self.generator))
            trial = self.study.ask(self.distributions)
            point = tuple(trial.params[key] for key in self.space)
            if point not in self.asked:
                break
            self.study.tell(trial, state=self.failed)
        self.asked[point] = trial
        return point


def _import_optuna() -> Any:
    try:
        import optuna  # noqa: PLC0415 - an extra that only tuning needs
    except ImportError:
        raise InputError(
            "Expected the package 'optuna' to search with (it is not installed); install it with "
            "pip install 'evergraph[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _numeric(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)


class Search:
    """The search of one method's settings on one dataset.

    Args:
        dataset: The graph.
        method: The method; settings given with it, and those without effect, are not searched.
        shared: Settings for every method that has them; not searched either.
        recipe: Whether to search :data:`RECIPE` besides the method's own grid.

    Attributes:
        trials: The points of the grid that are tried.
        runs: Results by judged nodes (``validation`` or ``test``), trial and seed.
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
        declared = {**method_class(method.name).search, **(RECIPE if recipe else {})}
        fixed = {*method.options, *shared, *config.unused()}
        self.start = {key: now[key] for key in declared if key not in fixed}
        self.space = {key: _with(declared[key], value) for key, value in self.start.items()}
        self.names = config.dataset_name, method.label
        self.trials: list[Settings] = []
        self.runs: dict[tuple[str, int, int], Results] = {}

    @cached_property
    def proposals(self) -> Proposals:
        """Proposes what to try next."""
        return Proposals(self.space, self.start)

    def propose(self, count: int) -> list[int]:
        """Adds trials and returns their numbers, fewer than asked for where the grid ends."""
        first = len(self.trials)
        self.trials += self.proposals.ask(count)
        return list(range(first, len(self.trials)))

    def draw(self, count: int) -> None:
        """Makes the trials at once: the start, then others drawn blind from the grid.

        The first of a larger number are the same, and a grid with fewer points is taken whole.
        """
        generator = make_generator(0, "candidates")
        points = [point_of(self.space, self.start)]
        while len(points) < min(count, num_points(self.space)):
            points.append(draw_new(self.space, points, generator))
        self.trials = [settings_at(self.space, point) for point in points]

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
        points = min(trials, num_points(self.space))
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


def _with(values: tuple[Any, ...], start: Any) -> tuple[Any, ...]:
    """Adds the start to the values of a grid where it is missing; numbers stay in order."""
    if start in values:
        return values
    joined = (*values, start)
    return tuple(sorted(joined)) if _numeric(joined) else joined


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
    finalists: int,
    measure: Measure,
    after_round: Callable[[], None],
) -> None:
    """Runs all searches round by round, then their best trials on as many seeds again.

    Args:
        searches: What is tuned.
        trials: Trials of each search; a smaller grid is searched whole.
        seeds: Seeds of each trial, from 0 on.
        finalists: How many of the best trials run on ``seeds`` more.
        measure: Runs configurations, returning results in their order, None for failures.
        after_round: Called when results of a round are in.
    """
    for done in range(0, trials, BATCH):
        count = min(BATCH, trials - done)
        new = [(search, trial) for search in searches for trial in search.propose(count)]
        run_trials([(*pair, seed) for pair in new for seed in range(seeds)], measure)
        for search, trial in new:
            search.proposals.tell(search.trials[trial], search.mean(trial))
        after_round()
    best = [(search, trial) for search in searches for trial in search.finalists(finalists)]
    run_trials([(*pair, seed) for pair in best for seed in range(seeds, 2 * seeds)], measure)
    after_round()
