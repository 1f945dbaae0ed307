"""``evergraph run`` and ``evergraph resume``: one run, from words to a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from evergraph.config import (
    SECTIONS,
    Presets,
    RunConfig,
    Variant,
    check_shared,
    complete,
    load_mapping,
    parse_settings,
    resolve,
)
from evergraph.errors import InputError
from evergraph.files import read_regular, write_atomic
from evergraph.lab.cli import options
from evergraph.lab.cli.progress import RunProgress, make_console
from evergraph.lab.jobs import dataset_slug, slug
from evergraph.lab.runs import RunFolder, execute
from evergraph.lab.tables import Sheet, accuracy_matrix, run_scores
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
    as_printed: Annotated[
        bool, typer.Option("--as-printed", help="Settings as the paper prints them.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every setting and its origin; run nothing.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Run one method on one dataset with one seed."""
    if track is not None:
        check_tracker(track)
    described = complete_config(config)
    if described is not None:
        if sets:
            raise InputError(
                f"Expected '--set' only without a complete '--config' (got '{sets[0]}' beside "
                f"'{config}'); edit a copy of the file instead."
            )
        if explain:
            show_settings(described, {}, str(config), as_json)
        else:
            folder = output or default_folder(described)
            carry_out(described, folder, device, data_root, as_json, track)
        return
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
    variant = Variant.parse(method)
    check_shared(shared, [variant.name])
    presets: Presets = "printed" if as_printed else "tuned"
    resolved = resolve(Variant.parse_dataset(dataset), variant, seed, shared, presets)
    if explain:
        file = read_settings(config) if config is not None else {}
        words = {key: value for key, value in shared.items() if file.get(key, ...) != value}
        layers = {str(config): file, "--set": words, "--method": variant.options}
        origins = complete(resolved.dataset, resolved.method, layers, presets).origins
        show_settings(resolved, origins, "", as_json)
        return
    carry_out(resolved, output or default_folder(resolved), device, data_root, as_json, track)


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
    from evergraph.estimator.store import Store  # noqa: PLC0415 - a run needs none of it
    from evergraph.lab.cli.states import resume_state  # noqa: PLC0415

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
        follow = tracked(track, config, folder, progress) if track is not None else progress
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


def show_settings(
    config: RunConfig, origins: Mapping[str, str], otherwise: str, as_json: bool
) -> None:
    """Prints every setting with its value and its origin."""
    content = config.model_dump(mode="json")
    sections = {name: content[name] for name in ("settings", *SECTIONS)}
    if as_json:
        shown = {
            name: {
                key: {"value": value, "origin": origins.get(key, otherwise)}
                for key, value in values.items()
            }
            for name, values in sections.items()
        }
        print(json.dumps(shown, indent=2))
        return
    rows = [
        [key, json.dumps(value), origins.get(key, otherwise), name]
        for name, values in sections.items()
        for key, value in values.items()
    ]
    title = f"{config.label} on {config.dataset_name}, seed {config.seed}: {config.hash}"
    columns = ["setting", "value", "origin", "section"]
    make_console().print(Sheet(title, columns, rows, prose=("value", "origin")).rich())


def read_text(path: Path) -> str:
    """Reads the file that ``--config`` names."""
    try:
        return read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(
            f"Expected '--config' to name a readable file (got '{path}': {reason}); check the path."
        ) from None


def complete_config(path: Path | None) -> RunConfig | None:
    """Returns the run that a file describes completely, as a run folder's does, or None."""
    if path is None:
        return None
    text = read_text(path)
    if "schema_version" not in load_mapping(text, str(path)):
        return None
    return RunConfig.from_yaml(text, str(path))


def read_settings(path: Path) -> dict[str, Any]:
    """Reads the settings in the file that ``--config`` names."""
    return load_mapping(read_text(path), str(path))


def shared_settings(
    sets: Sequence[str] | None,
    config: Path | None,
    *,
    selector: str | None = None,
    classes_per_task: int | None = None,
    split_seed: int | None = None,
    order: str | None = None,
    evaluate: str | None = None,
    batch_size: str | None = None,
    fanout: int | None = None,
) -> dict[str, Any]:
    """Joins a settings file, named options and ``--set``; the latter wins."""
    settings: dict[str, Any] = {}
    if config is not None:
        settings |= read_settings(config)
    named = {
        "selector": selector,
        "classes_per_task": classes_per_task,
        "split_seed": split_seed,
        "order": order,
        "evaluate": evaluate,
        "batch_size": int(batch_size) if batch_size and batch_size.isdigit() else batch_size,
        "fanout": fanout,
    }
    settings |= {key: value for key, value in named.items() if value is not None}
    if evaluate == "validation":
        settings.setdefault("validation_fraction", 0.1)
    return settings | parse_settings(sets or [])
