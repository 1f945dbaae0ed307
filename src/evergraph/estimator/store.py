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
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.estimator.chunks import Damage, Found, read_document, sweep, write_document
from evergraph.files import make_folder

NAME, LOCK, WRITER = "state.sqlite", "lock.sqlite", "writer.json"
#: What 0.1.0 wrote in place of the database.
OLD_NAMES = ("current.json", "generations")
#: Marks our databases, so that others are not taken for damaged ones.
APPLICATION = 0x65766772
#: Version 1 was the folder of 0.1.0.
SCHEMA_VERSION = 2
COLUMNS = "number INTEGER PRIMARY KEY, written TEXT NOT NULL, document TEXT NOT NULL, sha256 BLOB"
TABLES = {
    "version": f"CREATE TABLE version ({COLUMNS})",
    "pending": f"CREATE TABLE pending ({COLUMNS})",
    "chunk": "CREATE TABLE chunk (sha256 BLOB PRIMARY KEY, data BLOB NOT NULL)",
}
#: Versions that are kept: the current one and the one before it.
KEPT = 2
#: The largest document or chunk that is read.
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
        names = (NAME, f"{NAME}-wal", *OLD_NAMES)
        return any(os.path.lexists(self.folder / name) for name in names)

    @property
    def has_database(self) -> bool:
        """Tells whether a state of the present format is here."""
        return os.path.lexists(self.path)

    @property
    def is_empty(self) -> bool:
        """Tells whether a state may begin here; a folder of something else is refused."""
        if self.exists:
            return False
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return True
        except OSError as error:
            raise InputError(
                f"Expected '{self.folder}' to be a folder (got: {error.strerror}); choose another."
            ) from None
        # What is left of a writer that was killed before it had made the database.
        ours = (LOCK, WRITER, f"{NAME}.new")
        odd = [name for name in names if not name.startswith(ours)]
        if odd:
            raise InputError(
                f"Expected a state or an empty folder (got '{self.folder}', which holds other "
                "files); choose another folder."
            )
        return True

    # --- reading ---------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Lists the versions that are there, ascending."""
        with self._reading() as db:
            return _numbers(db)

    def read(self, number: int | None = None) -> Found:
        """Reads a version, the current one by default, as it is at one moment.

        Raises:
            Damage: If anything is wrong with it.
        """
        with self._reading() as db:
            there = _numbers(db)
            if not there:
                raise Damage("the list of versions")
            wanted = there[-1] if number is None else number
            if wanted not in there:
                raise InputError(
                    f"Expected version {wanted} in '{self.folder}' (got "
                    f"{', '.join(map(str, there))}); choose one of these."
                )
            return read_document(db, "version", wanted)

    def read_pending(self) -> Found | None:
        """Reads the change that is not finished, with the number of the version it is for."""
        with self._reading() as db:
            rows = db.execute("SELECT number FROM pending LIMIT 2").fetchall()
            return read_document(db, "pending", rows[0][0]) if rows else None

    @property
    def has_pending(self) -> bool:
        """Tells whether a change is not finished."""
        with self._reading() as db:
            return bool(db.execute("SELECT 1 FROM pending LIMIT 1").fetchall())

    # --- writing, all of it within :meth:`writing` -----------------------------------------

    @contextmanager
    def writing(self, *, converting: bool = False) -> Iterator[None]:
        """Creates the folder if need be and keeps other writers out, whatever ends this one."""
        if not converting and not self.is_empty:
            self.check_there()
        make_folder(self.folder)
        path = self.folder / LOCK
        if not os.access(self.folder, os.W_OK):
            raise _unwritable(self.path, OSError(0, "no permission, or a read-only place"))
        with _opened(path, "rwc", timeout=0) as lock:
            try:
                lock.execute("PRAGMA journal_mode=MEMORY")
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error as error:
                if error.sqlite_errorname != "SQLITE_BUSY":
                    raise _unwritable(path, error) from None
                raise InputError(
                    f"Expected '{self.folder}' without another writer (got {self._holder()}); wait "
                    "for it to end, or stop it and resume."
                ) from None
            about = {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            try:
                (self.folder / WRITER).write_text(json.dumps(about))
            except OSError as error:
                raise _unwritable(self.folder / WRITER, error) from None
            yield

    def create(self, version: Found, pending: Any = None) -> None:
        """Makes the database with a first version and a change to it, if there is one."""
        beside = self.path.with_name(f"{NAME}.new")
        try:
            for suffix in ("", "-journal", "-wal", "-shm"):  # of a writer that was killed
                beside.with_name(beside.name + suffix).unlink(missing_ok=True)
            with _opened(beside, "rwc") as db:
                db.execute(f"PRAGMA application_id={APPLICATION}")
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                with _transaction(db):
                    for statement in TABLES.values():
                        db.execute(statement)
                    write_document(db, "version", version)
                    if pending is not None:
                        write_document(db, "pending", Found(version.number, pending))
                db.execute("PRAGMA journal_mode=WAL")
            os.rename(beside, self.path)
            _sync(self.folder)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise _unwritable(self.path, error) from None

    def write(self, version: Found) -> None:
        """Adds a version; the pending change is part of it, and older versions go."""
        with self._changing() as db:
            write_document(db, "version", version)
            db.execute("DELETE FROM pending")
            db.execute("DELETE FROM version WHERE number <= ?", (version.number - KEPT,))
            sweep(db)

    def note(self, pending: Found) -> None:
        """Stores a change before it is made."""
        with self._changing() as db:
            write_document(db, "pending", pending)

    def discard(self) -> None:
        """Forgets the change that is not finished."""
        with self._changing() as db:
            db.execute("DELETE FROM pending")
            sweep(db)

    def go_back(self, number: int) -> None:
        """Makes an earlier version the current one; what was to follow the later one goes too."""
        with self._changing() as db:
            db.execute("DELETE FROM version WHERE number > ?", (number,))
            db.execute("DELETE FROM pending WHERE number <> ?", (number,))
            sweep(db)

    # --- connections -----------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Opens a snapshot; a place where nothing can be written is read as it is."""
        self.check_there()
        try:
            with ExitStack() as stack:
                writable = os.access(self.path, os.W_OK) and os.access(self.folder, os.W_OK)
                try:  # to write, so that whoever comes last tidies the log up
                    db = stack.enter_context(self._snapshot("rw" if writable else "ro"))
                except sqlite3.OperationalError:
                    log = Path(f"{self.path}-wal")
                    if log.exists() and log.stat().st_size:
                        raise
                    # No room for SQLite's index of a log that is empty: there are no writers.
                    db = stack.enter_context(self._snapshot("ro&immutable=1"))
                yield db
        except sqlite3.Error as error:
            if _is_damage(error):
                raise Damage("the database") from None
            raise InputError(
                f"Expected to read '{self.path}' (got: {error}); check the folder, or copy it to "
                "a place where you may write."
            ) from None

    @contextmanager
    def _snapshot(self, mode: str) -> Iterator[sqlite3.Connection]:
        with _opened(self.path, mode) as db:
            db.execute("PRAGMA query_only=ON")
            self._check_schema(db)
            db.execute("BEGIN")
            yield db

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Opens one transaction, which happens wholly or not at all."""
        self.check_there()
        try:
            with _opened(self.path, "rw") as db:
                self._check_schema(db)
                db.execute("PRAGMA synchronous=FULL")
                with _transaction(db):
                    yield db
        except sqlite3.Error as error:
            if _is_damage(error):
                raise Damage("the database") from None
            raise _unwritable(self.path, error) from None

    def check_there(self) -> None:
        """Refuses a folder without a database, saying what may have become of it."""
        if self.has_database:
            return
        if any(os.path.lexists(self.folder / name) for name in OLD_NAMES):
            raise InputError(
                f"Expected a state of this release in '{self.folder}' (got one of 0.1.0); run "
                f"'evergraph convert {self.folder}'."
            )
        if self.exists:
            raise InputError(
                f"Expected '{self.path}' beside its log (got the log alone); restore a copy of the "
                "folder."
            )
        raise InputError(
            f"Expected '{self.folder}' to hold the state of an estimator (got none); check the "
            "path or learn into it first."
        )

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
        there = set(db.execute(query).fetchmany(len(TABLES) + 2))
        ours = {("table", name, name, statement) for name, statement in TABLES.items()}
        if there != ours | {("index", "sqlite_autoindex_chunk_1", "chunk", None)}:
            raise Damage("the schema")

    def _holder(self) -> str:
        """Describes who writes, as far as it is told."""
        try:
            about = json.loads((self.folder / WRITER).read_text()[:1000])
            return f"process {int(about['process'])} on {about['host']!s}, since {about['since']!s}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


@contextmanager
def _opened(path: Path, mode: str, timeout: float = PATIENCE) -> Iterator[sqlite3.Connection]:
    """Connects to a regular file in the way that suits one from a stranger."""
    for name in (path, *(Path(f"{path}{end}") for end in ("-wal", "-shm", "-journal"))):
        if os.path.lexists(name) and not stat.S_ISREG(os.lstat(name).st_mode):
            raise InputError(
                f"Expected '{name}' to be a regular file (got a link or something else); put the "
                "file there."
            )
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    try:
        db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=timeout)
    except sqlite3.Error as error:
        raise _unwritable(path, error) from None
    with closing(db):
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LENGTH)
        if hasattr(db, "setconfig"):  # Python 3.12
            db.setconfig(getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE"), True)  # noqa: B009
        db.execute("PRAGMA trusted_schema=OFF")
        db.execute("PRAGMA cell_size_check=ON")
        yield db


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite has rolled back already on some errors
            db.execute("ROLLBACK")
        raise


def _numbers(db: sqlite3.Connection) -> list[int]:
    """Lists the versions; a stranger may have put millions there."""
    rows = db.execute("SELECT number FROM version ORDER BY number DESC LIMIT 100").fetchall()
    return sorted(row[0] for row in rows)


def _is_damage(error: sqlite3.Error) -> bool:
    """Tells damaged bytes from a place that cannot be read."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_TOOBIG")) or not name


def _unwritable(path: Path, error: Exception) -> InputError:
    got = error.strerror if isinstance(error, OSError) else str(error)
    return InputError(
        f"Expected to write '{path}' (got: {got}); free space or choose another folder."
    )


def _sync(folder: Path) -> None:
    """Waits until the disk has the names in a folder, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
