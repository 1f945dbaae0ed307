"""One run: from a configuration to a finished folder, resumable task by task."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import torch
from typer import Option

from evergraph import __version__
from evergraph.config import SCHEMA_VERSION, RunConfig
from evergraph.device import pick_device
from evergraph.errors import InputError, unknown_name
from evergraph.events import OnEvent, TaskDone
from evergraph.files import write_atomic, write_json
from evergraph.lab.diagnostics import Diagnostics
from evergraph.lab.folder import Run
from evergraph.lab.trackers import TRACKERS, Tracker
from evergraph.methods import Method
from evergraph.metrics import scores, stream_scores
from evergraph.stream import Graph, TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.team import ALONE, Team
from evergraph.train import Keeper, Learner, train

#: Least seconds between two checkpoints of a trial: writing one takes longer than a short task.
TRIAL_CHECKPOINT = 5.0
Device = Annotated[str, "Device to use: auto, cpu or cuda."]
SetOption = Annotated[
    list[str] | None, Option("--set", help="Change a setting, key=value; repeatable.")
]


DataRoot = Annotated[
    Path | None,
    Option(help="Folder that holds datasets.", envvar="EVERGRAPH_DATA", show_envvar=True),
]


@dataclass(frozen=True)
class Place:
    """Where a run takes place; its fields are options of the command."""

    device: Device = "auto"
    data_root: DataRoot = None
    track: Annotated[str | None, "Also log to tensorboard or mlflow."] = None

    def __post_init__(self) -> None:
        if self.track is not None and self.track not in TRACKERS:
            raise unknown_name("tracker", self.track, TRACKERS)
        pick_device(self.device)


@lru_cache(maxsize=1)
def graph_of(dataset: str, data_root: Path | None, **options: Any) -> Graph:
    """Loads a graph and keeps it, for the jobs of a worker mostly share it."""
    return load_graph(dataset, data_root, options or None)


def execute(
    run: Run,
    place: Place | None = None,
    on_event: OnEvent | None = None,
    graph: Graph | None = None,
    team: Team = ALONE,
) -> dict[str, Any]:
    """Does a run in this process, or continues it, and returns its results.

    A finished run is not run again. A run that was killed continues after its last finished
    task, to the same bits. ``graph`` saves loading it when it is at hand already. A trial, one
    of the many runs of a search, keeps its results without diagnostics and events, and short tasks
    leave no checkpoint. Without a place it is the CPU. Of several workers that do it together the
    first one writes.
    """
    config, place = run.config, place or Place("cpu")
    if place.track is not None:
        on_event = Tracker(place.track, config, run.path, on_event)
    method, device = config.make_method(), pick_device(place.device)
    graph = graph or load_graph(config.dataset, place.data_root, config.dataset_options or None)
    stream = TaskStream(graph, config.protocol, config.seed)
    check_settings(config, stream, method)
    surroundings = environment(device)  # asks other programs: before anything to interrupt
    finished: dict[str, Any] | None = team.tell(run.claim() if team.leads else None)
    learner, diagnostics, done = Learner(method), Diagnostics(stream), list[dict[str, Any]]()
    if finished is None:
        done = run.load_checkpoint(learner, device)
    if any(one["graph"] != stream.fingerprint for one in ([finished] if finished else done)):
        raise InputError(
            f"Expected '{config.dataset}' to be the graph that '{run.path}' began with (got other "
            "contents); restore the graph or choose another --output."
        )
    if finished is not None:
        return finished
    for record in done:
        diagnostics.restore(record["embeddings"])
    if team.leads:
        write_json(run.path / "environment.json", surroundings | {"workers": team.size})
    how = (config.model, config.training)
    keeper = None if run.trial else Keeper(run.path / "descent.safetensors")
    events = train(learner, stream, *how, seed=config.seed, device=device, team=team, keeper=keeper)
    saved = time.monotonic()
    with closing(events):  # also where a consumer of events fails
        for event in events:
            if isinstance(event, TaskDone):
                kept = {} if run.trial else diagnostics.after_task(learner)
                done.append({"graph": stream.fingerprint, **event.__dict__, "embeddings": kept})
                late = time.monotonic() - saved >= TRIAL_CHECKPOINT
                last = learner.next_task == stream.num_tasks
                if team.leads and not last and (late or not run.trial):
                    run.save_checkpoint(learner, done)
                    saved = time.monotonic()
                if team.leads and not run.trial:
                    told = [{k: v for k, v in part.items() if k != "embeddings"} for part in done]
                    lines = "".join(json.dumps(part) + "\n" for part in told)
                    write_atomic(run.path / "events.jsonl", lines.encode())
            if on_event is not None:
                on_event(event)
    results = {}
    if team.leads:
        results = summarise(config, stream, done, diagnostics.result)
        write_json(run.path / "results.json", results)
        (run.path / "descent.safetensors").unlink(missing_ok=True)
    team.wait()  # nobody leaves before it is written
    return results


def summarise(
    config: RunConfig, stream: TaskStream, done: list[dict[str, Any]], diagnostics: dict[str, Any]
) -> dict[str, Any]:
    """Puts the results of a finished run together, in the format of ``results.json``."""
    matrix = [record["row"] for record in done]
    by_task = scores(matrix)
    task_aware = [record["row_task_incremental"] for record in done]
    classes = [record["class_row"] for record in done]
    learned_at = [task.index for task in stream.tasks for _ in task.classes]
    stages = sorted({stage for record in done for stage in record["seconds"]})
    seconds = {stage: sum(r["seconds"].get(stage, 0.0) for r in done) for stage in stages}
    told = {}
    if stream.protocol.kind != "class":  # known classes come again
        seen, before = ([record[key] for record in done] for key in ("seen", "before"))
        rows = {"steps": list(stream.step_names), "seen_by_step": seen, "before": before}
        told = {"stream": rows | stream_scores(matrix, seen, before).__dict__}
    return {
        "schema_version": SCHEMA_VERSION,
        "dataset": config.dataset_name,
        "method": config.method,
        **identify(config),
        "graph": stream.fingerprint,
        "seed": config.seed,
        "evaluated_on": config.protocol.evaluate,
        "class_names": list(stream.class_names),
        "tasks": [list(task.classes) for task in stream.tasks],
        "accuracy_matrix": matrix,
        "pm": by_task.pm,
        "fm": by_task.fm,
        "current": by_task.current,
        "task_incremental": {"accuracy_matrix": task_aware, **scores(task_aware).__dict__},
        "by_class": {"accuracy_matrix": classes, **scores(classes, learned_at).__dict__},
        "probability": done[-1]["probability"],
        "seconds": {**seconds, "total": sum(seconds.values())},
        "memory_bytes": max(record["memory_bytes"] for record in done),
        "memory_bytes_without_graph": max(one["memory_bytes_without_graph"] for one in done),
        **told,
        "reports": [record["report"] for record in done],
        "diagnostics": diagnostics,
    }


def identify(config: RunConfig) -> dict[str, Any]:
    """Returns what results say of a configuration; releases may name or hash it otherwise."""
    return {
        "label": config.label,
        "overrides": config.overrides,
        "protocol_hash": config.protocol.hash,
        "config_hash": config.hash,
        "variant_hash": config.variant_hash,
        "settings": config.settings,
    }


def check_settings(config: RunConfig, stream: TaskStream, method: Method[Any]) -> None:
    """Refuses a buffer too small for a node of every class, and missing validation nodes."""
    size = config.settings.get("buffer_size")
    if size is not None and size < stream.num_classes:
        raise InputError(
            f"Expected 'buffer_size' of at least the number of classes, {stream.num_classes} "
            f"(got {size}); raise it."
        )
    if "validation" in method.needs and config.protocol.validation_fraction == 0:
        raise InputError(
            f"Expected 'validation_fraction' above 0 for {type(method).__name__}, which needs "
            "validation nodes (got 0); set it to 0.1."
        )


@cache
def environment(device: torch.device) -> dict[str, Any]:
    """Describes where the run took place; no commit where the source is not a checkout."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    packages = ("torch", "torch-geometric", "numpy", "scikit-learn", "safetensors")
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = None
    with suppress(OSError, subprocess.SubprocessError):
        commit = subprocess.check_output(git, stderr=subprocess.DEVNULL, text=True, timeout=5)
    return {
        "python": sys.version.split()[0],
        "packages": {"evergraph": __version__} | {name: installed(name) for name in packages},
        "commit": commit and commit.strip(),
        "platform": platform.platform(),
        "device": device.type,
        "device_name": name,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


@cache
def installed(package: str) -> str | None:
    """Returns the version of a package that is installed, None for none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
