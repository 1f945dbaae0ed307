"""The one exception that means "the input is wrong, and here is what to do about it"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Says in one sentence which field is wrong, its value and the remedy.

    The command prints the sentence and exits with code 2; library users catch it like
    any :class:`ValueError`.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Builds the error for a name that is not registered, suggesting the nearest one."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else f"choose one of {', '.join(names)}."
    return InputError(f"Unknown {kind} '{name}': {hint}")
