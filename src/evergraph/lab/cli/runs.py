"""``evergraph run`` and ``evergraph resume``: one run, from words to a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from evergraph.config import RunConfig, Variant, check_shared, resolve
from evergraph.errors import InputError
from evergraph.estimator.store import Store
from evergraph.files import write_atomic
from evergraph.lab.cli import options
from evergraph.lab.cli.progress import RunProgress, make_console
from evergraph.lab.cli.states import resume_state
from evergraph.lab.jobs import dataset_slug, slug
from evergraph.lab.runs import RunFolder, execute
from evergraph.lab.tables import accuracy_matrix, run_scores
from evergraph.lab.trackers import check_tracker, tracked


def run(
    dataset: Annotated[str, typer.Option(help="Name, or path to an npz file.")] = "cora",
    method: Annotated[str, typer.Option(help="NAME[:key=value,...][@label].")] = "dslr",
    seed: Annotated[int, typer.Option(help="Source of all randomness.")] = 0,
    sets: options.SetOption = None,
    config: options.ConfigOption = None,
    output: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    selector: options.SelectorOption = None,
    device: options.DeviceOption = "auto",
    data_root: options.DataRootOption = None,
    classes_per_task: options.ClassesOption = None,
    split_seed: options.SplitSeedOption = None,
    order: options.OrderOption = None,
    evaluate: options.EvaluateOption = None,
    batch_size: options.BatchSizeOption = None,
    fanout: options.FanoutOption = None,
    track: options.TrackOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Run one method on one dataset with one seed."""
    check_tracker(track)
    complete = options.complete_config(config)
    if complete is not None:
        if sets:
            raise InputError(
                f"Expected '--set' only without a complete '--config' (got '{sets[0]}' beside "
                f"'{config}'); edit a copy of the file instead."
            )
        carry_out(complete, output or default_folder(complete), device, data_root, as_json, track)
        return
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
    variant = Variant.parse(method)
    check_shared(shared, [variant.name])
    resolved = resolve(Variant.parse_dataset(dataset), variant, seed, shared)
    folder = output or default_folder(resolved)
    carry_out(resolved, folder, device, data_root, as_json, track)


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, or of an estimator's state.")],
    discard: Annotated[
        bool, typer.Option("--discard", help="Forget a state's unfinished change instead.")
    ] = False,
    device: options.DeviceOption = "auto",
    data_root: options.DataRootOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Continue a run after its last finished task, or finish an interrupted learn."""
    if Store(folder).exists:
        resume_state(folder, device, as_json, discard)
        return
    carry_out(RunFolder(folder).config(), folder, device, data_root, as_json)


def carry_out(
    config: RunConfig,
    folder: Path,
    device: str,
    data_root: Path | None,
    as_json: bool,
    track: str | None = None,
) -> None:
    """Executes a configuration and prints what came of it."""
    progress = RunProgress(make_console(stderr=True))
    with progress.running():
        follow = tracked(track, config, folder, progress)
        results = execute(config, folder, device=device, data_root=data_root, on_event=follow)
    write_atomic(folder / "report.md", report_text(results).encode())
    if as_json:
        print(json.dumps(results, indent=2))
        return
    console = make_console()
    console.print(accuracy_matrix(results).rich())
    console.print(run_scores(results).rich())
    seconds = results["seconds"]["total"]
    console.print(f"{seconds:.1f} s · {folder}/results.json · {folder}/report.md", markup=False)


def report_text(results: dict[str, Any]) -> str:
    """Writes a run's tables as Markdown."""
    sheets = [run_scores(results), accuracy_matrix(results)]
    return "\n\n".join(sheet.markdown() for sheet in sheets) + "\n"


def default_folder(config: RunConfig) -> Path:
    """Names a folder that no other configuration shares."""
    name = f"{dataset_slug(config)}-{slug(config.label)}-seed-{config.seed}-{config.hash[:8]}"
    return Path("runs") / name
