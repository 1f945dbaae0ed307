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
from evergraph.lab.tables import METRICS, Sheet, spread
from evergraph.lab.tuning import Measure, Search, run_trials

#: The ways to choose, as columns name them.
CHOICES = {
    "preset": "preset",
    "one": "one choice for all seeds",
    "per_seed": "a choice per seed",
}


def run_nested(
    searches: Sequence[Search],
    *,
    trials: int,
    seeds: int,
    measure: Measure,
    after_round: Callable[[], None],
) -> None:
    """Runs all candidates of all searches on all seeds, then what was chosen on test nodes.

    Args:
        searches: What is tuned.
        trials: Candidates of each search; a smaller grid is taken whole.
        seeds: Seeds of each candidate, from 0 on.
        measure: Runs configurations, returning results in their order, None for failures.
        after_round: Called when results are in.
    """
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
    chosen = [
        (search, *pair)
        for search in searches
        for pair in sorted({pair for pairs in choices(search, seeds).values() for pair in pairs})
    ]
    run_trials(chosen, measure, "test")
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


def nested_sheet(outcomes: Sequence[dict[str, Any]]) -> Sheet:
    """Shows PM on test nodes by each way to choose, and what choosing per seed changes."""
    rows = [
        [
            f"{entry['dataset']} · {entry['method']}",
            entry["trials"],
            len(entry["seeds"]),
            *(entry[way]["pm"] for way in CHOICES),
            spread(entry["change"], sign=True),
        ]
        for entry in outcomes
    ]
    columns = ["dataset · method", "trials", "seeds", *CHOICES.values(), "change by seed"]
    return Sheet("PM on test nodes, mean ± std over seeds, %", columns, rows)
