"""The one exception that means "the input is wrong, and here is what to do about it"."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Says in one sentence which field is wrong, its value and the remedy.

    The command prints the sentence and exits with code 2; in Python, catch it like any
    :class:`ValueError`. Text from a file cannot break the line or make it endless: control
    characters are escaped, and the middle of a long sentence is left out.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


#: More characters than this are not read by anybody.
MAX_SENTENCE = 1000


def one_line(text: str) -> str:
    """Makes a text printable in one line of bearable length."""
    if not text.isprintable():
        escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        text = "".join(escaped)
    if len(text) <= MAX_SENTENCE:
        return text
    return f"{text[: MAX_SENTENCE // 2]} … {text[-MAX_SENTENCE // 2 :]}"


def warn(text: str) -> None:
    """Warns at the line that called the package, however far that is."""
    frame, level = sys._getframe(1), 2
    while frame.f_globals.get("__name__", "").startswith("evergraph.") and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def no_effect(settings: Iterable[str], method: str) -> str:
    """Says which settings a method does not use."""
    *first, last = (f"'{key}'" for key in sorted(settings))
    if not first:
        return f"Setting {last} has no effect on {method}"
    return f"Settings {', '.join(first)} and {last} have no effect on {method}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Builds the error for a name that is not registered, suggesting the nearest one."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else f"choose one of {', '.join(names)}."
    return InputError(f"Unknown {kind} '{name}': {hint}")


def import_extra(module: str, extra: str, what: str) -> Any:
    """Imports a module that comes with an extra, or says what it is for and how to get it."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(
            f"Expected {what} (it is not installed); install the extra with pip install "
            f"'evergraph[{extra}]'."
        ) from None
