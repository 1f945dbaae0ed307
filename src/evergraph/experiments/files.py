"""Files that are either whole or absent: written beside, synced, then renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from evergraph.errors import InputError


def write_atomic(path: Path, content: bytes) -> None:
    """Replaces a file in one step; a reader sees the old or the new content, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(
            f"Expected to write '{path}' (got: {error.strerror}); free space or choose another "
            "--output."
        ) from None


def write_json(path: Path, content: Any) -> None:
    """Writes JSON atomically; NaN and infinity are refused, not written."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """Reads JSON, turning a missing or broken file into one sentence."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
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
