"""Where a run takes place: device, versions, processor settings."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from evergraph import __version__


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
