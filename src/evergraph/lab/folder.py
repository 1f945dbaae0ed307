"""A run's folder: where it lies, and what it holds of finished work, checked before believed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from evergraph import files
from evergraph.config import SCHEMA_VERSION, RunConfig, load_mapping
from evergraph.errors import InputError
from evergraph.nn import ModelConfig
from evergraph.stream import TaskStream
from evergraph.train import Learner, learner_state, restore_learner

#: The learner after a task, its plain values as JSON beside the tensors.
FILE = "learner.safetensors"


@dataclass(frozen=True)
class Job:
    """One run and its folder, the unit of truth; of a ``trial`` the scores alone matter.

    ``config.yaml`` · ``environment.json`` · ``events.jsonl`` · ``checkpoint/`` ·
    ``results.json``, which exists only when the run is finished.
    """

    config: RunConfig
    path: Path
    trial: bool = False

    @property
    def name(self) -> str:
        """What progress shows."""
        return f"{self.config.dataset_name} · {self.config.label} · seed {self.config.seed}"

    def finished(self) -> dict[str, Any] | None:
        """Returns the results if this run is finished here, None if it may run here.

        Refuses a folder that holds another run or other files; writes nothing.
        """
        if (self.path / "config.yaml").exists():
            there = read_config(self.path)
            if there.hash != self.config.hash:
                raise InputError(
                    f"Expected '--output' without another run (got '{self.path}', which holds "
                    f"{there.method} on {there.dataset}, seed {there.seed}, with other settings); "
                    "choose another folder."
                )
            results = self.path / "results.json"
            return read_results(results) if results.exists() else None
        check_output(self.path)
        # A kill while a file was being written leaves only that file's unfinished twin.
        entries = self.path.iterdir() if self.path.exists() else ()
        if any(not entry.name.endswith(".new") for entry in entries):
            raise InputError(
                f"Expected '--output' to be a new or empty folder (got '{self.path}', which "
                "holds other files); choose another folder."
            )
        return None

    def claim(self) -> dict[str, Any] | None:
        """Takes the folder for the run; returns its results if it is finished already."""
        finished = self.finished()
        if finished is None and not (self.path / "config.yaml").exists():
            files.make_folder(self.path)
            files.write_atomic(self.path / "config.yaml", self.config.to_yaml().encode())
        return finished


def read_config(folder: Path) -> RunConfig:
    """Reads the configuration of the run that a folder holds."""
    path = folder / "config.yaml"
    try:
        text = files.read_regular(path).decode()
    except (OSError, UnicodeDecodeError):
        raise InputError(
            f"Expected '{folder}' to hold a run (got no readable config.yaml); check the path."
        ) from None
    return RunConfig.from_values(load_mapping(text, str(path)))


def check_output(path: Path, option: str = "--output") -> None:
    """Refuses an output that is not a folder, or the folder of a state."""
    if path.exists() and not path.is_dir():
        raise InputError(
            f"Expected '{option}' to be a folder (got the file '{path}'); choose another."
        )
    if (path / "state.sqlite").exists():
        raise InputError(
            f"Expected '{option}' to be a folder without a state (got '{path}', an estimator's "
            "state); choose another."
        )


def make_jobs(configs: Sequence[RunConfig], output: Path, *, trial: bool = False) -> list[Job]:
    """Gives every run its folder ``runs/DATASET/LABEL/seed-N``; refuses labels that clash."""
    jobs: dict[Path, Job] = {}
    for config in configs:
        path = output / "runs" / dataset_slug(config) / slug(config.label) / f"seed-{config.seed}"
        if path in jobs and jobs[path].config.dataset_name != config.dataset_name:
            raise InputError(
                "Expected every dataset of a grid to have its own file name (got "
                f"'{jobs[path].config.dataset_name}' and '{config.dataset_name}'); rename one."
            )
        if path in jobs:
            raise InputError(
                f"Expected every method of a grid to have its own label (got '{config.label}' "
                "twice); add @label to one of them."
            )
        jobs[path] = Job(config, path, trial)
    return list(jobs.values())


def slug(text: str) -> str:
    """Turns a label into a folder name."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", text).strip("-.") or "unnamed"


def dataset_slug(config: RunConfig) -> str:
    """Names a dataset's folder: generated graphs by their options, files without their path."""
    return slug(config.dataset_name if config.dataset_options else Path(config.dataset).stem)


def finished_runs(folder: Path) -> list[Path]:
    """Lists the run folders with results below a folder, in a fixed order.

    Copies that were never finished are left out: their names begin with a dot.
    """
    found = sorted(folder.glob("**/results.json"))
    return [path.parent for path in found if not path.parent.name.startswith(".")]


