"""StateFolder: an estimator on disk, which changes by whole generations.

``current.json`` names a generation and the checksum of its manifest; the manifest names the
generation's files with sizes and checksums. A generation is written beside, synced and renamed
before ``current.json`` is switched to it; the one before it stays. ``pending.safetensors`` is a
change that is being learned. Nothing outside the folder is read and no link is followed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from evergraph.errors import InputError
from evergraph.estimator.config import SCHEMA_VERSION
from evergraph.estimator.generations import (
    Checksum,
    Damage,
    Overtaken,
    json_object,
    read_generation,
    write_generation,
)
from evergraph.estimator.lock import locked
from evergraph.estimator.pending import Pending
from evergraph.estimator.state import State
from evergraph.files import (
    make_folder,
    read_regular,
    write_atomic,
)
from evergraph.validation import Config, parse

#: Generations that are kept: the current one and the one before it.
KEPT = 2
#: A reader that is overtaken by this many writers gives up.
ATTEMPTS = 20
_NAME = re.compile(r"\d{8}")
_LEFTOVER = re.compile(r"\.\d{8}\.(new|old)")


class Pointer(Config):
    """The content of ``current.json``."""

    schema_version: int = Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)
    generation: int = Field(ge=0, lt=10**8)
    manifest: Checksum


class Newer(InputError):
    """A state that a later release wrote: not damaged, but not for us."""


class StateFolder:
    """The folder of one estimator."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.current = path / "current.json"
        self.generations = path / "generations"
        self.pending = Pending(path)

    @property
    def exists(self) -> bool:
        """Tells whether this folder holds, or was about to hold, a state."""
        return self.current.exists() or self.generations.exists()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Creates the folder if need be and keeps other writers out."""
        fresh = not self.path.exists()
        if not fresh and not self.exists and any(not _ours(p.name) for p in self._entries()):
            raise InputError(
                f"Expected a state or an empty folder (got '{self.path}', which holds other files)"
                "; choose another folder."
            )
        make_folder(self.path)
        if self.generations.is_symlink():  # what is removed there would be somebody else's
            raise InputError(
                f"Expected '{self.generations}' to be a folder (got a link); put the folder there."
            )
        with locked(self.path):
            make_folder(self.generations)
            self._tidy()
            yield

    def _entries(self) -> Iterator[Path]:
        try:
            yield from self.path.iterdir()
        except OSError as error:
            raise InputError(
                f"Expected '{self.path}' to be a folder (got: {error.strerror}); choose another."
            ) from None

    def generation(self) -> int | None:
        """Returns the number of the current generation, None when there is none yet."""
        if not self.exists:
            return None
        return self._pointer().generation if self.current.exists() else None

    def generation_or_none(self) -> int | None:
        """Returns the number of the current generation if it can be told."""
        try:
            return self.generation()
        except InputError:
            return None

    @property
    def has_generations(self) -> bool:
        """Tells whether any generation is there, whole or not."""
        return bool(self._numbers())

    def load(self, generation: int | None = None) -> tuple[State, int]:
        """Reads a generation, the current one by default, and its number.

        A writer is never waited for: a generation that goes away meanwhile is followed by a
        newer one, which is read instead.
        """
        self._check_there()
        for _ in range(ATTEMPTS):
            pointer = self._pointer()
            wanted = pointer.generation if generation is None else generation
            try:
                checksum = pointer.manifest if wanted == pointer.generation else None
                return self._read(wanted, checksum)[0], wanted
            except Overtaken:
                if generation is not None:
                    break
            except Damage as damage:
                raise self._damaged(wanted, str(damage)) from None
        raise InputError(
            f"Expected generation {generation if generation is not None else 'current'} in "
            f"'{self.path}' (got {self._listing()}); choose one of these."
        )

    def commit(self, state: State, generation: int) -> None:
        """Writes a generation, switches to it and lets older ones go; needs the lock."""
        checksum = write_generation(self._folder(generation), state, generation)
        try:
            self._switch(generation, checksum)
        except InputError:
            if self.generation_or_none() != generation:  # nobody was told that it is there
                shutil.rmtree(self._folder(generation), ignore_errors=True)
            raise
        self._prune(generation)

    def roll_back(self) -> int | None:
        """Switches to the newest whole generation if the current one is damaged; needs the lock.

        Returns the generation switched to, None if there was no need.
        """
        try:
            pointer = self._pointer()
            self._read(pointer.generation, pointer.manifest)
        except Newer:
            raise
        except (InputError, Damage, Overtaken):
            for number in sorted(self._numbers(), reverse=True):
                try:
                    _, checksum = self._read(number, None)
                except (Damage, Overtaken):
                    continue
                self._switch(number, checksum)
                return number
            raise InputError(
                f"Expected a whole generation in '{self.path}' (got {self._listing()}, all "
                "damaged); restore a copy of the folder."
            ) from None
        return None

    def _read(self, generation: int, checksum: str | None) -> tuple[State, str]:
        return read_generation(self.path, self._folder(generation), generation, checksum)

    def _pointer(self) -> Pointer:
        try:
            content = json_object(read_regular(self.current, self.path))
            version = content.get("schema_version")
            if isinstance(version, int) and version > SCHEMA_VERSION:
                raise Newer(
                    f"Expected a state of version {SCHEMA_VERSION} in '{self.path}' (got "
                    f"{version}); use the release of evergraph that wrote it, or a newer one."
                )
            return parse(Pointer, content)
        except Newer:
            raise
        except (OSError, ValueError, RecursionError):
            raise InputError(
                f"Expected '{self.current}' to name a generation (it is damaged or missing); run "
                f"'evergraph resume {self.path}', which takes the newest whole one."
            ) from None

    def _switch(self, generation: int, checksum: str) -> None:
        content = {
            "schema_version": SCHEMA_VERSION,
            "generation": generation,
            "manifest": checksum,
        }
        write_atomic(self.current, json.dumps(content).encode())

    def _tidy(self) -> None:
        """Removes what a writer that was killed has left."""
        for leftover in self.path.glob(".*.new"):
            leftover.unlink(missing_ok=True)
        for leftover in self.generations.iterdir():
            if _LEFTOVER.fullmatch(leftover.name):
                shutil.rmtree(leftover, ignore_errors=True)
        current = self.generation_or_none()
        if current is not None:
            self._prune(current)

    def _prune(self, generation: int) -> None:
        """Removes generations that nobody needs; what cannot be removed may stay."""
        for number in self._numbers():
            if number <= generation - KEPT:
                doomed = self._folder(number)
                hidden = doomed.with_name(f".{doomed.name}.old")
                try:
                    os.rename(doomed, hidden)  # at once, so that no reader sees a part
                except OSError:
                    continue
                shutil.rmtree(hidden, ignore_errors=True)

    def _numbers(self) -> list[int]:
        if not self.generations.is_dir():
            return []
        names = (entry.name for entry in self.generations.iterdir())
        return sorted(int(name) for name in names if _NAME.fullmatch(name))

    def _folder(self, generation: int) -> Path:
        return self.generations / f"{generation:08d}"

    def _listing(self) -> str:
        return ", ".join(map(str, self._numbers())) or "none"

    def _check_there(self) -> None:
        if not self.exists:
            raise InputError(
                f"Expected '{self.path}' to hold the state of an estimator (got none); check the "
                "path or learn into it first."
            )

    def _damaged(self, generation: int, what: str) -> InputError:
        others = [number for number in self._numbers() if number != generation]
        remedy = "restore a copy of the folder"
        if others:
            remedy = (
                f"generation {others[-1]} is still there: read it as such, or run 'evergraph "
                f"resume {self.path}' to go back to it"
            )
        return InputError(
            f"Expected generation {generation} in '{self.path}' to be whole (got damage in {what})"
            f"; {remedy}."
        )


def _ours(name: str) -> bool:
    """Tells whether a file may be left of a writer that was killed while it made the folder."""
    return name == "lock" or name.endswith(".new")
