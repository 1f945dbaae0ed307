"""``evergraph compare``: seeds × methods × datasets, and who is better."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from evergraph.config import Variant, check_shared, resolve
from evergraph.errors import InputError
from evergraph.files import make_folder, write_atomic, write_json
from evergraph.lab.cli import options
from evergraph.lab.cli.progress import GridProgress, make_console
from evergraph.lab.cli.runs import shared_settings
from evergraph.lab.engines import Resources
from evergraph.lab.grid import merge_runs, run_grid
from evergraph.lab.jobs import Job, make_jobs
from evergraph.lab.summary import collect_results, compare_pairs, summarise_grid
from evergraph.lab.tables import comparison_sheet, grid_sheet
from evergraph.methods import METHODS


def compare(
    output: Annotated[Path, typer.Option(help="Folder of the grid.")],
    dataset: Annotated[list[str] | None, typer.Option(help="Repeat for more. [cora]")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="NAME[:key=value,...][@label] or all; repeat.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N − 1.")] = 10,
    jobs: options.JobsOption = None,
    merge: options.MergeOption = None,
    engine: options.EngineOption = "local",
    address: options.AddressOption = None,
    gpus: options.GpusOption = 0.0,
    track: options.TrackOption = None,
    sets: options.SetOption = None,
    config: options.ConfigOption = None,
    selector: options.SelectorOption = None,
    device: options.DeviceOption = "auto",
    data_root: options.DataRootOption = None,
    classes_per_task: options.ClassesOption = None,
    split_seed: options.SplitSeedOption = None,
    order: options.OrderOption = None,
    evaluate: options.EvaluateOption = None,
    batch_size: options.BatchSizeOption = None,
    fanout: options.FanoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Compare methods over seeds; finished runs are never run again."""
    check_counts(seeds=seeds)
    check_output(output)
    resources = Resources(jobs, device, data_root, engine, address, gpus, track)
    shared = shared_settings(
        sets,
        config,
        selector=selector,
        classes_per_task=classes_per_task,
        split_seed=split_seed,
        order=order,
        evaluate=evaluate,
        batch_size=batch_size,
        fanout=fanout,
    )
    variants = parse_methods(method or ["dslr"])
    configs = [
        resolve(Variant.parse_dataset(graph), variant, seed, shared)
        for graph in dataset or ["cora"]
        for variant in variants
        for seed in range(seeds)
    ]
    check_shared(shared, [variant.name for variant in variants])
    grid = make_jobs(configs, output)
    if merge:
        merge_runs(output, merge)
    failed = run_jobs(grid, resources)
    _conclude(output, variants[0].label, as_json)
    check_finished(failed)


def _conclude(output: Path, reference: str, as_json: bool) -> None:
    """Writes and prints the summary of everything in the folder."""
    make_folder(output)
    results = collect_results(output / "runs")
    summary = summarise_grid(results)
    comparisons = compare_pairs(results, reference)
    write_json(output / "summary.json", summary)
    write_json(output / "comparisons.json", comparisons)
    sheets = [grid_sheet(summary)] + ([comparison_sheet(comparisons)] if comparisons else [])
    text = "\n\n".join(sheet.markdown() for sheet in sheets) + "\n"
    write_atomic(output / "summary.md", text.encode())
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    console = make_console()
    for sheet in sheets:
        console.print(sheet.rich())
    console.print(f"{output}/summary.json · {output}/summary.md", markup=False)


def parse_methods(words: Sequence[str]) -> list[Variant]:
    """Reads methods as written; ``all`` stands for every one that is not written, DSLR first."""
    every = sorted(METHODS, key=lambda name: name != "dslr")
    rest = [name for name in every if name not in words]
    texts = [text for word in words for text in (rest if word == "all" else [word])]
    return [Variant.parse(text) for text in texts]


def run_jobs(jobs: Sequence[Job], resources: Resources) -> list[str]:
    """Runs a grid with progress on standard error; returns the names of what failed."""
    progress = GridProgress(make_console(stderr=True), len(jobs))
    with progress.running():
        return run_grid(jobs, resources, progress.message, progress.done)


def check_finished(failed: Sequence[str]) -> None:
    """Ends a command whose jobs did not all finish."""
    if failed:
        raise InputError(
            f"Expected every job to finish (got {len(failed)} failures, first '{failed[0]}'); "
            "see the lines above and run the same command again."
        )


def check_output(output: Path) -> None:
    """Refuses an output that is not a folder."""
    if output.exists() and not output.is_dir():
        raise InputError(
            f"Expected '--output' to be a folder (got the file '{output}'); choose another."
        )


def check_counts(**counts: int | None) -> None:
    """Refuses an option below 1 that counts something."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"Expected '--{name}' of at least 1 (got {count}); raise it.")
