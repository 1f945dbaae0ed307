"""Tuning: searches a method's declared grid with Optuna, on validation nodes alone.

Every search goes in rounds of :data:`BATCH` trials, whatever the number of workers, so that the
outcome depends neither on them nor on timing. All searches of a command go round by round
together: wherever it is stopped, every method has had the same effort. Optuna's study is rebuilt
from finished run folders, which is how a search continues.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from evergraph.config import RunConfig, Variant, resolve
from evergraph.errors import InputError
from evergraph.lab.trials import TrialRow, settings_text
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
    "label_smoothing": (0.0, 0.1),
}

Settings = dict[str, Any]
Measure = Callable[[Sequence[RunConfig]], Sequence[dict[str, Any] | None]]


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
        self.asked: dict[tuple[int, ...], Any] = {}
        self.generator = make_generator(seed, "tuning")
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=STARTUP, constant_liar=True
        )
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.study.enqueue_trial({key: space[key].index(value) for key, value in start.items()})

    def ask(self, count: int) -> list[Settings]:
        """Returns new points, as many as asked for or as the grid still has."""
        count = min(count, num_points(self.space) - len(self.asked))
        return [settings_at(self.space, self._ask_new()) for _ in range(count)]

    def tell(self, settings: Settings, value: float | None) -> None:
        """Takes the value of a point, None if it has none."""
        trial = self.asked[tuple(self.space[key].index(settings[key]) for key in self.space)]
        self.study.tell(trial, value, state=self.failed if value is None else None)

    def _ask_new(self) -> tuple[int, ...]:
        for attempt in range(PATIENCE + 1):
            if attempt == PATIENCE:
                self.study.enqueue_trial(dict(zip(self.space, self._draw_new(), strict=True)))
            trial = self.study.ask(self.distributions)
            point = tuple(trial.params[key] for key in self.space)
            if point not in self.asked:
                break
            self.study.tell(trial, state=self.failed)
        self.asked[point] = trial
        return point

    def _draw_new(self) -> tuple[int, ...]:
        """Draws a point of the grid that was not asked for yet."""
        while True:
            point = draw_point(self.space, self.generator)
            if point not in self.asked:
                return point


def num_points(space: SearchSpace) -> int:
    """Counts the points of a grid."""
    return math.prod(len(values) for values in space.values())


def settings_at(space: SearchSpace, point: tuple[int, ...]) -> Settings:
    """Returns the values at a point of a grid."""
    return {key: space[key][place] for key, place in zip(space, point, strict=True)}


def draw_point(space: SearchSpace, generator: torch.Generator) -> tuple[int, ...]:
    """Draws a point of a grid, as places among the values of every setting."""
    return tuple(
        int(torch.randint(len(values), (), generator=generator)) for values in space.values()
    )


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


@dataclass
class Trial:
    """A point of the grid and the results of its runs so far, one per seed."""

    settings: Settings
    results: list[dict[str, Any] | None] = field(default_factory=list)

    def mean(self, metric: str) -> float | None:
        """Averages a score over seeds, None where a run failed or has none."""
        values = [None if result is None else result[metric] for result in self.results]
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known and len(known) == len(values) else None


class Search:
    """The search of one method's settings on one dataset.

    Args:
        dataset: The graph.
        method: The method; settings given with it are not searched.
        shared: Settings for every method that has them; not searched either.
        recipe: Whether to search :data:`RECIPE` besides the method's own grid.
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
        fixed = {*method.options, *shared}
        self.start = {key: now[key] for key in declared if key not in fixed}
        self.space = {key: _with(declared[key], value) for key, value in self.start.items()}
        self.dataset_name = config.dataset_name
        self.trials: list[Trial] = []

    @cached_property
    def proposals(self) -> Proposals:
        """Proposes what to try next."""
        return Proposals(self.space, self.start)

    def propose(self, count: int) -> list[Trial]:
        """Makes new trials, fewer than asked for where the grid ends."""
        trials = [Trial(settings) for settings in self.proposals.ask(count)]
        self.trials += trials
        return trials

    def draw(self, count: int) -> None:
        """Makes the trials at once: the start, then others drawn blind from the grid.

        The first of a larger number are the same, and a grid with fewer points is taken whole.
        """
        generator = make_generator(0, "candidates")
        points = [tuple(values.index(self.start[key]) for key, values in self.space.items())]
        while len(points) < min(count, num_points(self.space)):
            point = draw_point(self.space, generator)
            if point not in points:
                points.append(point)
        self.trials = [Trial(settings_at(self.space, point)) for point in points]

    def configs(self, trial: Trial, seeds: Iterable[int], *, test: bool = False) -> list[RunConfig]:
        """Describes the runs of a trial; its label, and so its folder, names the settings.

        Those on ``test`` nodes learn from all training nodes, validation nodes among them.
        """
        shared = {key: self.shared[key] for key in self.shared if not (test and key in JUDGED)}
        options = {**self.method.options, **trial.settings}
        text = settings_text(trial.settings, ",")
        label = f"{self.method.label}:{text}" if text else self.method.label
        variant = Variant(name=self.method.name, options=options, label=label)
        return [resolve(self.dataset, variant, seed, shared) for seed in seeds]

    def finalists(self, count: int) -> list[Trial]:
        """Returns the best trials so far, the earlier of equals first."""
        scored = [(pm, trial) for trial in self.trials if (pm := trial.mean("pm")) is not None]
        scored.sort(key=lambda pair: -pair[0])
        return [trial for _, trial in scored[:count]]

    def num_runs(self, trials: int, seeds: int, finalists: int) -> int:
        """Counts the runs of the whole search."""
        points = min(trials, num_points(self.space))
        return (points + min(finalists, points)) * seeds

    def rows(self) -> list[TrialRow]:
        """Returns the log so far."""
        rows = []
        for number, trial in enumerate(self.trials):
            if not trial.results:
                continue
            pm, fm, current = (trial.mean(metric) for metric in ("pm", "fm", "current"))
            seeds = 0 if pm is None else len(trial.results)
            text = settings_text(trial.settings)
            names = self.dataset_name, self.method.label
            rows.append(TrialRow(*names, number, seeds, pm, fm, current, text))
        return rows


def _with(values: tuple[Any, ...], start: Any) -> tuple[Any, ...]:
    """Adds the start to the values of a grid where it is missing; numbers stay in order."""
    if start in values:
        return values
    joined = (*values, start)
    return tuple(sorted(joined)) if _numeric(joined) else joined


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

    def run(chosen: list[tuple[Search, Trial]], which: range) -> None:
        configs = [search.configs(trial, which) for search, trial in chosen]
        results = iter(measure([config for group in configs for config in group]))
        for (_, trial), group in zip(chosen, configs, strict=True):
            trial.results += [next(results) for _ in group]

    for done in range(0, trials, BATCH):
        count = min(BATCH, trials - done)
        proposed = [(search, trial) for search in searches for trial in search.propose(count)]
        run(proposed, range(seeds))
        for search, trial in proposed:
            search.proposals.tell(trial.settings, trial.mean("pm"))
        after_round()
    best = [(search, trial) for search in searches for trial in search.finalists(finalists)]
    run(best, range(seeds, 2 * seeds))
    after_round()
