"""Tuning: searches a method's declared grid with Optuna, on validation nodes alone.

Every search goes in rounds of :data:`BATCH` trials, whatever the number of workers, so that the
outcome depends neither on them nor on timing. All searches of a command go round by round
together: wherever it is stopped, every method has had the same effort. Optuna's study is rebuilt
from finished run folders, which is how a search continues.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evergraph.config import RunConfig, Variant, resolve
from evergraph.errors import InputError
from evergraph.lab.proposals import Proposals, Settings
from evergraph.lab.trials import TrialRow, settings_text
from evergraph.methods import method_class
from evergraph.methods.base import SearchSpace

#: Trials that a search asks for at once.
BATCH = 4
#: What every run of a search adds to its settings: no test node is ever judged.
JUDGED: dict[str, Any] = {"evaluate": "validation", "validation_fraction": 0.1}
#: Training settings that the paper leaves open, for every method alike (decision 0005).
RECIPE: SearchSpace = {
    "lr": (0.005, 0.01),
    "dropout": (0.2, 0.35, 0.5),
    "head_init": ("uniform", "default"),
    "label_smoothing": (0.0, 0.1, 0.2),
}

Measure = Callable[[Sequence[RunConfig]], Sequence[dict[str, Any] | None]]


@dataclass
class Trial:
    """A point of the grid and the results of its runs so far, one per seed."""

    number: int
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
        check_judged(self.shared)
        config = resolve(dataset, method, 0, self.shared)
        sections = (config.settings, config.training.model_dump(), config.model.model_dump())
        now = {key: value for section in sections for key, value in section.items()}
        declared = {**method_class(method.name).search, **(RECIPE if recipe else {})}
        fixed = {*method.options, *shared}
        self.start = {key: now[key] for key in declared if key not in fixed}
        space = {key: _with(declared[key], value) for key, value in self.start.items()}
        self.dataset_name = config.dataset_name
        self.proposals = Proposals(space, self.start)
        self.trials: list[Trial] = []

    def propose(self, count: int) -> list[Trial]:
        """Makes new trials, fewer than asked for where the grid ends."""
        first = len(self.trials)
        settings = self.proposals.ask(count)
        self.trials += [Trial(first + i, point) for i, point in enumerate(settings)]
        return self.trials[first:]

    def configs(self, trial: Trial, seeds: range) -> list[RunConfig]:
        """Describes the runs of a trial; its label, and so its folder, names the settings."""
        options = {**self.method.options, **trial.settings}
        text = settings_text(trial.settings, ",")
        label = f"{self.method.label}:{text}" if text else self.method.label
        variant = Variant(name=self.method.name, options=options, label=label)
        return [resolve(self.dataset, variant, seed, self.shared) for seed in seeds]

    def finalists(self, count: int) -> list[Trial]:
        """Returns the best trials so far, the earlier of equals first."""
        scored = [(trial.mean("pm"), trial) for trial in self.trials]
        ranked = sorted((-pm, trial.number) for pm, trial in scored if pm is not None)
        return [self.trials[number] for _, number in ranked[:count]]

    def num_runs(self, trials: int, seeds: int, finalists: int) -> int:
        """Counts the runs of the whole search."""
        points = min(trials, self.proposals.size)
        return (points + min(finalists, points)) * seeds

    def rows(self) -> list[TrialRow]:
        """Returns the log so far."""
        return [
            TrialRow(
                self.dataset_name,
                self.method.label,
                trial.number,
                0 if trial.mean("pm") is None else len(trial.results),
                trial.mean("pm"),
                trial.mean("fm"),
                trial.mean("current"),
                settings_text(trial.settings),
            )
            for trial in self.trials
            if trial.results
        ]


def check_judged(shared: Mapping[str, Any]) -> None:
    """Refuses to judge settings by anything but validation nodes."""
    if shared["evaluate"] != "validation":
        raise InputError(
            f"Expected 'evaluate' to be validation in a search (got '{shared['evaluate']}'); "
            "leave it out: test nodes are for the final comparison."
        )


def _with(values: tuple[Any, ...], start: Any) -> tuple[Any, ...]:
    """Adds the start to the values of a grid where it is missing; numbers stay in order."""
    if start in values:
        return values
    joined = (*values, start)
    numeric = all(isinstance(value, int | float) for value in joined)
    return tuple(sorted(joined)) if numeric else joined


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
