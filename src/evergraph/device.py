"""Where numbers are computed and drawn: the device, its memory, and generators on it.

Every generator is derived from one seed and a purpose, none is global. Where an even sample will
do, there is one without any.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from evergraph.errors import InputError
from evergraph.files import physical_memory

#: Share of the memory that training may take.
SHARE = 0.8
SAMPLED_BATCH = 1024


@dataclass(frozen=True)
class Plan:
    """How a run is trained: on whole graphs, or on sampled parts of ``batch_size`` nodes."""

    batch_size: int | None
    reason: str

    @property
    def mode(self) -> str:
        """Names the mode in a few words."""
        return "full batch" if self.batch_size is None else f"sampled, {self.batch_size} nodes"


def total_memory(device: torch.device) -> int:
    """Returns the memory of a device in bytes, whoever uses it now."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return physical_memory()


def free_memory(device: torch.device) -> int:
    """Returns the bytes of a device's memory that are free now; all where nobody tells."""
    if device.type == "cuda":
        ours = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + ours
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if "MemAvailable" in line).split()[1])
    return physical_memory()


def warn_of_memory(what: str, needed: int, device: torch.device) -> None:
    """Warns before something is done that takes more memory than is free."""
    free = free_memory(device)
    if needed > free:
        warnings.warn(
            f"{what} takes about {size_text(needed)}, and {size_text(free)} of memory are free: "
            "the system may stop the process; end other work, or give less at once.",
            stacklevel=2,
        )


def trim_memory() -> None:
    """Gives memory that is free back to the system, where the C library would keep it (glibc)."""
    with suppress(AttributeError, OSError, TypeError):  # other libraries do so themselves
        ctypes.CDLL(None).malloc_trim(0)


def make_plan(batch_size: int | str, needed: int, memory: int) -> Plan:
    """Chooses the mode: what was asked for, or whole graphs if they fit."""
    figures = f"the whole graph needs about {size_text(needed)} of {size_text(memory)}"
    if batch_size == "auto":
        return Plan(None if needed <= SHARE * memory else SAMPLED_BATCH, figures)
    return Plan(None if batch_size == "full" else int(batch_size), f"as asked; {figures}")


def size_text(count: int) -> str:
    """Says how many bytes these are."""
    return f"{count / 1e9:.2f} GB"


def pick_device(name: str) -> torch.device:
    """Turns ``auto``, ``cpu`` or ``cuda`` into a device, refusing a GPU that is not there."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    if not re.fullmatch(r"(cpu|cuda)(:\d{1,2})?", name):
        raise InputError(
            f"Expected '--device' auto, cpu or cuda (got '{name}'); choose one of these."
        )
    device = torch.device(name)
    count = torch.cuda.device_count() if available else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise InputError(
            f"Expected a CUDA device for '--device' (got '{name}', but PyTorch finds "
            f"{count or 'none'}); use --device cpu{' or a lower number' if count else ''}."
        )
    return device


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


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Hashes a seed and a purpose into an independent 63-bit seed."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def make_generator(
    seed: int, *purpose: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Returns a fresh generator for one purpose, the same for the same arguments."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, *purpose))


def evenly_spaced(count: int, most: int, device: torch.device) -> torch.Tensor:
    """Returns at most so many of ``count`` places, evenly spaced."""
    return torch.arange(0, count, max(1, -(-count // most)), device=device)
