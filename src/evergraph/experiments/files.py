"""Files that are either whole or absent: written beside, synced, then renamed."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from evergraph.errors import InputError
from evergraph.nn.footprint import total_memory


def write_atomic(path: Path, content: bytes) -> None:
    """Replaces a file in one step; a reader sees the old or the new content, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        write_synced(beside, content)
        os.replace(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise unwritable(path, error) from None


def write_synced(path: Path, content: bytes) -> None:
    """Writes a file and waits until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Waits until the disk has the names in a folder, where the system can do that."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> InputError:
    """Builds the error for a file that cannot be written."""
    return InputError(
        f"Expected to write '{path}' (got: {error.strerror}); free space or choose another "
        "folder (--output)."
    )


def read_regular(path: Path, root: Path | None = None) -> bytes:
    """Reads a whole file that may come from anyone; follows no link that leads elsewhere.

    A pipe or a device is not waited for, and a file larger than the memory is not read.

    Args:
        path: The file.
        root: The folder that it lies in: no part of the path below it may be a link. Without
            it links are followed.

    Raises:
        OSError: If there is no such regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    if root is not None:
        flags |= os.O_NOFOLLOW
        for part in path.relative_to(root).parents:
            if (root / part) != root and (root / part).is_symlink():
                raise OSError(0, f"'{root / part}' is a link")
    handle = os.open(path, flags)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "not a regular file")
        if about.st_size > total_memory(torch.device("cpu")):
            raise OSError(0, "larger than the memory")
        return file.read(about.st_size)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON atomically; NaN and infinity are refused, not written."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """Reads JSON, turning a missing or broken file into one sentence."""
    try:
        return json.loads(read_regular(path).decode())
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not valid JSON"
        raise InputError(
            f"Expected to read '{path}' (got: {reason}); restore it or remove its folder."
        ) from None


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, in one sentence if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Expected to create the folder '{path}' (got: {error.strerror}); choose another "
            "--output."
        ) from None


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Gives a name beside a folder to write to, and puts what is there in the folder's place."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    make_folder(folder.parent)
    shutil.rmtree(beside, ignore_errors=True)
    yield beside
    if folder.exists():
        shutil.rmtree(folder)
    beside.rename(folder)
