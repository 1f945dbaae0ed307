"""Which settings to try next: Optuna proposes points of a grid, none of them twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from evergraph.errors import InputError
from evergraph.methods.base import SearchSpace
from evergraph.rng import make_generator

if TYPE_CHECKING:
    import optuna

#: Trials drawn at random before the sampler learns from them; the first is the start.
STARTUP = 8
#: How often the sampler may propose what was tried already before a draw decides.
PATIENCE = 10

Settings = dict[str, Any]


def require_optuna() -> None:
    """Refuses to tune without Optuna, in one sentence."""
    try:
        import optuna  # noqa: PLC0415 - an extra that only tuning needs
    except ImportError:
        raise InputError(
            "Expected the package 'optuna' to search with (it is not installed); install it with "
            "pip install 'evergraph[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


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
        require_optuna()
        import optuna  # noqa: PLC0415 - as above

        self.space = space
        self.size = math.prod(len(values) for values in space.values())
        self.distributions = {key: _distribution(values) for key, values in space.items()}
        self.asked: dict[tuple[int, ...], optuna.trial.Trial] = {}
        self.generator = make_generator(seed, "tuning")
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=STARTUP, constant_liar=True
        )
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.study.enqueue_trial({key: space[key].index(value) for key, value in start.items()})

    def ask(self, count: int) -> list[Settings]:
        """Returns new points, as many as asked for or as the grid still has."""
        points = []
        for _ in range(min(count, self.size - len(self.asked))):
            point = self._ask_new()
            points.append({k: v[i] for (k, v), i in zip(self.space.items(), point, strict=True)})
        return points

    def tell(self, settings: Settings, value: float | None) -> None:
        """Takes the value of a point, None if it has none."""
        import optuna  # noqa: PLC0415 - as above

        trial = self.asked[tuple(self.space[key].index(settings[key]) for key in self.space)]
        if value is None:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(trial, value)

    def _ask_new(self) -> tuple[int, ...]:
        import optuna  # noqa: PLC0415 - as above

        for _ in range(PATIENCE):
            trial = self.study.ask(self.distributions)
            point = tuple(trial.params[key] for key in self.space)
            if point not in self.asked:
                self.asked[point] = trial
                return point
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        point = self._draw_new()
        self.study.enqueue_trial(dict(zip(self.space, point, strict=True)))
        self.asked[point] = self.study.ask(self.distributions)
        return point

    def _draw_new(self) -> tuple[int, ...]:
        """Draws a point of the grid that was not asked for yet."""
        while True:
            point = tuple(
                int(torch.randint(len(values), (), generator=self.generator))
                for values in self.space.values()
            )
            if point not in self.asked:
                return point


def _distribution(values: Sequence[Any]) -> optuna.distributions.BaseDistribution:
    from optuna import distributions  # noqa: PLC0415 - as above

    if all(isinstance(value, int | float) for value in values):
        return distributions.IntDistribution(0, len(values) - 1)
    return distributions.CategoricalDistribution(range(len(values)))
