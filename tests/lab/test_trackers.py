"""Trackers: events become numbers at a stand-in for TensorBoard and MLflow; absent ones say so."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.config import RunConfig, Variant, resolve
from evergraph.errors import InputError
from evergraph.events import Epoch, Event, TaskDone, TaskStarted
from evergraph.lab.runs import Place
from evergraph.lab.trackers import Tracker
from support import QUICK, Command


def config() -> RunConfig:
    return resolve(Variant.parse("cora"), Variant.parse("finetune"), 3)


def events() -> list[Event]:
    """One task of 12 epochs, then another of 2."""
    found: list[Event] = []
    for task, epochs in enumerate((12, 2)):
        found.append(TaskStarted(task, 2, 10, 10, (0, 1), "full batch", "it fits"))
        found += [Epoch(task, "classify", e, epochs, torch.tensor(float(e))) for e in range(epochs)]
        row = [80.0, 60.0][: task + 1]
        found.append(TaskDone(task, row, row, row, {"classify": 1.5}, 0))
    return found


class Fake:
    """Stands for both: what it is told is kept."""

    def __init__(self, *where: str) -> None:
        self.told: list[Any] = [where]

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))

    def log_metric(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))

    def close(self) -> None:
        self.told.append("closed")

    def start_run(self, run_name: str) -> None:
        self.told.append(run_name)

    def log_params(self, params: dict[str, Any]) -> None:
        self.told.append((params["dataset"], params["seed"]))

    end_run = close


NUMBERS = [
    ("loss/classify", 0.0, 0),
    ("loss/classify", 10.0, 10),
    ("loss/classify", 11.0, 11),
    ("accuracy/mean", 80.0, 0),
    ("accuracy/task 1", 80.0, 0),
    ("seconds/classify", 1.5, 0),
    ("loss/classify", 0.0, 12),
    ("loss/classify", 1.0, 13),
    ("accuracy/mean", 70.0, 1),
    ("accuracy/task 1", 80.0, 1),
    ("accuracy/task 2", 60.0, 1),
    ("seconds/classify", 1.5, 1),
    "closed",
]


def test_tensorboard_is_told_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[Fake] = []
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = lambda folder: made.append(Fake(folder)) or made[-1]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    passed_on: list[Event] = []
    follow = Tracker("tensorboard", config(), tmp_path, passed_on.append)
    assert made == []  # a finished run would open nothing
    for event in events():
        follow(event)
    assert made[0].told == [(str(tmp_path / "tensorboard"),), *NUMBERS]
    assert len(passed_on) == len(events())


def test_mlflow_is_told_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = Fake()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    follow = Tracker("mlflow", config(), tmp_path, None)
    for event in events():
        follow(event)
    assert fake.told == [(), "cora finetune seed 3", ("cora", 3), *NUMBERS]


def test_unknown_tracker_is_refused():
    with pytest.raises(InputError, match="Unknown tracker 'wandb'"):
        Place(track="wandb")


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow")]
)
def test_missing_tracker_is_one_sentence(
    name: str, module: str, work: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, module, None)
    words = ("run", "--dataset", "graph.npz", "--method", "finetune", "--output", "out")
    answer = command(*words, *QUICK[:2], "--track", name)
    assert answer.code == 2
    assert f"'--track {name}' (it is not installed)" in answer.err
