"""One run: from a configuration to a finished folder, resumable task by task."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import torch
from typer import Option

from evergraph import __version__
from evergraph.config import SCHEMA_VERSION, RunConfig
from evergraph.errors import InputError, unknown_name
from evergraph.events import Event, TaskDone
from evergraph.files import write_atomic, write_json
from evergraph.lab.diagnostics import Diagnostics
from evergraph.lab.folder import Job, check_restored, load_checkpoint, save_checkpoint
from evergraph.lab.trackers import TRACKERS, Tracker
from evergraph.methods import Method
from evergraph.metrics import scores, stream_scores
from evergraph.nn.device import pick_device
from evergraph.stream import Graph, TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.train import Learner, train

OnEvent = Callable[[Event], None]
#: Least seconds between two checkpoints of a trial: writing one takes longer than a short task.
TRIAL_CHECKPOINT = 5.0
Device = Annotated[str, "Device to use: auto, cpu or cuda."]
SetOption = Annotated[
    list[str] | None, Option("--set", help="Change a setting, key=value; repeatable.")
]


@dataclass(frozen=True)
class Place:
    """Where a run takes place; its fields are options of the command."""

    device: Device = "auto"
    data_root: Annotated[
        Path | None,
        Option(help="Folder that holds datasets.", envvar="EVERGRAPH_DATA", show_envvar=True),
    ] = None
    track: Annotated[str | None, "Also log to tensorboard or mlflow."] = None

    def __post_init__(self) -> None:
        if self.track is not None and self.track not in TRACKERS:
            raise unknown_name("tracker", self.track, TRACKERS)
        pick_device(self.device)


def run_job(
    job: Job,
    place: Place,
    on_event: OnEvent | None = None,
    *,
    keep_graph: bool = False,
) -> dict[str, Any]:
    """Runs one job in this process, or continues it after its last finished task.

    The jobs of a worker mostly share their graph: with ``keep_graph`` the last one is kept.
    """
    options = tuple(job.config.dataset_options.items())
    if place.track is not None:
        on_event = Tracker(place.track, job.config, job.path, on_event)
    return execute(
        job.config,
        job.path,
        device=place.device,
        data_root=place.data_root,
        on_event=on_event,
        graph=_load(job.config.dataset, options, place.data_root) if keep_graph else None,
        trial=job.trial,
    )


@lru_cache(maxsize=1)
def _load(dataset: str, options: tuple[tuple[str, Any], ...], data_root: Path | None) -> Graph:
    return load_graph(dataset, data_root, dict(options) or None)


def execute(
    config: RunConfig,
    path: Path,
    *,
    device: str = "cpu",
    data_root: Path | None = None,
    on_event: OnEvent | None = None,
    graph: Graph | None = None,
    trial: bool = False,
) -> dict[str, Any]:
    """Runs a configuration in a folder, or continues it, and returns its results.

    A finished run is not run again. A run that was killed continues after its last finished
    task, to the same bits. ``graph`` saves loading it when it is at hand already. A ``trial``, one
    of the many runs of a search, keeps its results without diagnostics and events, and short tasks
    leave no checkpoint.
    """
    checkpoint = path / "checkpoint"
    method = config.make_method()
    place = pick_device(device)
    graph = graph or load_graph(config.dataset, data_root, config.dataset_options or None)
    stream = TaskStream(graph, config.protocol, config.seed)
    check_settings(config, stream, method)
    surroundings = environment(place)  # asks other programs: before there is anything to interrupt
    finished = Job(config, path).claim()
    if finished is not None:
        check_graph(finished["graph"], stream, config.dataset, path)
        return finished
    learner = Learner(method)
    diagnostics = Diagnostics(stream)
    done = load_checkpoint(checkpoint, learner, config.model, place)
    if done:
        check_restored(learner, done, stream, checkpoint)
    for record in done:
        check_graph(record["graph"], stream, config.dataset, path)
        diagnostics.restore(record["embeddings"])
    write_json(path / "environment.json", surroundings)
    events = train(learner, stream, config.model, config.training, seed=config.seed, device=place)
    saved = time.monotonic()
    with closing(events):  # also where a consumer of events fails
        for event in events:
            if isinstance(event, TaskDone):
                kept = {} if trial else diagnostics.after_task(learner)
                record = {"graph": stream.fingerprint, **event.__dict__, "embeddings": kept}
                done.append(record)
                late = time.monotonic() - saved >= TRIAL_CHECKPOINT
                if learner.next_task < stream.num_tasks and (late or not trial):
                    save_checkpoint(checkpoint, learner, done)
                    saved = time.monotonic()
                if not trial:
                    told = [{k: v for k, v in part.items() if k != "embeddings"} for part in done]
                    lines = "".join(json.dumps(part) + "\n" for part in told)
                    write_atomic(path / "events.jsonl", lines.encode())
            if on_event is not None:
                on_event(event)
    results = summarise(config, stream, done, diagnostics.result)
    write_json(path / "results.json", results)
    return results


def check_graph(fingerprint: str, stream: TaskStream, dataset: str, path: Path) -> None:
    """Refuses to continue a run on a graph that is not the one it began with."""
    if fingerprint != stream.fingerprint:
        raise InputError(
            f"Expected '{dataset}' to be the graph that '{path}' began with (got "
            "other contents); restore the graph or choose another --output."
        )


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
    counted = [record.get("memory_bytes_without_graph") for record in done]  # 0.1.0 did not
    alone = [count for count in counted if count is not None]
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
        "probability": done[-1].get("probability", {}),
        "seconds": {**seconds, "total": sum(seconds.values())},
        "memory_bytes": max(record["memory_bytes"] for record in done),
        "memory_bytes_without_graph": max(alone) if len(alone) == len(done) else None,
        **along_the_stream(stream, done),
        "reports": [record["report"] for record in done],
        "diagnostics": diagnostics,
    }


def along_the_stream(stream: TaskStream, done: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what is told of streams in which known classes come again, under one key."""
    if stream.protocol.kind == "class":
        return {}
    seen, before = ([record[key] for record in done] for key in ("seen", "before"))
    found = stream_scores([record["row"] for record in done], seen, before)
    rows = {"steps": list(stream.step_names), "seen_by_step": seen, "before": before}
    return {"stream": rows | found.__dict__}


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


def environment(device: torch.device) -> dict[str, Any]:
    """Describes where the run took place."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    packages = ("torch", "torch-geometric", "numpy", "scikit-learn", "safetensors")
    return {
        "python": sys.version.split()[0],
        "packages": {"evergraph": __version__} | {name: installed(name) for name in packages},
        "commit": _commit(),
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


@cache
def _commit() -> str | None:
    """Returns the commit of the source tree, None when it is not a checkout."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
