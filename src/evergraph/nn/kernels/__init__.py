"""Compiled kernels: numba on the CPU, Triton on CUDA, imported when first needed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Literal

import torch

Family = Literal["attend", "distances", "dropout", "pairs", "sparse"]


def has_kernels(device: torch.device) -> bool:
    """Tells whether there are compiled kernels; Triton comes with PyTorch for CUDA."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return device.type == "cpu"


def kernels(family: Family, device: torch.device) -> Any:
    """Returns the module of one family of kernels, with the same functions on both devices.

    ``distances`` are compiled for CUDA alone and ``sparse`` for the CPU alone.
    """
    compiler = "triton" if device.type == "cuda" else "numba"
    return importlib.import_module(f"evergraph.nn.kernels.{compiler}_{family}")
