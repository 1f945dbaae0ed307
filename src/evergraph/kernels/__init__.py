"""Compiled kernels: numba on the CPU, Triton on CUDA, imported when first needed."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any, Literal

import torch

Family = Literal["attend", "distances", "dropout", "pairs", "sparse"]


def has_kernels(device: torch.device) -> bool:
    """Tells whether there are compiled kernels; Triton comes with PyTorch for CUDA."""
    if device.type == "cuda":
        return _has_triton()
    return device.type == "cpu"


def kernels(family: Family, device: torch.device) -> Any:
    """Returns the module of one family of kernels, with the same functions on both devices.

    ``distances`` are compiled for CUDA alone and ``sparse`` for the CPU alone.
    """
    return _module("triton" if device.type == "cuda" else "numba", family)


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def _module(compiler: str, family: Family) -> Any:
    """Asking Python's import system at every call takes as long as a small kernel."""
    return importlib.import_module(f"evergraph.kernels.{compiler}_{family}")
