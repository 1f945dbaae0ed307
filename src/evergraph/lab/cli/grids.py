"""``evergraph compare``: seeds × methods × datasets, and who is better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from evergraph.config import RunConfig
from evergraph.errors import InputError
from evergraph.lab.api import summarise
from evergraph.lab.cli import options
from evergraph.lab.cli.progress import GridProgress, make_console, show
from evergraph.lab.cli.runs import SettingOptions
from evergraph.lab.engines import Resources
from evergraph.lab.folder import Job, check_output, make_jobs
from evergraph.lab.grid import check_finished, grid_configs, merge_runs, run_grid


def compare(
    output: Annotated[Path, typer.Option(help="Folder of the grid.")],
    dataset: Annotated[list[str] | None, typer.Option(help="Repeat for more. [cora]")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="NAME[:key=value,...][@label] or all; repeat.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N − 1.")] = 10,
    *,
    resources: Resources,
    settings: SettingOptions,
    merge: options.MergeOption = None,
    as_printed: Annotated[
        bool, typer.Option("--as-printed", help="Settings as the paper prints them.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compare methods over seeds; finished runs are never run again.

    With --merge and neither datasets, methods nor settings, what is there is compared.
    """
    check_at_least(1, seeds=seeds)
    check_output(output)
    shared, configs = settings.shared(), list[RunConfig]()
    if dataset or method or shared or not merge:
        wanted = (dataset or ["cora"], method or ["dslr"], seeds, shared)
        configs = grid_configs(*wanted, "printed" if as_printed else "tuned")
    jobs = make_jobs(configs, output)
    merge_runs(output, merge or [])
    failed = run_jobs(jobs, resources) if jobs else {}
    summary, sheets = summarise(output, configs[0].label if configs else None)
    show(summary, sheets, as_json, f"{output}/summary.json · {output}/summary.md")
    check_finished(failed)


def run_jobs(jobs: Sequence[Job], resources: Resources) -> dict[str, str]:
    """Runs a grid with progress on standard error; returns why some failed, by their names."""
    progress = GridProgress(make_console(stderr=True), len(jobs))
    with progress.running():
        return run_grid(jobs, resources, progress.message, progress.done)


def check_at_least(least: int, **counts: int | None) -> None:
    """Refuses an option below what it must be at least."""
    for name, count in counts.items():
        if count is not None and count < least:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"Expected '{option}' of at least {least} (got {count}); raise it.")
