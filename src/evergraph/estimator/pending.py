"""Pending: the change that is being learned, on disk so that a kill cannot lose it."""

from __future__ import annotations

from pathlib import Path

from evergraph.errors import InputError
from evergraph.estimator.change import Change
from evergraph.estimator.config import SCHEMA_VERSION
from evergraph.estimator.generations import sha256
from evergraph.files import pack, read_regular, sync_folder, unpack, unwritable, write_atomic


class Pending:
    """The note of a change in a state's folder; writing and clearing need the folder's lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "pending.safetensors"

    def write(self, change: Change, base: int) -> None:
        """Notes a change to the generation ``base`` before it is learned."""
        about = {"schema_version": SCHEMA_VERSION, "base": base}
        content = pack({**about, "change": change.to_state()})
        write_atomic(self.path, sha256(content).encode() + content)

    def read(self) -> tuple[Change, int] | None:
        """Returns the change and the generation that it belongs to, None without a note."""
        if not self.path.exists():
            return None
        try:
            content = read_regular(self.path, self.root)
            if content[:64] != sha256(content[64:]).encode():
                raise ValueError("checksum")
            state = unpack(content[64:])
            if state["schema_version"] != SCHEMA_VERSION:
                raise ValueError("version")
            return Change.from_state(state["change"]), int(state["base"])
        except Exception:  # whatever foreign bytes bring about
            raise InputError(
                f"Expected a whole change in '{self.path}' (it is damaged); remove the file and "
                "give the change again."
            ) from None

    def clear(self) -> None:
        """Forgets a change that is part of the current generation, or was refused."""
        try:
            self.path.unlink(missing_ok=True)
            sync_folder(self.root)
        except OSError as error:
            raise unwritable(self.path, error) from None
