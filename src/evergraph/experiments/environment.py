"""Where a run takes place: device, versions, processor settings."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from evergraph import __version__
from evergraph.errors import InputError


def pick_device(name: str) -> torch.device:
    """Turns ``auto``, ``cpu`` or ``cuda`` into a device, refusing a GPU that is not there."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(
            f"Expected '--device' auto, cpu or cuda (got '{name}'); choose one of these."
        ) from None
    if device.type not in {"cpu", "cuda"}:
        raise InputError(
            f"Expected '--device' auto, cpu or cuda (got '{name}'); choose one of these."
        )
    if device.type == "cuda" and not available:
        raise InputError(
            f"Expected a CUDA device for '--device' (got '{name}', but PyTorch finds none); "
            "use --device cpu."
        )
    return device


def environment(device: torch.device) -> dict[str, Any]:
    """Describes where the run took place."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    packages = ("torch", "torch-geometric", "numpy", "scikit-learn", "safetensors")
    return {
        "python": sys.version.split()[0],
        "packages": {"evergraph": __version__} | {name: _version(name) for name in packages},
        "commit": _commit(),
        "platform": platform.platform(),
        "device": device.type,
        "device_name": name,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """Returns the commit of the source tree, None when it is not a checkout."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Treats denormal numbers as zero on the CPU.

    Adam's moments of unused weights decay into them, which makes steps ten times slower.
    """
    tiny = torch.full((1,), 1e-310, dtype=torch.float64)
    already = not bool((tiny * 1.0).any())
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)
