"""The lab: runs, grids, tuning, the paper and its verdicts, the report, the command."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from evergraph.errors import InputError


def import_extra(module: str, extra: str, what: str) -> Any:
    """Imports a module that comes with an extra, or says what it is for and how to get it."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(
            f"Expected {what} (it is not installed); install the extra with pip install "
            f"'evergraph[{extra}]'."
        ) from None
