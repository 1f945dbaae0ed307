"""Checkpoints: the learner after a task in one safetensors file, its plain values as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from evergraph.errors import InputError
from evergraph.experiments.files import make_folder, read_regular, write_atomic
from evergraph.nn import ModelConfig, NodeClassifier, build_model
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


def pack(state: Any) -> bytes:
    """Writes nested tensors and plain values as safetensors, the plain values as JSON in it."""
    tensors: dict[str, Tensor] = {}
    document = _lift(state, tensors)
    return save(tensors, metadata={"state": json.dumps(document)})


def unpack(content: bytes) -> Any:
    """Reads what :func:`pack` wrote; tensors lie on the CPU. Damaged content raises anything."""
    tensors = load(content)  # checks every declared size against the content
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return _lower(json.loads(header["__metadata__"]["state"]), tensors)


def checksum(state: Any) -> str:
    """Computes a checksum of nested tensors and plain values, the same before and after packing."""
    tensors: dict[str, Tensor] = {}
    found = hashlib.sha256(json.dumps(_lift(state, tensors)).encode())
    for tensor in tensors.values():
        found.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def to_device(value: Any, device: torch.device | str, copy: bool = False) -> Any:
    """Moves all tensors in nested values, leaving those alone that are there unless ``copy``."""
    if isinstance(value, Tensor):
        return value.detach().to(device, copy=copy)
    if isinstance(value, Mapping):
        return {key: to_device(item, device, copy) for key, item in value.items()}
    if isinstance(value, list):
        return [to_device(item, device, copy) for item in value]
    return value


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
