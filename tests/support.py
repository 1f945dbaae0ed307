"""What tests of the command share: its answer, and settings that make runs take a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
