"""``evergraph run`` and ``evergraph resume``: one run, from words to a folder."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
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
from evergraph.lab.cli.progress import RunProgress, make_console, show, warn_unused
from evergraph.lab.folder import Job, dataset_slug, read_config, slug
from evergraph.lab.runs import Place, run_job
from evergraph.lab.tables import Sheet, accuracy_matrix, as_markdown, run_scores


@dataclass(frozen=True)
class SettingOptions:
    """Settings as a file, as options of their own and as ``--set``; the latter wins."""

    sets: options.SetOption = None
    config: Annotated[
        Path | None, typer.Option(help="A YAML file of settings, or a run's config.yaml.")
    ] = None
    selector: Annotated[str | None, typer.Option(help="Which nodes are replayed.")] = None
    stream: Annotated[
        str | None, typer.Option(help="What a task is: class (a few classes) or time (a step).")
    ] = None
    classes_per_task: Annotated[int | None, typer.Option(help="Classes per task.")] = None
    split_seed: Annotated[int | None, typer.Option(help="Fix the split whatever the seed.")] = None
    order: Annotated[
        str | None, typer.Option(help="Class order: label, alphabetical or random:SEED.")
    ] = None
    evaluate: Annotated[
        str | None,
        typer.Option(help="test, or validation: hold out 10 % of the training nodes to tune on."),
    ] = None
    batch_size: Annotated[
        str | None,
        typer.Option(help="Nodes per step: auto, full, or a number to train on sampled parts."),
    ] = None
    fanout: Annotated[int | None, typer.Option(help="Neighbours drawn per node when sampling.")] = (
        None
    )

    def file(self) -> dict[str, Any]:
        """Reads the file that ``--config`` names."""
        if self.config is None:
            return {}
        try:
            text = read_regular(self.config).decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise InputError(
                f"Expected '--config' to name a readable file (got '{self.config}': {reason}); "
                "check the path."
            ) from None
        return load_mapping(text, str(self.config))

    def shared(self) -> dict[str, Any]:
        """Joins all settings."""
        named = {key: value for key, value in vars(self).items() if value is not None}
        settings = self.file() | {key: named[key] for key in named.keys() - {"sets", "config"}}
        if self.batch_size and self.batch_size.isdigit():
            settings["batch_size"] = int(self.batch_size)
        if self.evaluate == "validation":
            settings.setdefault("validation_fraction", 0.1)
        return settings | parse_settings(self.sets or [])


def run(
    dataset: Annotated[str, typer.Option(help="Name, or path to an npz file.")] = "cora",
    method: Annotated[str, typer.Option(help="NAME[:key=value,...][@label].")] = "dslr",
    seed: Annotated[int, typer.Option(help="Source of all randomness.")] = 0,
    *,
    settings: SettingOptions,
    output: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    place: Place,
    as_printed: Annotated[
        bool, typer.Option("--as-printed", help="Settings as the paper prints them.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every setting and its origin; run nothing.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Run one method on one dataset with one seed."""
    presets: Presets = "printed" if as_printed else "tuned"
    described, origins = describe(dataset, method, seed, settings, presets)
    if explain:
        show_settings(described, origins, as_json)
    else:
        carry_out(Job(described, output or default_folder(described)), place, as_json)


def describe(
    dataset: str, method: str, seed: int, settings: SettingOptions, presets: Presets
) -> tuple[RunConfig, Mapping[str, str]]:
    """Makes the description of a run, and says where every setting comes from."""
    file = settings.file()
    if "schema_version" in file:  # complete, as a run folder's
        if settings.sets:
            raise InputError(
                f"Expected '--set' only without a complete '--config' (got '{settings.sets[0]}' "
                f"beside '{settings.config}'); edit a copy of the file instead."
            )
        return RunConfig.from_values(file), defaultdict(lambda: str(settings.config))
    shared, variant = settings.shared(), Variant.parse(method)
    check_shared(shared, [variant.name])
    config = resolve(Variant.parse_dataset(dataset), variant, seed, shared, presets)
    words = {key: value for key, value in shared.items() if file.get(key, ...) != value}
    layers = {str(settings.config): file, "--set": words, "--method": variant.options}
    return config, complete(config.dataset, config.method, layers, presets).origins


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, or of an estimator's state.")],
    discard: Annotated[
        bool, typer.Option("--discard", help="Forget a state's unfinished change instead.")
    ] = False,
    *,
    place: Place,
    as_json: options.JsonOption = False,
) -> None:
    """Continue a run after its last finished task, or finish an interrupted learn."""
    from evergraph.estimator.store import Store  # noqa: PLC0415 - a run needs none of it
    from evergraph.lab.cli.states import resume_state  # noqa: PLC0415

    if Store(folder).exists:
        resume_state(folder, place.device, as_json, discard)
        return
    carry_out(Job(read_config(folder), folder), place, as_json)


def carry_out(job: Job, place: Place, as_json: bool) -> None:
    """Runs a job in this process and prints what came of it."""
    config, folder = job.config, job.path
    warn_unused(config.method, config.unused(), config.overrides)
    progress = RunProgress(make_console(stderr=True))
    with progress.running():
        results = run_job(job, place, progress)
    scores, matrix = run_scores(results), accuracy_matrix(results)
    write_atomic(folder / "report.md", as_markdown([scores, matrix]).encode())
    line = f"{results['seconds']['total']:.1f} s · {folder}/results.json · {folder}/report.md"
    show(results, [matrix, scores], as_json, line)


def default_folder(config: RunConfig) -> Path:
    """Names a folder that no other configuration shares."""
    name = f"{dataset_slug(config)}-{slug(config.label)}-seed-{config.seed}-{config.hash[:8]}"
    return Path("runs") / name


def show_settings(config: RunConfig, origins: Mapping[str, str], as_json: bool) -> None:
    """Prints every setting with its value and its origin."""
    content = config.model_dump(mode="json")
    shown = {
        name: {
            key: {"value": value, "origin": origins[key]} for key, value in content[name].items()
        }
        for name in ("settings", *SECTIONS)
    }
    rows = [
        [key, json.dumps(about["value"]), about["origin"], name]
        for name, values in shown.items()
        for key, about in values.items()
    ]
    title = f"{config.label} on {config.dataset_name}, seed {config.seed}: {config.hash}"
    columns = ["setting", "value", "origin", "section"]
    show(shown, [Sheet(title, columns, rows, prose=("value", "origin"))], as_json)
