"""What tests share: small graphs, the command's answer, compiling kernels for an absent GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from evergraph.stream import Adjacency

QUICK = (
    *("--set", "epochs=2", "--set", "link_epochs=2"),
    *("--set", "channels=4", "--set", "heads=2"),
)


class Answer(NamedTuple):
    """What a command answered."""

    code: int | str | None
    out: str
    err: str


Command = Callable[..., Answer]


def adjacency(n: int, pairs: Iterable[tuple[int, int]]) -> Adjacency:
    """Builds an undirected graph of ``n`` nodes; loops and repetitions are dropped."""
    pairs = list(pairs)
    both = sorted({(a, b) for a, b in pairs if a != b} | {(b, a) for a, b in pairs if a != b})
    return Adjacency.from_edges(torch.tensor(both, dtype=torch.int64).reshape(-1, 2).T, n)


def seeded(seed: int = 0) -> torch.Generator:
    """Makes a generator."""
    return torch.Generator().manual_seed(seed)


def run_compiler(code: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Runs code that compiles Triton kernels, in a process where they are not interpreted."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(cache)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
