"""Board: memory that all workers of one machine see, on which each writes its rows for the others.

It spares them to send rows to each other. Two sheets take turns: a worker that writes on one has
read the other, and everyone has read what is there before it is written over.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import torch
from torch import Tensor

from evergraph.files import physical_memory
from evergraph.team import Team

#: What tells machines apart: the name, and when it was started.
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Board:
    """Two sheets of float32 rows, files that all workers map."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._sheets: list[Tensor] = [torch.empty(0), torch.empty(0)]
        self._turn = 0

    @classmethod
    def of(cls, team: Team, device: torch.device) -> Board | None:
        """Makes a board if all workers are on one machine, and compute on its CPU."""
        if team.size == 1 or device.type != "cpu" or os.name != "posix":
            return None
        boot = BOOT.read_text("ascii") if BOOT.exists() else ""
        here = f"{os.uname().nodename} {boot}"
        told = [team.tell({"here": here}, worker)["here"] for worker in range(team.size)]
        return cls(team) if len(set(told)) == 1 else None

    def show(self, rows: Tensor, first: int, total: int) -> Tensor:
        """Writes this worker's rows from ``first`` on; returns those of all, ``[total, b]``.

        They stay until the call after the next.
        """
        size = total * rows[0:1].numel()
        self._turn = 1 - self._turn
        if self._sheets[self._turn].numel() < size:
            self._sheets[self._turn] = self._sheet(size + size // 2)  # its pages are made once
        sheet = self._sheets[self._turn][:size].view(total, -1)
        sheet[first : first + rows.shape[0]] = rows
        self.team.wait()
        return sheet

    def _sheet(self, size: int) -> Tensor:
        """Maps a new file into the memory of all workers; it goes when the last of them does."""
        with _file(4 * size) if self.team.leads else nullcontext("") as path:
            with open(self.team.tell({"path": path})["path"], "r+b") as file:
                memory = mmap.mmap(file.fileno(), 4 * size)
            self.team.wait()
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # where Linux was built without
                memory.madvise(mmap.MADV_HUGEPAGE)  # rows that are read lie anywhere
        return torch.from_numpy(np.frombuffer(memory, dtype=np.float32))


@contextmanager
def _file(size: int) -> Iterator[str]:
    """Makes a file for a while: in memory without a name where there is room, else on disk."""
    if hasattr(os, "memfd_create") and 2 * size < physical_memory():
        file = os.memfd_create("evergraph")
        try:
            os.truncate(file, size)
            yield f"/proc/{os.getpid()}/fd/{file}"
        finally:
            os.close(file)
    else:
        with NamedTemporaryFile(prefix="evergraph-") as named:
            named.truncate(size)
            yield named.name
