"""A run and its folder: where it lies, and what it holds of finished work, checked before believed.

Everything that is told of runs, in tables, pages, figures and verdicts, is a view of :class:`Run`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from evergraph import files
from evergraph.config import SCHEMA_VERSION, RunConfig, load_mapping
from evergraph.errors import InputError
from evergraph.train import Learner, learner_state, restore_learner

#: The learner after a task, its plain values as JSON beside the tensors.
FILE = "learner.safetensors"


class Run:
    """One run and its folder, the unit of truth; of a ``trial`` the scores alone matter.

    ``config.yaml`` · ``environment.json`` · ``events.jsonl`` · ``checkpoint/`` ·
    ``results.json``, which exists only when the run is finished. Files are read when asked for.
    """

    def __init__(self, path: Path, config: RunConfig | None = None, *, trial: bool = False) -> None:
        self.path, self.trial = path, trial
        if config is not None:
            self.config = config

    @cached_property
    def config(self) -> RunConfig:
        """The complete configuration: the one given, or that of the folder."""
        path = self.path / "config.yaml"
        try:
            text = files.read_regular(path).decode()
        except (OSError, UnicodeDecodeError):
            raise InputError(
                f"Expected '{self.path}' to hold a run (got no readable config.yaml); check the "
                "path."
            ) from None
        return RunConfig.from_values(load_mapping(text, str(path)))

    @property
    def name(self) -> str:
        """What progress shows."""
        return f"{self.config.dataset_name} · {self.config.label} · seed {self.config.seed}"

    @property
    def is_finished(self) -> bool:
        """Whether there are results."""
        return "results" in vars(self) or (self.path / "results.json").exists()

    @cached_property
    def results(self) -> dict[str, Any]:
        """What came of it."""
        return read_results(self.path / "results.json")

    @property
    def environment(self) -> dict[str, Any]:
        """Where the run took place; nothing if that was not kept."""
        path = self.path / "environment.json"
        content = files.read_json(path) if path.exists() else {}
        return content if isinstance(content, dict) else {}

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened task by task; nothing if that was not kept."""
        path = self.path / "events.jsonl"
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            return [dict(json.loads(line)) for line in text.splitlines()]
        except (ValueError, TypeError):
            raise InputError(
                f"Expected '{path}' to hold one JSON object per line (it does not); restore it "
                "or remove it."
            ) from None

    def finished(self) -> dict[str, Any] | None:
        """Returns the results if this run is finished here, None if it may run here.

        Refuses a folder that holds another run or other files; writes nothing.
        """
        if (self.path / "config.yaml").exists():
            there = Run(self.path).config
            if there.hash != self.config.hash:
                raise InputError(
                    f"Expected '--output' without another run (got '{self.path}', which holds "
                    f"{there.method} on {there.dataset}, seed {there.seed}, with other settings); "
                    "choose another folder."
                )
            return self.results if self.is_finished else None
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

    def save_checkpoint(self, learner: Learner, done: list[dict[str, Any]]) -> None:
        """Writes the learner just after a task, and a record per finished task, over the last."""
        files.make_folder(self.path / "checkpoint")
        state = {**learner_state(learner), "done": done, "config": self.config.hash}
        content = files.pack({"sha256": files.checksum(state), **state})
        files.write_atomic(self.path / "checkpoint" / FILE, content)

    def load_checkpoint(self, learner: Learner, device: torch.device) -> list[dict[str, Any]]:
        """Restores a learner in place; returns the records of finished tasks, [] without any."""
        state = self.read_checkpoint(device)
        if state is None:
            return []
        try:
            if state.get("config", self.config.hash) != self.config.hash:
                raise ValueError("another run")
            restore_learner(learner, state, self.config.model, device)
            return list(state["done"])
        except Exception:  # what a method makes of the state of another one is anything
            raise self._damaged() from None

    def read_checkpoint(self, device: torch.device | str = "cpu") -> dict[str, Any] | None:
        """Reads the last checkpoint as plain values and tensors, None without any."""
        path = self.path / "checkpoint" / FILE
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = files.unpack(files.read_regular(path))
            if state.pop("sha256") != files.checksum(state):
                raise ValueError("other bits")
        except Exception:  # damaged content raises anything
            raise self._damaged() from None
        return dict(files.to_device(state, device))

    def _damaged(self) -> InputError:
        folder = self.path / "checkpoint"
        return InputError(
            f"Expected a whole checkpoint of this run in '{folder / FILE}' (it is damaged, or of "
            f"another run); remove the folder '{folder}' to begin the run again."
        )


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


def make_runs(configs: Sequence[RunConfig], output: Path, *, trial: bool = False) -> list[Run]:
    """Gives every run its folder ``runs/DATASET/LABEL/seed-N``; refuses labels that clash."""
    runs: dict[Path, Run] = {}
    for config in configs:
        path = output / "runs" / dataset_slug(config) / slug(config.label) / f"seed-{config.seed}"
        if path in runs and runs[path].config.dataset_name != config.dataset_name:
            raise InputError(
                "Expected every dataset of a grid to have its own file name (got "
                f"'{runs[path].config.dataset_name}' and '{config.dataset_name}'); rename one."
            )
        if path in runs:
            raise InputError(
                f"Expected every method of a grid to have its own label (got '{config.label}' "
                "twice); add @label to one of them."
            )
        runs[path] = Run(path, config, trial=trial)
    return list(runs.values())


def slug(text: str) -> str:
    """Turns a label into a folder name."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", text).strip("-.") or "unnamed"


def dataset_slug(config: RunConfig) -> str:
    """Names a dataset's folder: generated graphs by their options, files without their path."""
    return slug(config.dataset_name if config.dataset_options else Path(config.dataset).stem)


def find_runs(folder: Path) -> list[Run]:
    """Lists the runs below a folder in a fixed order, finished or not.

    What is hidden is left out: a copy that was never finished has a name that begins with a dot.
    """
    folders = (path.relative_to(folder).parent for path in sorted(folder.glob("**/config.yaml")))
    return [Run(folder / path) for path in folders if not any(p[0] == "." for p in path.parts)]


def finished_runs(folder: Path) -> list[Run]:
    """Lists the finished runs below a folder in a fixed order."""
    return [run for run in find_runs(folder) if run.is_finished]


class _Loose(BaseModel):
    """What is read again of a document that may hold more."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


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
