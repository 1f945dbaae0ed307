"""Generations: one state in one folder, with a manifest of sizes and checksums."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from evergraph.errors import InputError
from evergraph.estimator.config import SCHEMA_VERSION
from evergraph.estimator.restoring import restore_state
from evergraph.estimator.state import FILES, State
from evergraph.files import read_regular, sync_folder, unwritable, write_synced
from evergraph.validation import Config, parse

MANIFEST = "manifest.json"
Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FileEntry(Config):
    """Size and checksum of one file."""

    size: int = Field(ge=0)
    sha256: Checksum


class Manifest(Config):
    """The content of a generation's ``manifest.json``."""

    schema_version: int = Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)
    generation: int = Field(ge=0, lt=10**8)
    written: str
    files: dict[str, FileEntry]


class Damage(Exception):
    """A generation that cannot be read, with what is wrong."""


class Overtaken(Exception):
    """A generation that is not there any more."""


def write_generation(folder: Path, state: State, generation: int) -> str:
    """Writes a generation beside its place, syncs it and moves it there.

    Returns the checksum of its manifest.
    """
    files = state.to_files()
    entries = {
        name: {"size": len(content), "sha256": sha256(content)} for name, content in files.items()
    }
    written = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"schema_version": SCHEMA_VERSION, "generation": generation, "written": written}
    manifest = json.dumps({**about, "files": entries}, indent=2).encode()
    beside = folder.with_name(f".{folder.name}.new")
    try:
        for leftover in (beside, folder):  # of a writer that was killed
            if leftover.exists():
                shutil.rmtree(leftover)
        beside.mkdir()
        for name, content in {**files, MANIFEST: manifest}.items():
            write_synced(beside / name, content)
        sync_folder(beside)
        os.rename(beside, folder)
        sync_folder(folder.parent)
    except OSError as error:
        for unfinished in (beside, folder):
            shutil.rmtree(unfinished, ignore_errors=True)
        raise unwritable(folder, error) from None
    return sha256(manifest)


def read_generation(
    root: Path, folder: Path, generation: int, checksum: str | None
) -> tuple[State, str]:
    """Reads and checks a generation; returns it with the checksum of its manifest.

    Args:
        root: The state's folder, outside of which nothing is read.
        folder: The generation's.
        generation: Its number.
        checksum: What its manifest must have, None for whatever it has.

    Raises:
        Damage: If anything is wrong with it.
        Overtaken: If it is not there.
    """
    content = _content(root, folder, MANIFEST)
    found = sha256(content)
    if checksum is not None and found != checksum:
        raise Damage(MANIFEST)
    try:
        manifest = parse(Manifest, json_object(content))
    except (ValueError, RecursionError):
        raise Damage(MANIFEST) from None
    if manifest.generation != generation or set(manifest.files) != set(FILES):
        raise Damage(MANIFEST)
    files = {}
    for name, entry in manifest.files.items():
        files[name] = content = _content(root, folder, name)
        if len(content) != entry.size or sha256(content) != entry.sha256:
            raise Damage(name)
    try:
        return restore_state(files), found
    except Exception:  # checksums hold, so that somebody wrote nonsense
        raise Damage("its content") from None


def _content(root: Path, folder: Path, name: str) -> bytes:
    try:
        return read_regular(folder / name, root)
    except FileNotFoundError:
        if not folder.exists():
            raise Overtaken from None
        raise Damage(name) from None
    except OSError:
        raise Damage(name) from None


def json_object(content: bytes) -> Mapping[str, Any]:
    """Reads JSON that must be an object."""
    value = json.loads(content)
    if not isinstance(value, dict):
        raise InputError("Expected a JSON object (got something else); restore the file.")
    return value


def sha256(content: bytes) -> str:
    """Computes a checksum."""
    return hashlib.sha256(content).hexdigest()
