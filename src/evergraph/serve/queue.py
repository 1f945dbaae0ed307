"""Queue: changes that were accepted, in a database beside the state, until they are learned."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from evergraph.errors import InputError
from evergraph.estimator.store import connect

NAME = "queue.sqlite"
#: Marks our queues; the version of their table.
APPLICATION, SCHEMA_VERSION = 0x65766771, 1
TABLE = """CREATE TABLE IF NOT EXISTS change (number INTEGER PRIMARY KEY AUTOINCREMENT,
key TEXT NOT NULL UNIQUE, digest BLOB NOT NULL, form TEXT NOT NULL, body BLOB, status TEXT NOT NULL,
sentence TEXT NOT NULL DEFAULT '', version INTEGER, deaths INTEGER NOT NULL DEFAULT 0,
received TEXT NOT NULL, ended TEXT)"""
#: Most changes that wait, and bytes of them; most finished ones that are remembered.
MOST_WAITING, MOST_BYTES, REMEMBERED = 100, 1 << 28, 10_000
WAITING = "status IN ('queued', 'learning')"
TOLD = "number, status, sentence, version, received, ended"
SHOWN = f"key, {TOLD}"


class Full(Exception):
    """There is no room for another change at present."""


class Queue:
    """The database, opened anew for every operation: threads and processes share it."""

    def __init__(self, folder: Path, most: int = MOST_WAITING) -> None:
        self.path, self.most = folder / NAME, most
        try:
            with self._open() as db:
                self._make(db)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                told = f"to open '{self.path}' (got: {error}); check the disk"
            else:
                told = f"'{self.path}' to be a queue (got another file); move it away"
            raise InputError(f"Expected {told}.") from None

    def _make(self, db: sqlite3.Connection) -> None:
        """Makes the table if nothing is there; what others made is left alone."""
        keys = ("application_id", "user_version")
        about = [db.execute(f"PRAGMA {key}").fetchone()[0] for key in keys]
        if about == [0, 0] and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("BEGIN IMMEDIATE")
            db.execute(TABLE)
            db.execute(f"PRAGMA application_id={APPLICATION}")
            db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            db.execute("COMMIT")
        elif about != [APPLICATION, SCHEMA_VERSION]:
            raise InputError(
                f"Expected '{self.path}' to be a queue of this release (got another file); move it "
                "away."
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(connect(self.path, "rwc", timeout=10)) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.row_factory = sqlite3.Row
            yield db

    def find(self, key: str, form: str, body: bytes) -> dict[str, object] | None:
        """Returns the change that came with a key, if any; another body is refused."""
        with self._open() as db:
            row = db.execute(f"SELECT digest, {SHOWN} FROM change WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        found = dict(row)
        if found.pop("digest") != _digest(form, body):
            raise InputError(
                "Expected the same body as before with this Idempotency-Key (got another); use a "
                "new key for another change."
            )
        return found

    def add(self, key: str, form: str, body: bytes) -> int:
        """Stores a change durably and returns its number.

        Raises:
            Full: If too many wait.
        """
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            query = f"SELECT count(*), coalesce(sum(length(body)), 0) FROM change WHERE {WAITING}"
            count, size = db.execute(query).fetchone()
            if count >= self.most or size + len(body) > MOST_BYTES:
                raise Full
            insert = "INSERT INTO change (key, digest, form, body, status, received) VALUES "
            row = (key, _digest(form, body), form, body, _now())
            added = db.execute(f"{insert} (?, ?, ?, ?, 'queued', ?)", row)
            db.execute("COMMIT")
            assert added.lastrowid is not None
            return added.lastrowid

    def get(self, number: int) -> dict[str, object] | None:
        """Describes a change; None if it is unknown or forgotten."""
        with self._open() as db:
            row = db.execute(f"SELECT {SHOWN} FROM change WHERE number = ?", (number,)).fetchone()
            return None if row is None else dict(row)

    def last(self, most: int) -> list[dict[str, object]]:
        """Describes the last changes, the newest first, without their keys."""
        query = f"SELECT {TOLD} FROM change ORDER BY number DESC LIMIT ?"
        with self._open() as db:
            return [dict(row) for row in db.execute(query, (most,))]

    def waiting(self, most: int = -1) -> list[tuple[int, str, str, bytes]]:
        """Lists what is not learned yet, in order: number, key, form and body."""
        query = f"SELECT number, key, form, body FROM change WHERE {WAITING} ORDER BY number"
        with self._open() as db:
            return [tuple(row) for row in db.execute(f"{query} LIMIT ?", (most,))]

    def state(self) -> tuple[dict[str, int], int]:
        """Counts changes by status; also the last version that one of them made, −1 for none."""
        with self._open() as db:
            db.execute("BEGIN")
            counts = dict(db.execute("SELECT status, count(*) FROM change GROUP BY status"))
            last = db.execute("SELECT max(version) FROM change").fetchone()[0]
        return {"queued": 0, "learning": 0, "done": 0, "refused": 0} | counts, (
            -1 if last is None else last
        )

    def busy(self) -> bool:
        """Tells whether anything waits."""
        counts, _ = self.state()
        return counts["queued"] + counts["learning"] > 0

    def begin(self, number: int) -> None:
        """Notes that a change is being learned."""
        with self._open() as db:
            db.execute("UPDATE change SET status = 'learning' WHERE number = ?", (number,))

    def end(self, number: int, *, version: int | None = None, sentence: str = "") -> None:
        """Notes that a change made a version, or was refused; old ones are forgotten."""
        status = "refused" if version is None else "done"
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                "UPDATE change SET status = ?, sentence = ?, version = ?, ended = ?, body = NULL "
                "WHERE number = ?",
                (status, sentence, version, _now(), number),
            )
            old = f"DELETE FROM change WHERE number <= ? AND NOT {WAITING}"
            db.execute(old, (number - REMEMBERED,))
            db.execute("COMMIT")

    def died(self) -> tuple[int, int] | None:
        """Counts that the worker died while it learned; returns which change and how often."""
        query = "UPDATE change SET deaths = deaths + 1 WHERE status = 'learning' "
        with self._open() as db:
            rows = db.execute(f"{query} RETURNING number, deaths").fetchall()
            return (rows[0][0], rows[0][1]) if rows else None


def _digest(form: str, body: bytes) -> bytes:
    return hashlib.sha256(form.encode() + b"\0" + body).digest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
