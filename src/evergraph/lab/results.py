"""What a run folder holds of finished work, checked before it is believed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from evergraph.errors import InputError
from evergraph.files import read_json
from evergraph.stream import TaskStream
from evergraph.train import Learner


class _Scores(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    accuracy_matrix: list[list[float]]
    pm: float
    fm: float | None
    current: float


class _Results(_Scores):
    """The part of ``results.json`` that is read again."""

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
    seconds: dict[str, float]
    memory_bytes: int
    diagnostics: dict[str, Any]


class _Record(BaseModel):
    """One finished task in a checkpoint."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, allow_inf_nan=False)

    graph: str
    task: int
    row: list[float]
    row_task_incremental: list[float]
    class_row: list[float]
    seconds: dict[str, float]
    memory_bytes: int
    report: dict[str, Any]
    embeddings: dict[int, dict[str, Tensor]]


def read_results(path: Path) -> dict[str, Any]:
    """Reads a ``results.json``; one that is damaged is refused in one sentence."""
    content: dict[str, Any] = read_json(path)
    try:
        found = _Results.model_validate(content)
    except (ValidationError, RecursionError):
        raise _damaged(path) from None
    matrix, tasks = found.accuracy_matrix, found.tasks
    triangular = [len(row) for row in matrix] == list(range(1, len(tasks) + 1))
    known = all(0 <= label < len(found.class_names) for task in tasks for label in task)
    if not tasks or not triangular or not known or "total" not in found.seconds:
        raise _damaged(path)
    return content


def check_restored(
    learner: Learner, done: Sequence[Any], stream: TaskStream, checkpoint: Path
) -> None:
    """Refuses a checkpoint that does not fit the stream it is continued on."""
    try:
        records = [_Record.model_validate(record) for record in done]
        fits = learner.next_task == len(records) < stream.num_tasks
        for index, record in enumerate(records):
            counts = (len(record.row), len(record.row_task_incremental), len(record.class_row))
            classes = stream.tasks[index].classes[-1] + 1
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


def _damaged(path: Path) -> InputError:
    return InputError(
        f"Expected the results of a run in '{path}' (got another content); remove the file to run "
        "it again."
    )
