"""Board: memory that all workers of one machine see, on which each writes its rows for the others.

It spares them to send rows to each other. Two sheets take turns: a worker that writes on one has
read the other, and everyone has read what is there before it is written over.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from zlib import crc32

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
        self._shapes: list[tuple[int, int]] = [(0, 0), (0, 0)]  # of their last rows
        self._turn = 0

    @classmethod
    def of(cls, team: Team, device: torch.device) -> Board | None:
        """Makes a board if all workers are on one machine, and compute on its CPU."""
        if team.size == 1 or device.type != "cpu" or os.name != "posix":
            return None
        boot = BOOT.read_text("ascii") if BOOT.exists() else ""
        here = crc32(f"{os.uname().nodename} {boot}".encode())
        return cls(team) if torch.unique(team.gather(torch.tensor([here]))).numel() == 1 else None

    def room(self, count: int, first: int, total: int, width: int) -> Tensor:
        """Returns where a worker may compute the rows that it shows next, ``[count, width]``."""
        return self._next(total, width)[first : first + count]

    def show(self, rows: Tensor, first: int, total: int) -> Tensor:
        """Writes this worker's rows from ``first`` on; returns those of all, ``[total, b]``.

        They stay until the call after the next.
        """
        sheet = self._next(total, math.prod(rows.shape[1:]))
        self._turn = 1 - self._turn
        own = sheet[first : first + rows.shape[0]]
        if own.data_ptr() != rows.data_ptr():  # else they were computed there
            own.copy_(rows)
        self.team.wait()
        return sheet

    def _next(self, total: int, width: int) -> Tensor:
        """Returns the sheet whose turn it is next, ``[total, width]``."""
        size, turn = total * width, 1 - self._turn
        if self._sheets[turn].numel() < size:
            self._sheets[turn] = self._sheet(size + size // 2)  # its pages are made once
        if self._shapes[turn] != (total, width):
            self._shapes[turn] = (total, width)
            self.team.wait()  # rows of others lie elsewhere then, who may still read their own
        return self._sheets[turn][:size].view(total, width)

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
