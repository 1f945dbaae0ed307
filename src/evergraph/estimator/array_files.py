"""Array files: large features beside a state's database, in files that only grow, mapped to memory.

The database says how many bytes of a file count, and has their checksums: what is behind them was
not committed, and is written over. Those that count are never written again, and no file is cut to
fewer: readers may have them in their memory. Features alone are kept so: whoever changes a file
that is being read changes numbers, and no row or pointer that compiled code trusts.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evergraph.errors import InputError
from evergraph.files import sync_folder

if TYPE_CHECKING:
    from evergraph.estimator.graph import Array

#: The names of array files: a base between two words.
NAME = re.compile(r"state\.[0-9]{1,19}-[0-9]{1,4}\.array")
#: Bytes from which on an array has a file.
LARGE = 1 << 24
#: Rows that are read of a file before its pages are dropped.
MANY = 1000
#: The same numbers on Linux and macOS, where a file can be mapped in front of free memory.
PROT_READ_WRITE, MAP_PRIVATE, MAP_FIXED = 3, 2, 16


@dataclass
class Mapped:
    """Memory whose first bytes are a file's; a page that is written to is the process's own."""

    memory: mmap.mmap
    size: int
    rows: int = 0  # that were read since the file's pages were dropped
    held: bool = False  # as long as a change reads them again and again

    def count(self, rows: int) -> None:
        """Drops the file's pages once many rows were read: each may have brought 64 KB.

        The system has them still, for all processes that read the file, as long as there is room.
        """
        self.rows += rows
        if self.rows > MANY and not self.held:
            self.memory.madvise(mmap.MADV_DONTNEED, 0, self.size)
            self.rows = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps the file's pages until the end."""
        self.held = True
        try:
            yield
        finally:
            self.held = False
            self.count(0)


class ArrayFiles:
    """The array files of one folder; what is written can be taken back until it is committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before: dict[Path, int] = {}

    def path(self, base: str) -> Path:
        """Names the file of a base, which may come from anyone."""
        name = f"state.{base}.array"
        if not NAME.fullmatch(name):
            raise ValueError("the name of a base")
        return self.folder / name

    def has(self, base: str, size: int) -> bool:
        """Tells whether a file is there and has so many bytes."""
        with suppress(OSError):
            return os.lstat(self.path(base)).st_size >= size
        return False

    def append(self, base: str, start: int, data: memoryview) -> None:
        """Writes bytes behind those that count, and waits until the disk has them."""
        path = self.path(base)
        if not start:
            path.unlink(missing_ok=True)  # of a writer that was killed
        with _opened(path, os.O_WRONLY | (0 if start else os.O_CREAT | os.O_EXCL)) as file:
            self._before[path] = os.fstat(file).st_size
            os.lseek(file, start, os.SEEK_SET)
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        if not start:
            sync_folder(self.folder)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Frees the room of what was appended within if anything is raised."""
        try:
            yield
        except BaseException:
            for path, size in self._before.items():
                with suppress(OSError):
                    os.truncate(path, size)
                    if not size:
                        path.unlink()
            raise

    def keep(self, bases: set[str]) -> None:
        """Deletes the files of other bases; one that is in use may stay for the next time."""
        there = {f"state.{base}.array" for base in bases}
        for name in os.listdir(self.folder):
            if NAME.fullmatch(name) and name not in there:
                with suppress(OSError):
                    (self.folder / name).unlink()

    @contextmanager
    def reading(self, base: str, size: int) -> Iterator[int]:
        """Opens a file that has at least so many bytes."""
        with _opened(self.path(base), os.O_RDONLY) as file:
            if os.fstat(file).st_size < size:
                raise ValueError("a file that is too short")
            yield file


def map_file(file: int, size: int, room: int) -> tuple[Array, Mapped | None]:
    """Maps bytes of a file, with room behind them that is memory of this process alone.

    Returns also what is mapped, None where the system has no such way: there they are read.
    """
    mapped, start = None, 0
    found = np.empty(0, dtype=np.uint8)
    if sys.platform != "win32" and size >= mmap.PAGESIZE:
        memory = mmap.mmap(-1, size + room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        found, start = np.frombuffer(memory, dtype=np.uint8), size // mmap.PAGESIZE * mmap.PAGESIZE
        mapped = Mapped(memory, start)
        place = ctypes.CDLL(None, use_errno=True).mmap
        place.restype, place.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
        place.argtypes += [ctypes.c_int] * 3 + [ctypes.c_long]
        address, flags = found.ctypes.data, MAP_PRIVATE | MAP_FIXED
        if place(address, start, PROT_READ_WRITE, flags, file, 0) != address:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    else:
        found = np.empty(size + room, dtype=np.uint8)
    for at, block in read_blocks(file, start, size):
        found[at : at + len(block)] = np.frombuffer(block, dtype=np.uint8)
    return found, mapped


def read_blocks(file: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Reads bytes of a file in blocks, with the place of each."""
    os.lseek(file, start, os.SEEK_SET)
    while start < end:
        block = os.read(file, min(1 << 20, end - start))
        if not block:
            raise ValueError("a file that is too short")
        yield start, block
        start += len(block)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Opens a regular file that may come from anyone; no link is followed, no pipe waited for."""
    with suppress(FileNotFoundError):
        check_regular(path)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    file = os.open(path, flags, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def check_regular(path: Path) -> None:
    """Refuses links, pipes and whatever else is no file, by its name alone."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise InputError(
            f"Expected '{path}' to be a regular file (got a link or something else); put the file "
            "there."
        )
