"""One run: from a configuration to a finished folder, resumable task by task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergraph.config import SCHEMA_VERSION, RunConfig
from evergraph.errors import InputError
from evergraph.events import Event, TaskDone
from evergraph.files import make_folder, read_regular, write_atomic, write_json
from evergraph.lab.checkpoint import load_checkpoint, save_checkpoint
from evergraph.lab.diagnostics import Diagnostics
from evergraph.lab.environment import environment
from evergraph.lab.results import check_restored, read_results
from evergraph.methods import Method, make_method
from evergraph.metrics import scores
from evergraph.nn.device import denormals_flushed, pick_device
from evergraph.stream import Graph, TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.train import Learner, check_backbone, train

OnEvent = Callable[[Event], None]


class RunFolder:
    """The folder of one run: the unit of truth.

    ``config.yaml`` · ``environment.json`` · ``events.jsonl`` · ``checkpoint/`` ·
    ``results.json``, which exists only when the run is finished.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results_file = path / "results.json"
        self.checkpoint = path / "checkpoint"

    def inspect(self, config: RunConfig) -> dict[str, Any] | None:
        """Returns the results if this run is finished here, None if it may run here.

        Refuses a folder that holds another run or other files; writes nothing.
        """
        if (self.path / "config.yaml").exists():
            there = self.config()
            if there.hash != config.hash:
                raise InputError(
                    f"Expected '--output' without another run (got '{self.path}', which holds "
                    f"{there.method} on {there.dataset}, seed {there.seed}, with other settings); "
                    "choose another folder."
                )
            return read_results(self.results_file) if self.results_file.exists() else None
        if self.path.exists():
            if not self.path.is_dir():
                raise InputError(
                    f"Expected '--output' to be a folder (got the file '{self.path}'); choose "
                    "another."
                )
            # A kill while a file was being written leaves only that file's unfinished twin.
            if any(not entry.name.endswith(".new") for entry in self.path.iterdir()):
                raise InputError(
                    f"Expected '--output' to be a new or empty folder (got '{self.path}', which "
                    "holds other files); choose another folder."
                )
        return None

    def claim(self, config: RunConfig) -> dict[str, Any] | None:
        """Takes the folder for a run; returns its results if it is finished already."""
        finished = self.inspect(config)
        if finished is None and not (self.path / "config.yaml").exists():
            make_folder(self.path)
            write_atomic(self.path / "config.yaml", config.to_yaml().encode())
        return finished

    def config(self) -> RunConfig:
        """Reads the run's configuration back."""
        path = self.path / "config.yaml"
        try:
            text = read_regular(path).decode()
        except (OSError, UnicodeDecodeError):
            raise InputError(
                f"Expected '{self.path}' to hold a run (got no readable config.yaml); "
                "check the path."
            ) from None
        return RunConfig.from_yaml(text, str(path))


def finished_runs(folder: Path) -> list[Path]:
    """Lists the run folders with results below a folder, in a fixed order.

    Copies that were never finished are left out: their names begin with a dot.
    """
    found = sorted(folder.glob("**/results.json"))
    return [path.parent for path in found if not path.parent.name.startswith(".")]


def runs_to_merge(source: Path) -> list[Path]:
    """Lists the finished runs of a folder to merge, refusing one without any."""
    found = finished_runs(source)
    if not found:
        raise InputError(
            f"Expected '--merge' to name a folder with finished runs (got '{source}'); "
            "check the path."
        )
    return found


def execute(
    config: RunConfig,
    path: Path,
    *,
    device: str = "cpu",
    data_root: Path | None = None,
    on_event: OnEvent | None = None,
    graph: Graph | None = None,
) -> dict[str, Any]:
    """Runs a configuration in a folder, or continues it, and returns its results.

    A finished run is not run again. A run that was killed continues after its last finished
    task, to the same bits. ``graph`` saves loading it when it is at hand already.
    """
    folder = RunFolder(path)
    method = make_method(config.method, config.settings)
    place = pick_device(device)
    graph = graph or load_graph(config.dataset, data_root, config.dataset_options or None)
    stream = TaskStream(graph, config.protocol, config.seed)
    check_buffer(config, stream)
    check_backbone(type(method), config.model)
    check_validation(config, type(method))
    surroundings = environment(place)  # asks other programs: before there is anything to interrupt
    finished = folder.claim(config)
    if finished is not None:
        check_graph(finished["graph"], stream, config.dataset, path)
        return finished
    learner = Learner(method)
    diagnostics = Diagnostics(stream)
    done = load_checkpoint(folder.checkpoint, learner, config.model, place)
    if done:
        check_restored(learner, done, stream, folder.checkpoint)
    for record in done:
        check_graph(record["graph"], stream, config.dataset, path)
        diagnostics.restore(record["embeddings"])
    write_json(path / "environment.json", surroundings)
    events = train(learner, stream, config.model, config.training, seed=config.seed, device=place)
    with denormals_flushed():
        for event in events:
            if isinstance(event, TaskDone):
                kept = diagnostics.after_task(learner)
                record = {"graph": stream.fingerprint, **event.__dict__, "embeddings": kept}
                done.append(record)
                if learner.next_task < stream.num_tasks:
                    save_checkpoint(folder.checkpoint, learner, done)
                _write_events(path / "events.jsonl", done)
            if on_event is not None:
                on_event(event)
    results = summarise(config, stream, done, diagnostics.result)
    write_json(folder.results_file, results)
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
    return {
        "schema_version": SCHEMA_VERSION,
        "dataset": config.dataset_name,
        "method": config.method,
        "label": config.label,
        "overrides": config.overrides,
        "protocol_hash": config.protocol.hash,
        "graph": stream.fingerprint,
        "config_hash": config.hash,
        "variant_hash": config.variant_hash,
        "settings": config.settings,
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
        "seconds": {**seconds, "total": sum(seconds.values())},
        "memory_bytes": max(record["memory_bytes"] for record in done),
        "reports": [record["report"] for record in done],
        "diagnostics": diagnostics,
    }


def check_buffer(config: RunConfig, stream: TaskStream) -> None:
    """Refuses a buffer that cannot hold one node of every class."""
    size = config.settings.get("buffer_size")
    if size is not None and size < stream.num_classes:
        raise InputError(
            f"Expected 'buffer_size' of at least the number of classes, {stream.num_classes} "
            f"(got {size}); raise it."
        )


def check_validation(config: RunConfig, method: type[Method[Any]]) -> None:
    """Refuses a method that needs validation nodes where none are held out."""
    if "validation" in method.needs and config.protocol.validation_fraction == 0:
        raise InputError(
            f"Expected 'validation_fraction' above 0 for {method.__name__}, which needs "
            "validation nodes (got 0); set it to 0.1."
        )


def _write_events(path: Path, done: list[dict[str, Any]]) -> None:
    lines = [
        json.dumps({key: value for key, value in record.items() if key != "embeddings"})
        for record in done
    ]
    write_atomic(path, ("\n".join(lines) + "\n").encode())
