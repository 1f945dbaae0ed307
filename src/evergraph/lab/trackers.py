"""Trackers: a run's events passed on to TensorBoard or MLflow, off unless asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergraph.config import RunConfig
from evergraph.events import Epoch, Event, TaskDone, TaskStarted
from evergraph.lab import import_extra

#: Epochs between two losses that are told: reading one may wait for the device.
EVERY = 10

OnEvent = Callable[[Event], None]
#: What takes a number with its name and step, and what ends the tracking.
Opened = tuple[Callable[[str, float, int], object], Callable[[], object]]


def _open_tensorboard(tensorboard: Any, config: RunConfig, path: Path) -> Opened:
    """Writes event files into the run's folder, below ``tensorboard/``."""
    writer = tensorboard.SummaryWriter(str(path / "tensorboard"))
    return writer.add_scalar, writer.close


def _open_mlflow(mlflow: Any, config: RunConfig, path: Path) -> Opened:
    """Logs to the tracking server that ``MLFLOW_TRACKING_URI`` names, or to local files."""
    mlflow.start_run(run_name=f"{config.dataset_name} {config.label} seed {config.seed}")
    described = {"dataset": config.dataset_name, "method": config.method, "seed": config.seed}
    mlflow.log_params({**described, "config": config.hash, **config.settings})
    return mlflow.log_metric, mlflow.end_run


#: The module of each, and what begins a run with it.
TRACKERS = {
    "tensorboard": ("torch.utils.tensorboard", _open_tensorboard),
    "mlflow": ("mlflow", _open_mlflow),
}


class Tracker:
    """Turns events into numbers: losses, accuracies, seconds; passes each event on.

    The tracker is opened by the first event, so that a finished run opens none.
    """

    def __init__(self, name: str, config: RunConfig, path: Path, on_event: OnEvent | None) -> None:
        self.name, self.config, self.path, self.on_event = name, config, path, on_event
        self.opened: Opened | None = None
        self.num_tasks = 0
        self.steps: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        """Takes an event of the training loop."""
        log, close = self.opened = self.opened or self._open()
        if isinstance(event, TaskStarted):
            self.num_tasks = event.num_tasks
        elif isinstance(event, Epoch):
            step = self.steps.get(event.stage, 0)
            self.steps[event.stage] = step + 1
            if event.epoch % EVERY == 0 or event.epoch == event.num_epochs - 1:
                log(f"loss/{event.stage}", float(event.loss), step)
        elif isinstance(event, TaskDone):
            log("accuracy/mean", sum(event.row) / len(event.row), event.task)
            for task, value in enumerate(event.row):
                log(f"accuracy/task {task + 1}", value, event.task)
            for stage, seconds in event.seconds.items():
                log(f"seconds/{stage}", seconds, event.task)
            if event.task == self.num_tasks - 1:
                close()
        if self.on_event is not None:
            self.on_event(event)

    def _open(self) -> Opened:
        module, begin = TRACKERS[self.name]
        what = f"the package {self.name} for '--track {self.name}'"
        return begin(import_extra(module, "track", what), self.config, self.path)
