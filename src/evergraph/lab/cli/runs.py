"""``evergraph run`` and ``evergraph resume``: one run, from words to a folder, and its progress."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import progress
from rich.console import Console
from rich.text import Text

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
from evergraph.events import Event, Stage, TaskDone, TaskStarted
from evergraph.files import read_regular, write_atomic
from evergraph.lab import tables
from evergraph.lab.cli.words import Workers
from evergraph.lab.folder import Run, dataset_slug, slug
from evergraph.lab.runs import Place, SetOption, execute
from evergraph.team import Team

#: Least seconds between two updates of the loss, whose reading waits for the device.
UPDATE_INTERVAL = 0.1
#: Seconds between two lines of progress in a pipe.
LINE_INTERVAL = 10.0
PrintedOption = Annotated[bool, "Use the paper's settings to the letter."]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]


@dataclass(frozen=True)
class SettingOptions:
    """Settings as a file, as options of their own and as ``--set``; the latter wins."""

    sets: SetOption = None
    config: Annotated[Path | None, "YAML file of settings, or a run's config.yaml."] = None
    selector: Annotated[str | None, "How replayed nodes are chosen; see 'evergraph methods'."] = (
        None
    )
    stream: Annotated[str | None, "class, time, blurry:P, task-free[:N] or domain[:K]."] = None
    classes_per_task: Annotated[int | None, "Number of classes in a task."] = None
    split_seed: Annotated[int | None, "Seed of the split, instead of --seed."] = None
    order: Annotated[str | None, "Class order: label, alphabetical or random:SEED."] = None
    evaluate: Annotated[
        str | None,
        "Evaluate on test, or on validation (10 % of the training nodes, for tuning).",
    ] = None
    batch_size: Annotated[
        str | None, "Nodes per step: auto, full, or a number, which samples neighbourhoods."
    ] = None
    fanout: Annotated[int | None, "Neighbours drawn per node and layer when sampling."] = None

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
    dataset: Annotated[str, "A dataset's name, or the path of an .npz file."] = "cora",
    method: Annotated[str, "NAME[:key=value,...][@label]."] = "dslr",
    seed: Annotated[int, "Seed of all randomness."] = 0,
    *,
    settings: SettingOptions,
    output: Annotated[Path | None, "Folder for the run. [a new one in runs/]"] = None,
    place: Place,
    workers: Workers,
    as_printed: PrintedOption = False,
    explain: Annotated[bool, "Show every setting and where it comes from; run nothing."] = False,
    as_json: JsonOption = False,
) -> None:
    """Run one method on one dataset with one seed."""
    presets: Presets = "printed" if as_printed else "tuned"
    described, origins = describe(dataset, method, seed, settings, presets)
    if not explain:
        about = f"{slug(described.label)}-seed-{described.seed}-{described.hash[:8]}"
        usual = Path("runs") / f"{dataset_slug(described)}-{about}"  # no other run has it
        carry_out(Run(output or usual, described), place, workers, as_json)
        return
    content = described.model_dump(mode="json")
    shown = {
        name: {key: {"value": v, "origin": origins[key]} for key, v in content[name].items()}
        for name in ("settings", *SECTIONS)
    }
    rows = [
        [key, json.dumps(found["value"]), found["origin"], name]
        for name, values in shown.items()
        for key, found in values.items()
    ]
    title = f"{described.label} on {described.dataset_name}, seed {described.seed}"
    columns = ["setting", "value", "origin", "section"]
    sheet = tables.Sheet(f"{title}: {described.hash}", columns, rows, prose=("value", "origin"))
    tables.show(shown, [sheet], as_json)


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
    discard: Annotated[bool, "Drop the unfinished change of a state instead."] = False,
    *,
    place: Place,
    workers: Workers,
    as_json: JsonOption = False,
) -> None:
    """Continue a run after its last finished task, or finish an interrupted 'learn'."""
    from evergraph.estimator.store import Store  # noqa: PLC0415 - a run needs none of it
    from evergraph.lab.cli.states import resume_state  # noqa: PLC0415

    if Store(folder).exists:
        resume_state(folder, place.device, workers, as_json=as_json, discard=discard)
        return
    if discard:
        raise InputError(
            f"Expected '--discard' with an estimator's state (got '{folder}', which is none); "
            "leave it out."
        )
    carry_out(Run(folder), place, workers, as_json)


def carry_out(run: Run, place: Place, workers: Workers, as_json: bool) -> None:
    """Does a run in this process, or in several workers, and prints what came of it."""
    if workers.are_wanted:
        workers.launch()
        return
    config, folder, team = run.config, run.path, Team.join()
    if team.leads:
        tables.warn_unused(config.method, config.unused(), config.overrides)
    shown = RunProgress(tables.make_console(stderr=True))
    with shown.running():
        results = execute(run, place, shown, team=team)
    team.leave()
    if not team.leads:
        return
    scores, matrix = tables.run_scores(results), tables.accuracy_matrix(results)
    write_atomic(folder / "report.md", tables.as_markdown([scores, matrix]).encode())
    line = f"{results['seconds']['total']:.1f} s · {folder}/results.json · {folder}/report.md"
    tables.show(results, [matrix, scores], as_json, line)


class TimeLeft(progress.ProgressColumn):
    """Estimates the time left from all that was done, and how long it took.

    Rich's own column looks back half a minute, in which a grid may not finish one job. What was
    there before (``skipped``) cost nothing and tells nothing, nor does the time in which workers
    were loading (``loading``).
    """

    max_refresh = 0.5

    def render(self, task: progress.Task) -> Text:
        """Shows hours, minutes and seconds as soon as something is done."""
        done = task.completed - task.fields.get("skipped", 0)
        if done <= 0 or task.total is None or task.elapsed is None:
            return Text("starting", style="progress.remaining")
        elapsed = task.elapsed - task.fields.get("loading", 0.0)
        left = max(task.total - task.completed, 0) * elapsed / done
        return Text(str(timedelta(seconds=round(left))), style="progress.remaining")


class Bars:
    """What every command that shows progress has: bars, or none in a pipe."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.plain = not console.is_terminal
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            TimeLeft(),
            progress.TextColumn("{task.fields[note]}"),
            console=console,
            disable=self.plain,
        )

    def running(self) -> AbstractContextManager[object]:
        """Keeps the bars on the screen while the work lasts."""
        return self.bar


