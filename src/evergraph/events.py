"""What the training loop tells the world: plain values that bars, logs and files consume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class TaskStarted:
    """A task begins."""

    task: int
    num_tasks: int
    num_nodes: int
    num_edges: int
    classes: tuple[int, ...]
    mode: str  # whole graphs or sampled parts
    reason: str  # why that mode


@dataclass(frozen=True)
class Epoch:
    """One pass of a stage is done. Reading ``loss`` may wait for the device."""

    task: int
    stage: str  # "structure", "search" or "classify"
    epoch: int  # from 0
    num_epochs: int
    loss: Tensor


@dataclass(frozen=True)
class Stage:
    """A stage without epochs begins; ``done`` of ``total`` are over."""

    task: int
    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class TaskDone:
    """A task is learned and every task seen so far has been evaluated.

    Accuracies are in percent; ``row[j]`` is the accuracy on task ``j``.
    """

    task: int
    row: list[float]
    row_task_incremental: list[float]  # argmax among the task's own classes
    class_row: list[float]  # one per class seen
    seconds: dict[str, float]  # by stage
    memory_bytes: int
    report: dict[str, Any] = field(default_factory=dict)  # what the method has to tell
    seen: float | None = None  # on all nodes seen so far, whatever their task
    before: float | None = None  # on this task's nodes before it was learned, but in class streams
    memory_bytes_without_graph: int = 0  # the same where the graph does not stay at hand
    probability: dict[str, Any] = field(default_factory=dict)  # its scores, after the last task


Event = TaskStarted | Stage | Epoch | TaskDone
OnEvent = Callable[[Event], None]
