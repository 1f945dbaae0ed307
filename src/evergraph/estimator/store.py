"""Store: the versions of a state in one SQLite database, each there wholly or not at all.

SQLite's write-ahead log makes a version appear in one step while readers go on. A writer keeps
others out by an exclusive transaction on a second, empty database, which the system ends with it.

The files may come from anyone. They are looked at by name alone before SQLite opens them: opening
and closing one here would drop the locks that this process holds on it.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.estimator.array_files import NAME as ARRAY_NAME
from evergraph.estimator.array_files import ArrayFiles, check_regular
from evergraph.estimator.blocks import Damage, Documents, Stored
from evergraph.files import make_folder, sync_folder

NAME, LOCK, WRITER = "state.sqlite", "lock.sqlite", "writer.json"
#: The database before it has its name.
NEW = f"{NAME}.new"
#: Where a descent that workers share is kept now and then.
DESCENT = "descent.safetensors"
#: What SQLite keeps beside a database.
BESIDE = ("-wal", "-shm", "-journal")
#: What 0.1.0 wrote in place of the database.
OLD_NAMES = ("current.json", "generations")
#: Marks our databases, so that others are not taken for damaged ones.
APPLICATION = 0x65766772
#: Version 1 was the folder of 0.1.0. From 4 on there are files of large features; a state without
#: is one of version 3.
SCHEMA_VERSION = 4
COLUMNS = "number INTEGER PRIMARY KEY, written TEXT NOT NULL, document TEXT NOT NULL, sha256 BLOB"
TABLES = {
    "version": f"CREATE TABLE version ({COLUMNS})",
    "pending": f"CREATE TABLE pending ({COLUMNS})",
    "block": "CREATE TABLE block (base TEXT, start INTEGER, crc32 INTEGER, data BLOB, "
    "PRIMARY KEY (base, start))",
}
SCHEMA = f"PRAGMA application_id={APPLICATION};PRAGMA user_version=3;{';'.join(TABLES.values())}"
#: Versions that are kept: the current one and the one before it.
KEPT = 2
#: The largest document or block that is read.
MAX_LENGTH = 1 << 28
#: Seconds to wait while SQLite tidies its log up.
PATIENCE = 60.0


class Store:
    """The database of one state's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / NAME

    @property
    def exists(self) -> bool:
        """Tells whether a state is, or was, in this folder."""
        return self._has(NAME, f"{NAME}-wal", *OLD_NAMES)

    @property
    def is_empty(self) -> bool:
        """Tells whether a state may begin here; a folder of something else is refused."""
        if self.exists:
            return False
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise InputError(
                f"Expected '{self.folder}' to be a folder (got: {error.strerror}); choose another."
            ) from None
        # What is left of a writer that was killed before it had made the database is ours.
        ours = (LOCK, WRITER, NEW)
        if not all(name.startswith(ours) or ARRAY_NAME.fullmatch(name) for name in names):
            raise InputError(
                f"Expected a state or an empty folder (got '{self.folder}', which holds other "
                "files); choose another folder."
            )
        return True

    def check_there(self) -> None:
        """Refuses a folder without a database, saying what may have become of it."""
        if self._has(NAME):
            return
        if self._has(*OLD_NAMES):
            wanted = f"a state of this release in '{self.folder}' (got one of 0.1.0)"
            remedy = f"run 'evergraph convert {self.folder}'"
        elif self.exists:
            wanted = f"'{self.path}' beside its log (got the log alone)"
            remedy = "restore a copy of the folder"
        else:
            wanted = f"'{self.folder}' to hold the state of an estimator (got none)"
            remedy = "check the path or learn into it first"
        raise InputError(f"Expected {wanted}; {remedy}.")

    def _has(self, *names: str) -> bool:
        return any(os.path.lexists(self.folder / name) for name in names)

    # --- reading ---------------------------------------------------------------------------

    def numbers(self, table: str = "version") -> list[int]:
        """Lists the versions that are there, ascending, or that of the unfinished change."""
        with self._reading() as db:
            return _numbers(db, table)

    def newest(self) -> tuple[int, bytes]:
        """Returns the number of the current version and the checksum of its document."""
        with self._reading() as db:
            number = _numbers(db, "version")[-1]
            query = "SELECT sha256 FROM version WHERE number = ?"
            return number, db.execute(query, (number,)).fetchone()[0]

    @property
    def has_pending(self) -> bool:
        """Tells whether a change is not finished."""
        return bool(self.numbers("pending"))

    def check_settled(self) -> None:
        """Refuses a folder with a change that is not finished."""
        if self.has_pending:
            raise InputError(
                f"Expected no unfinished change in '{self.folder}' (got one that was interrupted); "
                f"run 'evergraph resume {self.folder}' first, or with --discard to forget it."
            )

    def read(self, number: int | None = None, table: str = "version") -> tuple[int, Any, Stored]:
        """Reads a version as it is at one moment, the current one by default.

        Raises:
            Damage: If anything is wrong with it.
        """
        with self._reading() as db:
            wanted, newest = self._wanted(db, number, table), _numbers(db, "version")[-1]
            with suppress(FileNotFoundError):
                return wanted, *Documents(db, ArrayFiles(self.folder)).read(table, wanted)
        if self.newest()[0] == newest:
            raise Damage("the files of its arrays, one of which is missing")
        return self.read(number, table)  # somebody has written what needs that file no more

    def predictions(self, number: int | None = None) -> dict[str, Any] | None:
        """Reads the predictions that a version holds, None if it holds none; see :meth:`read`."""
        with self._reading() as db:
            wanted = self._wanted(db, number, "version")
            return Documents(db, ArrayFiles(self.folder)).predictions(wanted)

    def _wanted(self, db: sqlite3.Connection, number: int | None, table: str) -> int:
        there = _numbers(db, table)
        wanted = there[-1] if number is None else number
        if wanted not in there:
            raise InputError(
                f"Expected version {wanted} in '{self.folder}' (got "
                f"{', '.join(map(str, there))}); choose one of these."
            )
        return wanted

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Opens a snapshot; a place where nothing can be written is read as it is."""
        self.check_there()
        remedy = "check the folder, or copy it to a place where you may write"
        with ExitStack() as stack, _sentences(self.path, "read", remedy):
            try:  # to write, so that whoever comes last tidies the log up
                db = stack.enter_context(closing(connect(self.path, "rw")))
                self._check_schema(db)
            except sqlite3.OperationalError:
                with suppress(FileNotFoundError):
                    if Path(f"{self.path}-wal").stat().st_size:
                        raise
                # No room for SQLite's index of a log that is empty: there are no writers.
                db = stack.enter_context(closing(connect(self.path, "ro&immutable=1")))
                self._check_schema(db)
            db.execute("PRAGMA query_only=ON")
            db.execute("BEGIN")
            yield db

    def _check_schema(self, db: sqlite3.Connection) -> None:
        """Refuses a database with anything in it that we did not make, before it is used."""
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise Damage("the header")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise InputError(
                f"Expected a state of version {SCHEMA_VERSION} in '{self.folder}' (got {version}); "
                "use the release of evergraph that wrote it, or a newer one."
            )
        query = "SELECT type, name, tbl_name, sql FROM sqlite_master"
        try:
            there = set(db.execute(query).fetchmany(len(TABLES) + 2))
        except UnicodeDecodeError:  # SQLite quotes damage that is no text in its message
            raise Damage("the schema") from None
        ours = {("table", name, name, statement) for name, statement in TABLES.items()}
        if there != ours | {("index", "sqlite_autoindex_block_1", "block", None)}:
            raise Damage("the schema")

    # --- writing ---------------------------------------------------------------------------

    @contextmanager
    def writing(self, *, converting: bool = False) -> Iterator[None]:
        """Creates the folder if need be and keeps other writers out, whatever ends this one."""
        if not converting and not self.is_empty:
            self.check_there()
        make_folder(self.folder)
        with ExitStack() as stack:
            with _unwritable(self.folder / LOCK):
                if not os.access(self.folder, os.W_OK):
                    raise OSError(0, "no permission, or a read-only place")
                lock = stack.enter_context(closing(connect(self.folder / LOCK, "rwc", timeout=0)))
                self._take(lock)
            yield

    def _take(self, lock: sqlite3.Connection) -> None:
        """Takes the lock and tells others who holds it."""
        try:
            lock.execute("PRAGMA journal_mode=MEMORY")
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY":
                raise
            raise InputError(
                f"Expected '{self.folder}' without another writer (got {self._holder()}); wait for "
                "it to end, or stop it and resume."
            ) from None
        since = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        (self.folder / WRITER).write_text(json.dumps(about))

    def commit(
        self, number: int, content: Any = None, pending: Any = None, before: Stored | None = None
    ) -> Stored:
        """Makes a version the current one in one step, within :meth:`writing`.

        Later versions go, and so do those before the last one. The first commit makes the
        database.

        Args:
            number: The version.
            content: What it holds, if it is not there yet.
            pending: The change that is to be made to it next; another one is forgotten.
            before: What is there of arrays that grow.

        Returns:
            What is there of the content then, nothing without one.
        """
        stored, files = Stored(), ArrayFiles(self.folder)
        new = not self._has(NAME)
        path = self.folder / (NEW if new else NAME)
        with _unwritable(self.path):
            if new:  # what is left of a writer that was killed
                for end in ("", *BESIDE):
                    Path(f"{path}{end}").unlink(missing_ok=True)
            # Whatever is raised within ends the connection, and the transaction with it.
            with closing(connect(path, "rwc" if new else "rw")) as db:
                if new:
                    db.executescript(SCHEMA)
                self._check_schema(db)
                documents = Documents(db, files)
                db.execute("PRAGMA synchronous=FULL")
                db.execute("BEGIN IMMEDIATE")
                with files.appending():
                    if content is not None:
                        stored = documents.write("version", number, content, before)
                    db.execute("DELETE FROM pending")
                    if pending is not None:
                        documents.write("pending", number, pending)
                    others = "DELETE FROM version WHERE number > ? OR number <= ?"
                    db.execute(others, (number, number - KEPT))
                    if in_files := documents.sweep():
                        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                db.execute("COMMIT")
                with suppress(OSError):
                    files.keep(in_files)
                if new:
                    db.execute("PRAGMA journal_mode=WAL")
            if new:
                path.rename(self.path)
                sync_folder(self.folder)
        return stored

    def _holder(self) -> str:
        """Describes who writes, as far as it is told."""
        try:
            about = json.loads((self.folder / WRITER).read_text()[:1000])
            return f"process {int(about['process'])} on {about['host']!s}, since {about['since']!s}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def connect(path: Path, mode: str, timeout: float = PATIENCE) -> sqlite3.Connection:
    """Connects to a regular file in the way that suits one from a stranger."""
    for name in (path, *(Path(f"{path}{end}") for end in BESIDE)):
        with suppress(FileNotFoundError):  # others may take the log away at any moment
            check_regular(name)
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=timeout)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LENGTH)
    if hasattr(db, "setconfig"):  # Python 3.12
        db.setconfig(getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE"), True)  # noqa: B009
    db.execute("PRAGMA secure_delete=FAST")  # some systems overwrite all that is deleted
    db.execute("PRAGMA trusted_schema=OFF")
    db.execute("PRAGMA cell_size_check=ON")
    return db


def _numbers(db: sqlite3.Connection, table: str) -> list[int]:
    """Lists the versions; a stranger may have put millions there, or none."""
    rows = db.execute(f"SELECT number FROM {table} ORDER BY number DESC LIMIT 100").fetchall()
    if table == "version" and not rows:
        raise Damage("the list of versions")
    return sorted(row[0] for row in rows)


@contextmanager
def _sentences(path: Path, verb: str, remedy: str) -> Iterator[None]:
    """Turns what SQLite and the system say into a sentence."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        name = getattr(error, "sqlite_errorname", None) or ""
        damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_TOOBIG"))
        if isinstance(error, sqlite3.Error) and (damaged or not name) and path.name == NAME:
            raise Damage("the database") from None
        got = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"Expected to {verb} '{path}' (got: {got}); {remedy}.") from None


def _unwritable(path: Path) -> AbstractContextManager[None]:
    return _sentences(path, "write", "free space or choose another folder")
