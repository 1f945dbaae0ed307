"""Checkpoints: the learner after a task in one safetensors file, its plain values as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from evergraph.errors import InputError
from evergraph.experiments.files import make_folder, write_atomic
from evergraph.nn import ModelConfig, build_model
from evergraph.rng import make_generator
from evergraph.train import Learner

TENSOR = "$tensor"
FILE = "learner.safetensors"


def save_checkpoint(folder: Path, learner: Learner, done: list[dict[str, Any]]) -> None:
    """Writes the learner and the results of its tasks so far, replacing the last checkpoint.

    Args:
        folder: The run's ``checkpoint`` folder.
        learner: The learner just after a task.
        done: One record per finished task.
    """
    tensors: dict[str, Tensor] = {}
    model = learner.model
    state = {
        "next_task": learner.next_task,
        "done": done,
        "method": learner.method.state_dict(),
        "model": dict(model.state_dict()) if model is not None else None,
        "channels": model.resized_channels if model is not None else None,
    }
    document = _lift(state, tensors)
    make_folder(folder)
    content = save(tensors, metadata={"state": json.dumps(document)})
    write_atomic(folder / FILE, content)


def load_checkpoint(
    folder: Path, learner: Learner, model_config: ModelConfig, device: torch.device | str
) -> list[dict[str, Any]]:
    """Restores a learner in place; returns the records of finished tasks, [] without a file."""
    state = read_checkpoint(folder, device)
    if state is None:
        return []
    try:
        done: list[dict[str, Any]] = state["done"]
        learner.next_task = int(state["next_task"])
        learner.method.load_state_dict(state["method"])
        if state["model"] is not None:
            weights: dict[str, Tensor] = state["model"]
            model = build_model(
                model_config,
                weights["encoder.layers.0.weight"].shape[0],
                weights["head.bias"].numel(),
                make_generator(0, "restored"),
                state.get("channels"),  # only where surgery has changed them
            )
            model.load_state_dict(weights)
            learner.model = model.to(device)
    except (ValueError, KeyError, TypeError, RuntimeError):
        raise _damaged(folder) from None
    return done


def read_checkpoint(folder: Path, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """Reads what :func:`save_checkpoint` wrote as plain values and tensors, None without it."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            document = json.loads(file.metadata()["state"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        state: dict[str, Any] = _lower(document, tensors)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError):
        raise _damaged(folder) from None
    return state


def _damaged(folder: Path) -> InputError:
    return InputError(
        f"Expected a whole checkpoint in '{folder / FILE}' (it is damaged); remove the folder "
        f"'{folder}' to begin the run again."
    )


def _lift(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Replaces tensors by numbers, collecting copies: two of them may share their memory."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {TENSOR: name}
    if isinstance(value, Mapping):
        return {str(key): _lift(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_lift(item, tensors) for item in value]
    return value


def _lower(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Puts the tensors back where :func:`_lift` took them from."""
    if isinstance(value, dict):
        if value.keys() == {TENSOR}:
            return tensors[value[TENSOR]]
        return {key: _lower(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_lower(item, tensors) for item in value]
    return value
