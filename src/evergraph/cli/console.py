"""Consoles: wide in a pipe, where nobody's window limits a line."""

from __future__ import annotations

from rich.console import Console

PIPE_WIDTH = 200


def make_console(*, stderr: bool = False) -> Console:
    """Returns a console that fits its terminal, or is wide enough for any table in a pipe."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=PIPE_WIDTH)