class _Loose(BaseModel):
    """What is read again of a document that may hold more."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, allow_inf_nan=False)


class _Scores(_Loose):
    accuracy_matrix: list[list[float]]
    pm: float
    fm: float | None
    current: float


class _Stream(_Loose):
    steps: list[str]
    seen_by_step: list[float]
    before: list[float | None]
    seen: float
    aauc: float
    fwt: float | None
    bwt: float | None


class _Results(_Scores):
    schema_version: int
    dataset: str
    method: str
    label: str
    overrides: dict[str, Any]
    protocol_hash: str
    graph: str
    config_hash: str
    variant_hash: str
    settings: dict[str, Any]
    seed: int
    evaluated_on: str
    class_names: list[str]
    tasks: list[list[int]]
    task_incremental: _Scores
    by_class: _Scores
    stream: _Stream | None = None  # of streams in which known classes come again
    seconds: dict[str, float]
    memory_bytes: int
    memory_bytes_without_graph: int | None = None  # 0.1.0 did not count it
    diagnostics: dict[str, Any]


def read_results(path: Path) -> dict[str, Any]:
    """Reads a ``results.json``; one that is damaged is refused in one sentence."""
    content: dict[str, Any] = files.read_json(path)
    try:
        found = _Results.model_validate(content)
        count, steps = len(found.tasks), [] if found.stream is None else found.stream.steps
        whole = count > 0 and "total" in found.seconds
        whole &= [len(row) for row in found.accuracy_matrix] == list(range(1, count + 1))
        whole &= all(0 <= c < len(found.class_names) for task in found.tasks for c in task)
        whole &= "stream" not in content or len(steps) == count
    except (ValidationError, RecursionError):
        whole = False
    if not whole:
        raise InputError(
            f"Expected the results of a run in '{path}' (got another content); remove the file to "
            "run it again."
        )
    if found.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"Expected 'schema_version' {SCHEMA_VERSION} in '{path}' (got "
            f"{found.schema_version}); use the release that wrote it."
        )
    return content


class _Record(_Loose):
    """One finished task in a checkpoint."""

    graph: str
    task: int
    row: list[float]
    row_task_incremental: list[float]
    class_row: list[float]
    seconds: dict[str, float]
    memory_bytes: int
    memory_bytes_without_graph: int | None = None
    report: dict[str, Any]
    embeddings: dict[int, dict[str, Tensor]]


def save_checkpoint(folder: Path, learner: Learner, done: list[dict[str, Any]]) -> None:
    """Writes the learner just after a task, and a record per finished task, over the last one."""
    files.make_folder(folder)
    state = {**learner_state(learner), "done": done}
    files.write_atomic(folder / FILE, files.pack({"sha256": files.checksum(state), **state}))


def load_checkpoint(
    folder: Path, learner: Learner, model_config: ModelConfig, device: torch.device | str
) -> list[dict[str, Any]]:
    """Restores a learner in place; returns the records of finished tasks, [] without a file."""
    state = read_checkpoint(folder, device)
    if state is None:
        return []
    try:
        done: list[dict[str, Any]] = list(state["done"])
        restore_learner(learner, state, model_config, device)
    except Exception:  # what a method makes of a damaged state is anything
        raise _damaged(folder) from None
    return done


def read_checkpoint(folder: Path, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """Reads what :func:`save_checkpoint` wrote as plain values and tensors, None without it."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = files.unpack(files.read_regular(path))
        whole = state.pop("sha256") == files.checksum(state)
    except Exception:  # damaged content raises anything
        whole = False
    if not whole:
        raise _damaged(folder)
    return dict(files.to_device(state, device))


def _damaged(folder: Path) -> InputError:
    return InputError(
        f"Expected a whole checkpoint in '{folder / FILE}' (it is damaged); remove the folder "
        f"'{folder}' to begin the run again."
    )


def check_restored(
    learner: Learner, done: Sequence[Any], stream: TaskStream, checkpoint: Path
) -> None:
    """Refuses a checkpoint that does not fit the stream it is continued on."""
    try:
        records = [_Record.model_validate(record) for record in done]
        fits = learner.next_task == len(records) < stream.num_tasks
        for index, record in enumerate(records):
            counts = (len(record.row), len(record.row_task_incremental), len(record.class_row))
            classes = stream.tasks[index].num_classes
            fits &= record.task == index and counts == (index + 1, index + 1, classes)
            for label, part in record.embeddings.items():
                fits &= label < classes and part["nodes"].shape == part["h"].shape[:1]
                fits &= part["h"].ndim == 2 and part["h"].is_floating_point()
        if records and learner.model is not None:
            weight = learner.model.state_dict()["encoder.layers.0.weight"]
            fits &= learner.model.head.num_classes == classes
            fits &= weight.shape[0] == stream.features.shape[1]
        buffer = learner.method.buffer
        if records and buffer is not None:  # moving nothing finds nodes that are not there
            buffer.renumber(torch.arange(stream.tasks[len(records) - 1].num_nodes))
            fits &= all(0 <= label < classes for label in buffer.picks)
    except Exception:  # what a method makes of a damaged state is anything
        fits = False
    if not fits:
        raise InputError(
            f"Expected a checkpoint of this run in '{checkpoint}' (got another content); remove "
            "the folder to begin the run again."
        )
