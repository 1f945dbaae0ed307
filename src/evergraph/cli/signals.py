"""SIGTERM as an exception, so that what is open is closed before the command ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(BaseException):
    """The process was asked to end."""


@contextmanager
def sigterm_raised() -> Iterator[None]:
    """Raises :class:`Terminated` where SIGTERM arrives; signals reach the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated
