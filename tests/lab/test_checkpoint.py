"""Checkpoints: what goes in comes out to the bit, and nothing in them is a pickle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from evergraph.errors import InputError
from evergraph.events import TaskDone
from evergraph.lab.folder import Run
from evergraph.methods import TrainConfig, make_method
from evergraph.methods.base import Method, MethodConfig
from evergraph.nn import ModelConfig, NodeClassifier
from evergraph.nn.surgery import resize_layer
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2)


def run_in(folder: Path, model: ModelConfig = MODEL) -> Run:
    """A run of which nothing but its network matters."""
    return Run(folder, SimpleNamespace(model=model, hash=""))


class Keeper(Method[MethodConfig]):
    """A method whose whole state is a nested dictionary."""

    Config = MethodConfig

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__(MethodConfig())
        self.state = state

    def loss(self, ctx: Any) -> Tensor:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = dict(state)


NESTED: dict[str, Any] = {
    "whole": torch.tensor([1, -(2**62)]),
    "half": torch.tensor([[0.1, float("inf")], [float("nan"), -0.0]]),
    "double": torch.tensor(0.1, dtype=torch.float64),
    "flags": torch.tensor([True, False]),
    "none": torch.empty(0, 3),
    "strided": torch.arange(6).view(2, 3).T,
    "deep": {"0": {"list": [torch.tensor([7]), "word", None, {"x": torch.tensor(8)}]}},
    "plain": [1, 2.5, None, True, "ä"],
    "empty": {},
    "with/slash": torch.tensor([9]),
}


def same(left: Any, right: Any) -> bool:
    """Compares nested values; tensors by dtype, shape and bits."""
    if isinstance(left, Tensor):
        bits = [part.contiguous().flatten().view(torch.uint8) for part in (left, right)]
        return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*bits)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def test_checkpoint_round_trip_is_bit_identical(tmp_path: Path):
    done = [{"row": [0.1 + 0.2, 100.0], "embeddings": {"0": {"h": torch.rand(2, 3)}}}]
    run_in(tmp_path).save_checkpoint(Learner(Keeper(NESTED), next_task=3), done)
    restored = Learner(Keeper({}))
    records = run_in(tmp_path).load_checkpoint(restored, "cpu")
    assert restored.next_task == 3
    assert restored.model is None
    assert same(restored.method.state_dict(), NESTED)
    assert same(records, done)


def test_checkpoint_keeps_paths_apart(tmp_path: Path):
    # "a/b" as one key and as two must not be written to the same place.
    state = {"a/b": torch.tensor([1]), "a": {"b": torch.tensor([2])}}
    run_in(tmp_path).save_checkpoint(Learner(Keeper(state)), [])
    restored = Learner(Keeper({}))
    run_in(tmp_path).load_checkpoint(restored, "cpu")
    assert same(restored.method.state_dict(), state)


def test_checkpoint_stores_tensors_that_share_memory(tmp_path: Path):
    base = torch.arange(6)
    state = {"all": base, "part": base[2:4], "same": base}
    run_in(tmp_path).save_checkpoint(Learner(Keeper(state)), [])
    restored = Learner(Keeper({}))
    run_in(tmp_path).load_checkpoint(restored, "cpu")
    assert same(restored.method.state_dict(), state)


def test_load_checkpoint_without_a_file_leaves_the_learner(tmp_path: Path):
    learner = Learner(Keeper({"a": 1}))
    assert run_in(tmp_path / "none").load_checkpoint(learner, "cpu") == []
    assert learner.next_task == 0
    assert learner.method.state_dict() == {"a": 1}


def advance(learner: Learner, stream: TaskStream, num_tasks: int) -> list[list[float]]:
    rows = []
    for event in train(learner, stream, MODEL, TrainConfig(epochs=2), seed=1):
        if isinstance(event, TaskDone):
            rows.append(event.row)
            if len(rows) == num_tasks:
                break
    return rows


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("finetune", {}),
        ("joint", {"warm_start": True}),
        ("replay", {"buffer_size": 8, "selector": "mf", "replay_weights": "balanced"}),
        ("rclg", {"buffer_size": 8, "controller_steps": 2}),
        ("dslr", {"buffer_size": 8, "link_epochs": 2}),
        ("dslr", {"buffer_size": 8, "structure": "homophily"}),
        ("dslr", {"buffer_size": 8, "link_epochs": 2, "candidates": "entire"}),
    ],
)
def test_restored_learner_continues_to_the_same_bits(
    tmp_path: Path, make_graph: Callable[..., Graph], method: str, settings: dict[str, Any]
):
    stream = TaskStream(make_graph(60, 6), Protocol(validation_fraction=0.2), seed=0)
    learner = Learner(make_method(method, settings))
    advance(learner, stream, 1)
    run_in(tmp_path).save_checkpoint(learner, [{"row": [1.0]}])
    restored = Learner(make_method(method, settings))
    assert run_in(tmp_path).load_checkpoint(restored, "cpu") == [{"row": [1.0]}]
    assert restored.model is not learner.model

    assert advance(restored, stream, 2) == advance(learner, stream, 2)
    assert learner.model is not None
    assert restored.model is not None
    assert same(dict(restored.model.state_dict()), dict(learner.model.state_dict()))
    assert same(restored.method.state_dict(), learner.method.state_dict())


def test_checkpoint_is_safetensors_with_json(tmp_path: Path):
    run_in(tmp_path).save_checkpoint(Learner(Keeper(NESTED), next_task=1), [])
    (path,) = (tmp_path / "checkpoint").iterdir()
    with safe_open(path, framework="pt") as file:
        document = json.loads(file.metadata()["state"])
        whole = file.get_tensor(document["method"]["whole"]["$tensor"])
    assert document["next_task"] == 1
    assert document["method"]["plain"] == NESTED["plain"]
    assert same(whole, NESTED["whole"])


def test_checkpoint_with_one_bit_flipped_is_refused_wherever_it_is(tmp_path: Path):
    run_in(tmp_path).save_checkpoint(Learner(Keeper({"x": torch.arange(5.0)}), next_task=1), [])
    (path,) = (tmp_path / "checkpoint").iterdir()
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        with pytest.raises(InputError, match="damaged"):
            run_in(tmp_path).load_checkpoint(Learner(Keeper({})), "cpu")
    path.write_bytes(whole)
    run_in(tmp_path).load_checkpoint(Learner(Keeper({})), "cpu")


def test_save_checkpoint_replaces_the_last_one(tmp_path: Path):
    for next_task in (1, 2):
        run_in(tmp_path).save_checkpoint(Learner(Keeper({}), next_task=next_task), [])
    learner = Learner(Keeper({}))
    run_in(tmp_path).load_checkpoint(learner, "cpu")
    assert learner.next_task == 2
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["learner.safetensors"]


def test_save_checkpoint_killed_while_writing_keeps_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run_in(tmp_path).save_checkpoint(Learner(Keeper({}), next_task=1), [])

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("evergraph.files.os.fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            run_in(tmp_path).save_checkpoint(Learner(Keeper({}), next_task=2), [])
    learner = Learner(Keeper({}))
    run_in(tmp_path).load_checkpoint(learner, "cpu")
    assert learner.next_task == 1


def test_checkpoint_restores_a_resized_network(tmp_path: Path):
    model = NodeClassifier(MODEL, 5, 2, torch.Generator().manual_seed(0))
    resize_layer(model, 0, delete=1, add=6, generator=torch.Generator().manual_seed(1))
    run_in(tmp_path).save_checkpoint(Learner(Keeper({}), model), [])
    restored = Learner(Keeper({}))
    run_in(tmp_path).load_checkpoint(restored, "cpu")
    assert restored.model is not None
    assert restored.model.encoder.channels == [9, 4]
    assert same(dict(restored.model.state_dict()), dict(model.state_dict()))
    with pytest.raises(InputError, match="damaged"):
        run_in(tmp_path, ModelConfig(channels=4, heads=3)).load_checkpoint(
            Learner(Keeper({})), "cpu"
        )


def test_load_checkpoint_of_another_network_is_refused(
    tmp_path: Path, make_graph: Callable[..., Graph]
):
    stream = TaskStream(make_graph(), Protocol(), seed=0)
    learner = Learner(make_method("finetune"))
    advance(learner, stream, 1)
    run_in(tmp_path).save_checkpoint(learner, [])
    wider = ModelConfig(channels=5, heads=2)
    with pytest.raises(InputError, match="damaged"):
        run_in(tmp_path, wider).load_checkpoint(Learner(make_method("finetune")), "cpu")


def test_checkpoint_of_another_run_is_refused(tmp_path: Path):
    run_in(tmp_path).save_checkpoint(Learner(Keeper({}), next_task=1), [])
    other = Run(tmp_path, SimpleNamespace(model=MODEL, hash="another"))
    with pytest.raises(InputError, match="or of another run"):
        other.load_checkpoint(Learner(Keeper({})), "cpu")
