"""Signals as exceptions, so that what is open is closed before the command ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(BaseException):
    """The process was asked to end."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C.

    Python takes note of a plain ``KeyboardInterrupt`` that passes through ``exec``, which libraries
    use, and kills ``python -m evergraph`` at its end although it was caught. It lets others pass.
    """


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raises where SIGTERM or Ctrl-C arrives; signals reach the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _terminate)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored
        before[signal.SIGINT] = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
