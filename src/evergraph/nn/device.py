"""Where a network runs: the device, its memory, and whether whole graphs fit in it."""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from evergraph.errors import InputError
from evergraph.files import physical_memory
from evergraph.nn.model import ModelConfig

#: Bytes per directed edge: the graph with and without self-loops, and the link predictor's draws.
BYTES_PER_EDGE = 120
#: Rows of the width of a layer that one layer holds at its peak, forward and backward.
ROWS_PER_LAYER = 10
#: The same per edge on the plain path: 3.9 were measured with second derivatives, 2.7 without.
PLAIN_ROWS_PER_EDGE = 5
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


def training_bytes(
    num_nodes: int,
    num_edges: int,
    num_feature_values: int,
    config: ModelConfig,
    *,
    channels: int | None = None,
    plain: bool = False,
) -> int:
    """Estimates the peak of training on the whole graph, whose edges are counted both ways.

    ``channels`` is the width of one head where a method may grow it, ``plain`` the attention that
    can be differentiated twice.
    """
    width = (channels or config.channels) * config.heads
    rows = num_nodes * ROWS_PER_LAYER
    if plain and config.backbone == "gat":
        rows += (num_edges + num_nodes) * PLAIN_ROWS_PER_EDGE
    return BYTES_PER_EDGE * num_edges + 4 * (
        rows * width * config.num_layers + 3 * num_feature_values
    )


def check_network(config: ModelConfig, num_features: int, memory: int) -> None:
    """Refuses a network whose weights, gradients and Adam's averages do not fit in the memory."""
    width = config.channels * config.heads
    weights = width * (num_features + width * (config.num_layers - 1))
    if 16 * weights > memory:
        raise InputError(
            f"Expected 'channels', 'heads' and 'num_layers' of a network that fits in "
            f"{_size(memory)} (got one of {_size(16 * weights)}); lower them."
        )


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
            f"{what} takes about {_size(needed)}, and {_size(free)} of memory are free: the system "
            "may stop the process; end other work, or give less at once.",
            stacklevel=2,
        )


def trim_memory() -> None:
    """Gives memory that is free back to the system, where the C library would keep it (glibc)."""
    with suppress(AttributeError, OSError, TypeError):  # other libraries do so themselves
        ctypes.CDLL(None).malloc_trim(0)


def make_plan(batch_size: int | str, needed: int, memory: int) -> Plan:
    """Chooses the mode: what was asked for, or whole graphs if they fit."""
    figures = f"the whole graph needs about {_size(needed)} of {_size(memory)}"
    if batch_size == "full":
        return Plan(None, f"as asked; {figures}")
    if batch_size != "auto":
        return Plan(int(batch_size), f"as asked; {figures}")
    if needed <= SHARE * memory:
        return Plan(None, figures)
    return Plan(SAMPLED_BATCH, figures)


def _size(count: int) -> str:
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
