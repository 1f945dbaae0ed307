"""Trackers: a run's events passed on to TensorBoard or MLflow, off unless asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergraph.config import RunConfig
from evergraph.errors import InputError, unknown_name
from evergraph.events import Epoch, Event, TaskDone, TaskStarted

#: Epochs between two losses that are told: reading one may wait for the device.
EVERY = 10

OnEvent = Callable[[Event], None]


class TensorBoard:
    """Writes event files into the run's folder, below ``tensorboard/``."""

    def __init__(self, config: RunConfig, path: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
        except ImportError:
            raise _missing("tensorboard") from None
        self.writer: Any = SummaryWriter(str(path / "tensorboard"))

    def log(self, name: str, value: float, step: int) -> None:
        """Takes one number."""
        self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is left."""
        self.writer.close()


class MLflow:
    """Logs to the tracking server that ``MLFLOW_TRACKING_URI`` names, or to local files."""

    def __init__(self, config: RunConfig, path: Path) -> None:
        try:
            import mlflow  # noqa: PLC0415 - an extra
        except ImportError:
            raise _missing("mlflow") from None
        self.client: Any = mlflow
        name = f"{config.dataset_name} {config.label} seed {config.seed}"
        self.client.start_run(run_name=name)
        described = {"dataset": config.dataset_name, "method": config.method, "seed": config.seed}
        self.client.log_params({**described, "config": config.hash, **config.settings})

    def log(self, name: str, value: float, step: int) -> None:
        """Takes one number."""
        self.client.log_metric(name, value, step=step)

    def close(self) -> None:
        """Ends the run there."""
        self.client.end_run()


Tracker = TensorBoard | MLflow
TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


def check_tracker(name: str | None) -> None:
    """Refuses a tracker that there is none of."""
    if name is not None and name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)


def tracked(
    name: str | None, config: RunConfig, path: Path, on_event: OnEvent | None
) -> OnEvent | None:
    """Returns what takes a run's events: ``on_event`` and the tracker, if one is named.

    The tracker is opened by the first event, so that a finished run opens none.
    """
    if name is None:
        return on_event
    check_tracker(name)
    teller = Teller(lambda: TRACKERS[name](config, path))

    def both(event: Event) -> None:
        teller(event)
        if on_event is not None:
            on_event(event)

    return both


class Teller:
    """Turns events into numbers: losses, accuracies, seconds."""

    def __init__(self, make: Callable[[], Tracker]) -> None:
        self.make = make
        self.tracker: Tracker | None = None
        self.num_tasks = 0
        self.steps: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        """Takes an event of the training loop."""
        if self.tracker is None:
            self.tracker = self.make()
        if isinstance(event, TaskStarted):
            self.num_tasks = event.num_tasks
        elif isinstance(event, Epoch):
            self._epoch(self.tracker, event)
        else:
            self._task(self.tracker, event)

    def _epoch(self, tracker: Tracker, event: Epoch) -> None:
        step = self.steps.get(event.stage, 0)
        self.steps[event.stage] = step + 1
        if event.epoch % EVERY == 0 or event.epoch == event.num_epochs - 1:
            tracker.log(f"loss/{event.stage}", float(event.loss), step)

    def _task(self, tracker: Tracker, event: TaskDone) -> None:
        tracker.log("accuracy/mean", sum(event.row) / len(event.row), event.task)
        for task, value in enumerate(event.row):
            tracker.log(f"accuracy/task {task + 1}", value, event.task)
        for stage, seconds in event.seconds.items():
            tracker.log(f"seconds/{stage}", seconds, event.task)
        if event.task == self.num_tasks - 1:
            tracker.close()


def _missing(package: str) -> InputError:
    return InputError(
        f"Expected the package {package} for '--track {package}' (it is not installed); install "
        "the extra with pip install 'evergraph[track]'."
    )
