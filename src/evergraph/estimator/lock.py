"""A lock that keeps a second writer out of a folder; readers never ask for it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from evergraph.errors import InputError
from evergraph.files import unwritable

NAME = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds a folder's lock, which the system lets go when the process ends in any way.

    Raises:
        InputError: If another process holds it, naming that process.
    """
    path = folder / NAME
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(path, flags, 0o644)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"Expected '{folder}' without another writer (got {_holder(handle)}); wait for it "
                "to end, or stop it and resume."
            ) from None
        about = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(about).encode(), 0)
        except OSError as error:
            raise unwritable(path, error) from None
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    """Describes who holds the lock, as far as the file tells."""
    try:
        about = json.loads(os.pread(handle, 1024, 0))
        return f"process {int(about['process'])} on {about['host']!s}, since {about['since']!s}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
