"""Nested tuning: every seed's settings are chosen on validation nodes of its own.

A seed draws its own split, so that a validation node of one seed may be a test node of another.
Settings that are chosen once for all seeds have therefore seen nodes that judge them. Here every
seed chooses among the same candidates, drawn blind, by its own validation nodes, which it never
judges; what the usual choice would have been is known from the same runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergraph.lab.summary import mean_std
from evergraph.lab.tables import Sheet, spread
from evergraph.lab.trials import SeedRow
from evergraph.lab.tuning import Measure, Search, Trial

#: The ways to choose, as columns name them.
CHOICES = {
    "preset": "preset",
    "one": "one choice for all seeds",
    "per_seed": "a choice per seed",
}


class NestedSearch:
    """A search whose every seed chooses for itself.

    Args:
        search: What is tuned; its trials are drawn here.
        trials: How many candidates every seed has; a smaller grid is taken whole.
        seeds: How many seeds, from 0 on.
    """

    def __init__(self, search: Search, trials: int, seeds: int) -> None:
        search.draw(trials)
        self.search, self.seeds = search, range(seeds)
        self.judged: dict[tuple[int, int], dict[str, Any] | None] = {}  # by trial and seed

    def choices(self) -> dict[str, list[int | None]]:
        """Returns the trial that every way to choose takes for each seed, None without any."""
        means = [trial.mean("pm") for trial in self.search.trials]
        own = [
            _best([_pm(trial.results[seed]) for trial in self.search.trials]) for seed in self.seeds
        ]
        count = len(self.seeds)
        return {"preset": [0] * count, "one": [_best(means)] * count, "per_seed": own}

    def chosen(self) -> list[tuple[int, int]]:
        """Lists what has to be judged on test nodes: every trial with a seed that chose it."""
        pairs = {
            (trial, seed)
            for choice in self.choices().values()
            for trial, seed in zip(choice, self.seeds, strict=True)
            if trial is not None
        }
        return sorted(pairs)

    def rows(self) -> list[SeedRow]:
        """Returns every run: those on validation nodes, then those on test nodes."""
        names = self.search.dataset_name, self.search.method.label
        runs = [
            (number, seed, "validation", result)
            for number, trial in enumerate(self.search.trials)
            for seed, result in zip(self.seeds, trial.results, strict=False)
        ]
        runs += [(*place, "test", result) for place, result in self.judged.items()]
        return [
            SeedRow(*names, trial, seed, nodes, *_scores(result))
            for trial, seed, nodes, result in runs
        ]

    def outcome(self) -> dict[str, Any]:
        """Summarises what every way to choose comes to on test nodes, and what it changes."""
        choices = self.choices()
        results: dict[str, list[dict[str, Any] | None]] = {
            way: [
                None if trial is None else self.judged.get((trial, seed))
                for trial, seed in zip(choice, self.seeds, strict=True)
            ]
            for way, choice in choices.items()
        }
        pairs = zip(results["per_seed"], results["one"], strict=True)
        changes = [mine["pm"] - one["pm"] for mine, one in pairs if mine and one]
        return {
            "dataset": self.search.dataset_name,
            "method": self.search.method.label,
            "trials": len(self.search.trials),
            "seeds": list(self.seeds),
            **{
                way: {
                    "chosen": choices[way],
                    **{
                        metric: mean_std([run[metric] for run in runs if run])
                        for metric in ("pm", "fm", "current")
                    },
                }
                for way, runs in results.items()
            },
            "change": mean_std(changes),
        }


def run_nested(
    searches: Sequence[NestedSearch],
    measure: Measure,
    judge: Measure,
    after_round: Callable[[], None],
) -> None:
    """Runs all candidates of all searches on all seeds, then what was chosen on test nodes.

    Args:
        searches: What is tuned.
        measure: Runs configurations on validation nodes, returning results in their order.
        judge: Does the same on test nodes.
        after_round: Called when results are in.
    """
    asked: list[tuple[NestedSearch, Trial]] = []
    for dataset in dict.fromkeys(nested.search.dataset_name for nested in searches):
        mine = [nested for nested in searches if nested.search.dataset_name == dataset]
        most = max(len(nested.search.trials) for nested in mine)
        for place in range(most):  # candidate by candidate: all methods advance alike
            asked += [(n, trial) for n in mine for trial in n.search.trials[place : place + 1]]
    configs = [nested.search.configs(trial, nested.seeds) for nested, trial in asked]
    found = iter(measure([config for group in configs for config in group]))
    for (_, trial), group in zip(asked, configs, strict=True):
        trial.results = [next(found) for _ in group]
    after_round()
    chosen = [(nested, place) for nested in searches for place in nested.chosen()]
    final = [
        nested.search.configs(nested.search.trials[number], [seed], test=True)[0]
        for nested, (number, seed) in chosen
    ]
    for (nested, pair), result in zip(chosen, judge(final), strict=True):
        nested.judged[pair] = result
    after_round()


def nested_sheet(outcomes: Sequence[dict[str, Any]]) -> Sheet:
    """Shows PM on test nodes by each way to choose, and what choosing per seed changes."""
    rows = [
        [
            f"{entry['dataset']} · {entry['method']}",
            str(entry["trials"]),
            str(len(entry["seeds"])),
            *(spread(entry[way]["pm"]) for way in CHOICES),
            spread(entry["change"], sign=True),
        ]
        for entry in outcomes
    ]
    columns = ["dataset · method", "trials", "seeds", *CHOICES.values(), "change by seed"]
    return Sheet("PM on test nodes, mean ± std over seeds, %", columns, rows)


def _best(values: Sequence[float | None]) -> int | None:
    """Returns the place of the highest value, the first of equals."""
    known = [(value, -place) for place, value in enumerate(values) if value is not None]
    return -max(known)[1] if known else None


def _pm(result: dict[str, Any] | None) -> float | None:
    return None if result is None else result["pm"]


def _scores(result: dict[str, Any] | None) -> list[float | None]:
    return [None if result is None else result[key] for key in ("pm", "fm", "current")]
