"""``evergraph experiments`` and ``evergraph reproduce``: every claim of the paper as a command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from evergraph.config import check_shared, parse_settings
from evergraph.errors import InputError
from evergraph.lab.cli import options
from evergraph.lab.cli.grids import check_at_least, run_jobs
from evergraph.lab.cli.progress import make_console
from evergraph.lab.engines import Resources
from evergraph.lab.folder import check_output, make_jobs
from evergraph.lab.grid import RunCache, check_finished, merge_runs
from evergraph.lab.paper.experiments import EXPERIMENTS, find_experiments
from evergraph.lab.paper.outcome import Outcome
from evergraph.lab.paper.reproduce import (
    Part,
    Request,
    conclude,
    has_settings,
    needed_runs,
    plan,
)
from evergraph.lab.report.document import (
    QUICK,
    kind_of,
    overview,
    publish,
    read_results,
    write_experiment,
)
from evergraph.lab.report.figures import check_matplotlib
from evergraph.lab.report.sheets import outcome_sheets
from evergraph.lab.tables import Sheet
from evergraph.methods import METHODS


def experiments(as_json: options.JsonOption = False) -> None:
    """List the experiments of the paper."""
    entries = [
        {"id": e.id, "title": e.title, "paper": e.source, "datasets": list(e.datasets)}
        for e in EXPERIMENTS.values()
    ]
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    rows = [[str(e["id"]), str(e["paper"]), str(e["title"])] for e in entries]
    columns = ["experiment", "in the paper", "what it shows"]
    make_console().print(Sheet("Experiments", columns, rows, prose=tuple(columns)).rich())


def reproduce(
    output: Annotated[Path, typer.Option(help="Folder of runs and outcomes.")],
    experiment: Annotated[str | None, typer.Argument(help="An experiment's id, or all.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Cora, two seeds, few epochs: to see that it works.")
    ] = False,
    dataset: Annotated[list[str] | None, typer.Option(help="Repeat for more.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds. [10, or 2 with --quick]")
    ] = None,
    first_seed: Annotated[int, typer.Option(help="Where the seeds begin.")] = 0,
    *,
    resources: Resources,
    merge: options.MergeOption = None,
    sets: options.SetOption = None,
    as_printed: Annotated[
        bool,
        typer.Option("--as-printed", help="The paper's settings to the letter instead of ours."),
    ] = False,
    times: Annotated[
        bool,
        typer.Option(
            "--times/--no-times", help="Show times, or leave out those of runs that ran together."
        ),
    ] = True,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Say how many runs are needed, and run none.")
    ] = False,
    document_to: Annotated[
        Path | None,
        typer.Option("--document", help="Write everything found in --output to this file."),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(help="Folder of an --as-printed reproduction, for a column of the document."),
    ] = None,
    again: Annotated[
        Path | None,
        typer.Option(help="Folder of a --first-seed reproduction, for a column of the document."),
    ] = None,
    published: Annotated[
        Path | None,
        typer.Option(help="Write files from published results (docs/results); run nothing."),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Reproduce a table or figure of the paper; runs are shared between experiments."""
    check_at_least(1, seeds=seeds)
    check_at_least(0, first_seed=first_seed)
    check_output(output)
    if experiment is None and document_to is None:
        raise InputError(
            "Expected an experiment or '--document' (got neither); name one that 'evergraph "
            "experiments' lists, or all."
        )
    for option, folder in (("--beside", beside), ("--again", again)):
        if folder is not None and document_to is None:
            raise InputError(
                f"Expected '--document' with '{option}' (got '{folder}' alone); add "
                "--document FILE."
            )
    chosen = find_experiments(experiment) if experiment is not None else []
    if as_printed and chosen and not any(has_settings(one) for one in chosen):
        raise InputError(
            "Expected '--as-printed' with an experiment of the paper that trains and is not "
            f"about time alone (got '{experiment}'); leave the option out."
        )
    if chosen and published is not None:
        check_matplotlib()
        _write(_published(published, [one.id for one in chosen]), output, as_json)
    elif chosen:
        shared = parse_settings(sets or [])
        check_shared(shared, list(METHODS))
        request = Request(
            quick=quick,
            datasets=tuple(dataset) if dataset else None,
            seeds=seeds,
            shared=shared,
            data_root=resources.data_root,
            as_printed=as_printed,
            first_seed=first_seed,
            times=times,
        )
        check_matplotlib()  # says now, not after the runs, if it is missing
        parts = plan(chosen, request)
        if plan_only:
            _tell_plan(parts, RunCache(output))
            return
        failed = _run(parts, output, merge or [], resources)
        _write(conclude(parts, RunCache(output), request), output, as_json)
        check_finished(failed)
    if document_to is not None:
        publish(output, document_to, beside, again)


def _tell_plan(parts: Sequence[Part], cache: RunCache) -> None:
    """Shows per experiment how many runs it needs, and how many no earlier one has brought."""
    rows, seen = [], set(cache.folders)
    for name in dict.fromkeys(part.experiment.id for part in parts):
        mine = needed_runs(part for part in parts if part.experiment.id == name)
        new = {config.hash for config in mine} - seen
        seen |= new
        rows.append([name, str(len(mine)), str(len(new))])
    total = len(needed_runs(parts))
    left = sum(int(row[2]) for row in rows)
    rows.append(["together", str(total), str(left)])
    make_console().print(Sheet("Runs", ["experiment", "runs", "still to run"], rows).rich())


def _run(
    parts: Sequence[Part], output: Path, merge: Sequence[Path], resources: Resources
) -> dict[str, str]:
    """Runs what is neither here nor in the folders to merge."""
    wanted = needed_runs(parts)
    cache = RunCache(output)
    missing = [config for config in wanted if config.hash not in cache]
    merge_runs(output, merge, missing)
    jobs = make_jobs(missing, output)
    jobs = [job for job in jobs if not (job.path / "results.json").exists()]
    return run_jobs(jobs, resources) if jobs else {}


def _published(folder: Path, names: Sequence[str]) -> list[Outcome]:
    """Finds what was published of some experiments with our settings."""
    found = read_results(folder)
    outcomes = [found[name]["ours"] for name in names if "ours" in found.get(name, {})]
    if not outcomes:
        raise InputError(
            f"Expected '--published' to be a folder of published results (got '{folder}'); check "
            "the path."
        )
    return outcomes


def _write(outcomes: Sequence[Outcome], output: Path, as_json: bool) -> None:
    """Writes every experiment's files and prints one experiment in full, many as an overview."""
    for outcome in outcomes:
        write_experiment(outcome, output / outcome["experiment"])
    if as_json:
        print(json.dumps(list(outcomes), indent=2))
        return
    console = make_console()
    kinds = {outcome["experiment"]: {kind_of(outcome): outcome} for outcome in outcomes}
    sheets = [overview(kinds)] if len(kinds) > 1 else outcome_sheets(*kinds.values())
    for sheet in sheets:
        console.print(sheet.rich())
    if any(outcome["quick"] for outcome in outcomes):
        console.print(QUICK)
