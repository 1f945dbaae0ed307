"""``evergraph experiments``, ``reproduce`` and ``field``: the paper's claims, all methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from evergraph.errors import InputError
from evergraph.lab.api import check_finished, merge_runs, runs_by_hash
from evergraph.lab.cli.grids import MergeOption, run_jobs
from evergraph.lab.cli.runs import JsonOption
from evergraph.lab.engines import Resources, check_at_least
from evergraph.lab.field import add_rows, field_data, field_sheet, read_field, read_rows
from evergraph.lab.folder import check_output, finished_runs, make_runs
from evergraph.lab.leaks import leaks_by_key
from evergraph.lab.page import write_page
from evergraph.lab.paper.experiments import EXPERIMENTS, find_experiments
from evergraph.lab.paper.outcome import Outcome
from evergraph.lab.paper.reproduce import (
    Part,
    Request,
    conclude,
    measure_leaks,
    needed_runs,
    plan,
)
from evergraph.lab.report import document
from evergraph.lab.report.figures import check_matplotlib
from evergraph.lab.report.sheets import outcome_sheets, reservations
from evergraph.lab.summary import grouped
from evergraph.lab.tables import Sheet, make_console, show


def experiments(as_json: JsonOption = False) -> None:
    """List the experiments of the paper."""
    every = EXPERIMENTS.values()
    entries = [
        {"id": e.id, "title": e.title, "paper": e.source, "datasets": list(e.datasets)}
        for e in every
    ]
    rows = [[e.id, e.source, e.title] for e in every]
    columns = ["experiment", "in the paper", "what it shows"]
    show(entries, [Sheet("Experiments", columns, rows, prose=tuple(columns))], as_json)


def reproduce(
    output: Annotated[Path, "Folder for runs and outcomes."],
    experiment: Annotated[str | None, typer.Argument(help="An experiment's id, or all.")] = None,
    *,
    request: Request,
    merge: MergeOption = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Say how many runs are needed, and run none.")
    ] = False,
    document_to: Annotated[
        Path | None,
        typer.Option("--document", help="Write everything found in --output to this file."),
    ] = None,
    beside: Annotated[
        Path | None, "Folder of an --as-printed reproduction, for a column of the document."
    ] = None,
    again: Annotated[
        Path | None, "Folder of a --first-seed reproduction, for a column of the document."
    ] = None,
    published: Annotated[
        Path | None, "Write files from published results (docs/results); run nothing."
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Reproduce a table or figure of the paper; runs are shared between experiments."""
    check_at_least(1, seeds=request.seeds)
    check_at_least(0, first_seed=request.first_seed)
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
    if request.as_printed and chosen and not any(one.has_settings for one in chosen):
        raise InputError(
            "Expected '--as-printed' with an experiment of the paper that trains and is not "
            f"about time alone (got '{experiment}'); leave the option out."
        )
    if chosen and published is not None:
        check_matplotlib()
        _write(_published(published, [one.id for one in chosen]), output, as_json)
    elif chosen:
        check_matplotlib()  # says now, not after the runs, if it is missing
        parts = plan(chosen, request)
        if plan_only:
            elsewhere = [run for source in merge or [] for run in finished_runs(source)]
            finished = {run.config.hash for run in elsewhere} | set(runs_by_hash(output))
            finished |= set(leaks_by_key(output))
            _tell_plan(parts, finished)
            return
        failed = _run(parts, output, merge or [], request)
        with make_console(stderr=True).status("Measuring leaks"):
            measure_leaks(parts, output, request)
        found = {**runs_by_hash(output), **leaks_by_key(output)}
        _write(conclude(parts, found, request), output, as_json)
        check_finished(failed)
    if document_to is not None:
        document.publish(output, document_to, beside, again)
        make_console(stderr=True).print(str(document_to), markup=False, soft_wrap=True)


def _tell_plan(parts: Sequence[Part], seen: set[str]) -> None:
    """Shows per experiment how many runs it needs, and how many no earlier one has brought."""
    rows = []
    for name, group in grouped(parts, lambda part: part.experiment.id).items():
        mine = {need.key for part in group for need in part.needs.values()}
        new = mine - seen
        seen |= new
        rows.append([name, str(len(mine)), str(len(new))])
    every = {need.key for part in parts for need in part.needs.values()}
    rows.append(["together", str(len(every)), str(sum(int(row[2]) for row in rows))])
    show(None, [Sheet("Runs", ["experiment", "runs", "still to run"], rows)], as_json=False)


def _run(
    parts: Sequence[Part], output: Path, merge: Sequence[Path], resources: Resources
) -> dict[str, str]:
    """Runs what is neither here nor in the folders to merge."""
    finished = runs_by_hash(output)
    missing = [config for config in needed_runs(parts) if config.hash not in finished]
    merge_runs(output, merge, missing)
    jobs = [run for run in make_runs(missing, output) if not run.is_finished]
    return run_jobs(jobs, resources) if jobs else {}


def _published(folder: Path, names: Sequence[str]) -> list[Outcome]:
    """Finds what was published of some experiments with our settings."""
    found = document.read_results(folder)
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
        document.write_experiment(outcome, output / outcome["experiment"])
    quick = any(outcome["quick"] for outcome in outcomes)
    kinds = {outcome["experiment"]: {document.kind_of(outcome): outcome} for outcome in outcomes}
    sheets = [document.overview(kinds)] if len(kinds) > 1 else outcome_sheets(*kinds.values())
    if len(kinds) > 1:
        sheets[0].title += reservations(outcomes)
    files = ", ".join(f"{output / name}/" for name in kinds) if len(kinds) < 4 else f"{output}/"
    show(outcomes, sheets, as_json, document.QUICK if quick else "", files)


def field(
    folder: Annotated[Path, "Folder with the rows, one file each."] = Path("docs/results/field"),
    add: Annotated[list[Path] | None, "A row's JSON file, or a folder of runs; repeatable."] = None,
    replace: Annotated[bool, "Let new rows replace those of the same name."] = False,
    page: Annotated[Path | None, "Write an HTML page that can be sorted and filtered."] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the table of all methods, or add rows to it, which are checked first."""
    check_output(folder, "--folder")
    rows = [row for source in add or [] for row in read_rows(source)]
    written = add_rows(folder, rows, replace=replace)
    found = read_field(folder)
    if not found:
        raise InputError(
            f"Expected rows in '{folder}' (got none); add some with --add, or check the path."
        )
    data = field_data(found.values())
    if page is not None:
        write_page(data, page, "field")
    told = [*map(str, written), *([str(page)] if page is not None else [])]
    show(data, [field_sheet(data)], as_json, *told)
