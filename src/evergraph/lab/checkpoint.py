"""Checkpoints: the learner after a task in one safetensors file, its plain values as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.files import (
    checksum,
    make_folder,
    pack,
    read_regular,
    to_device,
    unpack,
    write_atomic,
)
from evergraph.nn import ModelConfig, NodeClassifier, build_model
from evergraph.rng import make_generator
from evergraph.train import Learner

FILE = "learner.safetensors"


def save_checkpoint(folder: Path, learner: Learner, done: list[dict[str, Any]]) -> None:
    """Writes the learner and the results of its tasks so far, replacing the last checkpoint.

    Args:
        folder: The run's ``checkpoint`` folder.
        learner: The learner just after a task.
        done: One record per finished task.
    """
    make_folder(folder)
    state = {**learner_state(learner), "done": done}
    write_atomic(folder / FILE, pack({"sha256": checksum(state), **state}))


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
        state: dict[str, Any] = unpack(read_regular(path))
        whole = state.pop("sha256") == checksum(state)
    except Exception:  # damaged content raises anything
        whole = False
    if not whole:
        raise _damaged(folder)
    state = to_device(state, device)
    return state


def _damaged(folder: Path) -> InputError:
    return InputError(
        f"Expected a whole checkpoint in '{folder / FILE}' (it is damaged); remove the folder "
        f"'{folder}' to begin the run again."
    )


def learner_state(learner: Learner) -> dict[str, Any]:
    """Returns nested tensors and plain values that :func:`restore_learner` takes back."""
    model = learner.model
    return {
        "next_task": learner.next_task,
        "method": learner.method.state_dict(),
        "model": dict(model.state_dict()) if model is not None else None,
        "channels": model.resized_channels if model is not None else None,
    }


def restore_learner(
    learner: Learner,
    state: Mapping[str, Any],
    model_config: ModelConfig,
    device: torch.device | str,
) -> None:
    """Takes back what :func:`learner_state` returned; a wrong state raises anything."""
    learner.next_task = int(state["next_task"])
    learner.method.load_state_dict(state["method"])
    if state["model"] is not None:
        learner.model = _restore_model(state, model_config).to(device)
    learner.method.check_fit(learner.model)


def _restore_model(state: Mapping[str, Any], model_config: ModelConfig) -> NodeClassifier:
    weights: dict[str, Tensor] = state["model"]
    channels = state.get("channels")  # only where surgery has changed them
    in_dim, num_classes = weights["encoder.layers.0.weight"].shape[0], weights["head.bias"].numel()
    _check_size(model_config, in_dim, channels, weights)
    generator = make_generator(0, "restored")
    model = build_model(model_config, in_dim, num_classes, generator, channels)
    model.load_state_dict(weights)
    return model


def _check_size(
    config: ModelConfig, in_dim: int, channels: list[int] | None, weights: Mapping[str, Tensor]
) -> None:
    """Refuses a configuration of a larger network than is stored, before it is allocated."""
    stored = sum(weight.numel() for weight in weights.values())
    if channels is None:
        if config.num_layers > stored:
            raise ValueError("more layers than weights")
        channels = [config.channels] * config.num_layers
    declared = 0
    for width in (heads * config.heads for heads in channels):
        declared += in_dim * width
        in_dim = width
    if declared > stored or any(width < 1 for width in channels):
        raise ValueError("more weights declared than stored")
