"""Trackers: a run's events passed on to TensorBoard or MLflow, off unless asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from evergraph.config import RunConfig
from evergraph.errors import import_extra
from evergraph.events import Epoch, Event, OnEvent, TaskDone, TaskStarted

#: Epochs between two losses that are told: reading one may wait for the device.
EVERY = 10

#: The module of each.
TRACKERS = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}


class Tracker:
    """Turns events into numbers: losses, accuracies, seconds; passes each event on.

    TensorBoard's files go into the run's folder, below ``tensorboard/``; MLflow logs to the server
    that ``MLFLOW_TRACKING_URI`` names, or to local files.
    """

    def __init__(self, name: str, config: RunConfig, path: Path, on_event: OnEvent | None) -> None:
        self.name, self.config, self.path, self.on_event = name, config, path, on_event
        self.num_tasks = 0
        self.steps: dict[str, int] = {}

    @cached_property
    def opened(self) -> tuple[Callable[[str, float, int], object], Callable[[], object]]:
        """What logs a number with its name and step, and what ends the tracking.

        It is opened by the first event, so that a finished run opens none.
        """
        what = f"the package {self.name} for '--track {self.name}'"
        module, config = import_extra(TRACKERS[self.name], "track", what), self.config
        if self.name == "tensorboard":
            writer = module.SummaryWriter(str(self.path / "tensorboard"))
            return writer.add_scalar, writer.close
        module.start_run(run_name=f"{config.dataset_name} {config.label} seed {config.seed}")
        described = {"dataset": config.dataset_name, "method": config.method, "seed": config.seed}
        module.log_params({**described, "config": config.hash, **config.settings})
        return module.log_metric, module.end_run

    def __call__(self, event: Event) -> None:
        """Takes an event of the training loop."""
        log, close = self.opened
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
