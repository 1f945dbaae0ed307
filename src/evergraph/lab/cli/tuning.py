"""``evergraph tune``: the best settings of methods on datasets, by validation nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from evergraph.config import RunConfig, Variant, check_shared, parse_settings
from evergraph.errors import InputError
from evergraph.files import read_json, write_json
from evergraph.lab.api import check_finished, parse_methods, run_grid
from evergraph.lab.cli.grids import GridProgress, check_at_least
from evergraph.lab.cli.runs import JsonOption
from evergraph.lab.engines import Resources
from evergraph.lab.folder import Job, check_output, make_jobs
from evergraph.lab.runs import SetOption
from evergraph.lab.tables import METRICS, Sheet, make_console, show, spread
from evergraph.lab.trials import Log, TrialRow, best_row, by_search
from evergraph.lab.tuning import Search, nested_outcome, run_searches

#: The ways to choose, as columns name them.
CHOICES = {
    "preset": "preset",
    "one": "one choice for all seeds",
    "per_seed": "a choice per seed",
}


def tune(
    output: Annotated[Path, "Folder for the search."],
    method: Annotated[
        list[str] | None, "NAME[:key=value,...][@label], or all; repeatable. [dslr]"
    ] = None,
    dataset: Annotated[list[str] | None, "A dataset; repeatable. [cora]"] = None,
    trials: Annotated[int, "Settings to try per method and dataset."] = 12,
    seeds: Annotated[int | None, "Number of seeds, counted from 0. [2; 10 with --per-seed]"] = None,
    finalists: Annotated[
        int | None, "How many of the best are run again, on as many new seeds. [3]"
    ] = None,
    per_seed: Annotated[
        bool,
        "Draw the settings at random, let every seed choose by its own validation nodes, and "
        "evaluate the choice on test nodes.",
    ] = False,
    recipe: Annotated[
        bool, "Also search learning rate, weight decay, dropout, head and smoothing."
    ] = False,
    *,
    resources: Resources,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search the settings that methods declare, on validation nodes; run again to continue."""
    check_output(output)
    check_at_least(1, trials=trials, seeds=seeds)
    check_at_least(0, finalists=finalists)
    if per_seed and finalists is not None:
        raise InputError(
            f"Expected '--finalists' only without '--per-seed' (got {finalists}), where every "
            "trial runs on every seed; leave one of them out."
        )
    shared = parse_settings(sets or [])
    variants = parse_methods(method or ["dslr"])
    check_shared(shared, [variant.name for variant in variants])
    searches = [
        Search(Variant.parse_dataset(graph), variant, shared, recipe=recipe)
        for graph in dataset or ["cora"]
        for variant in variants
    ]
    log = Log(output)

    def write() -> None:
        log.write(
            [row for search in searches for row in search.rows()],
            [row for search in searches for row in search.seed_rows()],
        )

    effort = {"trials": trials, "seeds": seeds or (10 if per_seed else 2)}
    effort["finalists"] = 0 if per_seed else 3 if finalists is None else finalists
    runner = Runner(output, resources, sum(search.num_runs(**effort) for search in searches))
    with runner.progress.running():
        run_searches(searches, **effort, per_seed=per_seed, measure=runner, after_round=write)
    if per_seed:
        outcomes = [nested_outcome(search, effort["seeds"]) for search in searches]
        write_json(output / "choices.json", outcomes)
        show(outcomes, [nested_sheet(outcomes)], as_json, f"{log.seeds} · {output}/choices.json")
    else:
        rows = [row for search in searches for row in search.rows()]
        line = f"{log.trials} · {output / 'best.yaml'}"
        show([asdict(row) for row in rows], [tuning_sheet(rows)], as_json, line)
    check_finished(runner.failed)


class Runner:
    """Runs the configurations of a round, and remembers which failed.

    What took longest in the last round goes first, so that no worker is left alone with it.
    """

    def __init__(self, output: Path, resources: Resources, num_runs: int) -> None:
        self.output, self.resources = output, resources
        self.progress = GridProgress(make_console(stderr=True), num_runs)
        self.failed: dict[str, str] = {}
        self.seconds: dict[tuple[str, str], float] = {}  # by dataset and method

    def __call__(self, configs: Sequence[RunConfig]) -> list[dict[str, Any] | None]:
        """Returns results in the order of the configurations, None for failures.

        Runs on test nodes are no trials; their folder is a grid of its own.
        """
        if configs[0].protocol.evaluate == "validation":
            jobs = make_jobs(configs, self.output, trial=True)
        else:
            jobs = make_jobs(configs, self.output / "test")
            self.progress.expect(len(jobs))
        slowest_first = sorted(jobs, key=lambda job: -self.seconds.get(_kind(job), math.inf))
        failed = run_grid(slowest_first, self.resources, self.progress.message, self.progress.done)
        self.failed |= failed
        found: list[dict[str, Any] | None] = []
        for job in jobs:
            results = None if job.name in failed else read_json(job.path / "results.json")
            found.append(results)
            if results is not None:
                self.seconds[_kind(job)] = results["seconds"]["total"]
        return found


def _kind(job: Job) -> tuple[str, str]:
    return job.config.dataset_name, job.config.method


def tuning_sheet(rows: Sequence[TrialRow]) -> Sheet:
    """Shows the best trial of every search beside the one it started from."""
    shown = []
    for (dataset, method), group in by_search(rows).items():
        best = best_row(group)
        scores = [None if best is None else getattr(best, key) for key in METRICS]
        settings = "" if best is None else best.settings
        shown.append([f"{dataset} · {method}", len(group), group[0].pm, *scores, settings])
    columns = ["dataset · method", "trials", "start PM", *METRICS.values(), "settings"]
    return Sheet("Best settings, validation nodes, %", columns, shown, prose=("settings",))


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
