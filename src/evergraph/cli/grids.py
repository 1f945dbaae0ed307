"""``evergraph compare``: seeds × methods × datasets, and who is better."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from evergraph.cli import options
from evergraph.cli.console import make_console
from evergraph.cli.progress import GridProgress
from evergraph.errors import InputError
from evergraph.experiments.config import Variant, check_shared, resolve
from evergraph.experiments.environment import pick_device
from evergraph.experiments.files import make_folder, write_atomic, write_json
from evergraph.experiments.grid import make_cells, merge_runs, run_grid
from evergraph.experiments.summary import collect_results, compare_pairs, summarise_grid
from evergraph.methods import METHODS
from evergraph.report import comparison_sheet, grid_sheet


def compare(
    output: Annotated[Path, typer.Option(help="Folder of the grid.")],
    dataset: Annotated[list[str] | None, typer.Option(help="Repeat for more. [cora]")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="NAME[:key=value,...][@label] or all; repeat.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N − 1.")] = 10,
    jobs: Annotated[
        int | None, typer.Option(help="Worker processes. [one per core; one on a GPU]")
    ] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="Take finished runs from this folder; repeat.")
    ] = None,
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
    """Compare methods over seeds; finished cells are never run again."""
    check_output(output)
    check_counts(seeds=seeds, jobs=jobs)
    shared = options.shared_settings(
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
    graphs = [Variant.parse_dataset(text) for text in dataset or ["cora"]]
    place = pick_device(device)
    configs = [
        resolve(graph, variant, seed, shared)
        for graph in graphs
        for variant in variants
        for seed in range(seeds)
    ]
    check_shared(shared, [variant.name for variant in variants])
    cells = make_cells(configs, output)
    if merge:
        merge_runs(output, merge)
    progress = GridProgress(make_console(stderr=True), len(cells))
    with progress.running():
        failed = run_grid(
            cells,
            jobs=jobs or default_jobs(place),
            device=device,
            data_root=data_root,
            on_message=progress.message,
            on_cell=progress.cell,
        )
    _conclude(output, variants[0].label, as_json)
    check_finished(failed)


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


def check_finished(failed: Sequence[str]) -> None:
    """Ends a command whose cells did not all finish."""
    if failed:
        raise InputError(
            f"Expected every cell to finish (got {len(failed)} failures, first '{failed[0]}'); "
            "see the lines above and run the same command again."
        )


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


def default_jobs(place: torch.device) -> int:
    """Returns one worker per core, or one on a GPU.

    Recorded steps of several processes take turns there: fifteen processes got a quarter of
    the work of one done (decision 0010).
    """
    return 1 if place.type == "cuda" else os.cpu_count() or 1


def parse_methods(words: Sequence[str]) -> list[Variant]:
    """Reads methods as written; ``all`` stands for every one there is."""
    texts = [text for word in words for text in (METHODS if word == "all" else [word])]
    return [Variant.parse(text) for text in texts]
