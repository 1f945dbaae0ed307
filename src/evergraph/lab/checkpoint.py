"""Checkpoints: the learner after a task in one safetensors file, its plain values as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

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
from evergraph.nn import ModelConfig
from evergraph.train import Learner, learner_state, restore_learner

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