class RunProgress(Bars):
    """Shows one run: a bar per task with loss and time left, and accuracy when it is done.

    A ``change`` of an estimator's state is the last of its tasks.
    """

    def __init__(self, console: Console, *, change: bool = False) -> None:
        super().__init__(console)
        self.change = change
        self.last = 0.0
        self.current: Any = None
        self.since = self.line = time.monotonic()  # of the present task, of the last line
        self.told = False  # how the run is trained

    def __call__(self, event: Event) -> None:
        """Takes an event of the training loop."""
        if isinstance(event, TaskStarted):
            if not self.told:
                self.told = True
                self.console.print(f"{event.mode}: {event.reason}", highlight=False)
            step, self.since = event.task + 1, time.monotonic()
            title = f"learning step {step}" if self.change else f"task {step}/{event.num_tasks}"
            if self.current is None or not self.change:
                self.current = self.bar.add_task(title, total=None, note="")
            self.bar.update(self.current, description=title)
            if self.plain:
                new = tables.counted(len(event.classes), "new class", "new classes")
                seen = f"{event.num_nodes:,} nodes, {event.num_edges:,} edges so far"
                self.console.print(f"{title}: {new}, {seen}")
        elif isinstance(event, TaskDone):
            mean, spent = sum(event.row) / len(event.row), sum(event.seconds.values())
            self.bar.update(self.current, total=1, completed=1, note=f"accuracy {mean:.2f} %")
            if self.plain:
                row = " ".join(f"{value:.2f}" for value in event.row)
                text = f"  accuracy on tasks so far: {row} (mean {mean:.2f}), {spent:.1f} s"
                self.console.print(text)
        elif isinstance(event, Stage):
            self.stage(event.stage, event.done, event.total)
        elif self.plain:
            self.stage(event.stage, event.epoch + 1, event.num_epochs)
        elif time.monotonic() - self.last >= UPDATE_INTERVAL or event.epoch == 0:
            self.last = time.monotonic()
            note, done = f"{event.stage} · loss {float(event.loss):.3f}", event.epoch + 1
            part: dict[str, Any] = {"total": event.num_epochs, "completed": done}
            if event.stage != "classify":  # the bar is of that stage
                note, part = f"{note} · {done}/{event.num_epochs}", {}
            self.bar.update(self.current, note=note, **part)

    def stage(self, name: str, done: int = 0, total: int | None = None) -> None:
        """Shows what is being done, and how much of it if that is known; in a pipe now and then."""
        if self.current is None:
            title = "change" if self.change else ""
            self.current = self.bar.add_task(title, total=None, note="")
        self.bar.update(self.current, total=total, completed=done, note=name)
        if self.plain and (now := time.monotonic()) - self.line >= LINE_INTERVAL:
            self.line, text = now, f"  {name}"
            if total and done:
                left = timedelta(seconds=round((now - self.since) * (total - done) / done))
                text += f" {done}/{total}, {left} left"
            self.console.print(text, highlight=False)
