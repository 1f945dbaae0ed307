"""Documents in SQLite: JSON whose arrays are blocks of bytes beside it, each with a checksum.

An array that grows (:class:`Grown`) has a base, to which every version appends the block of what is
new; any other lies under its SHA-256, so that it is written once. Blocks of large features are in
a file (:mod:`evergraph.estimator.array_files`), and the database has their length in their place.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.errors import InputError
from evergraph.estimator.array_files import LARGE, ArrayFiles, map_file, read_blocks
from evergraph.files import physical_memory

if TYPE_CHECKING:
    from torch import Tensor

    from evergraph.estimator.array_files import Mapped
    from evergraph.estimator.graph import Array, Grown

ARRAY = "$array"
#: The longest block.
BLOCK = 1 << 24
#: Bytes of an entry of every kind of array.
SIZES = {
    **{"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8},
    **{"uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "bool": 1},
}


class Damage(InputError):
    """Something in a state that cannot be read; ``what`` it is."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"Expected a whole state (got damage in {what}); run 'evergraph resume' to go back to "
            "an earlier version, or restore a copy of the folder."
        )
        self.what = what


@dataclass(frozen=True)
class Stored:
    """What a database has: a document's checksum, and the base and rows of arrays that grow."""

    checksum: bytes = b""
    bases: dict[object, tuple[str, int]] = field(default_factory=dict)  # by lineage


def read_document(
    db: sqlite3.Connection, table: str, number: int, files: ArrayFiles
) -> tuple[Any, Stored]:
    """Reads a document with its arrays; their sizes are known before memory is taken."""
    from evergraph.estimator.graph import Grown  # noqa: PLC0415 - needs PyTorch

    text, needed, bases = _text(db, table, number), 0, dict[object, tuple[str, int]]()

    def measure(value: dict[str, Any]) -> Any:
        nonlocal needed
        needed += _num_bytes(value[ARRAY]) if value.keys() == {ARRAY} else 0
        return value

    def load(value: dict[str, Any]) -> Any:
        if value.keys() != {ARRAY}:
            return value
        found = _load(db, value[ARRAY], files)
        if isinstance(found, Grown):
            bases[found.lineage] = (value[ARRAY]["base"], found.length)
        return found

    with _damage():
        json.loads(text, object_hook=measure)
        if needed > physical_memory():
            raise Damage("the sizes of its arrays, which are larger than the memory")
        return json.loads(text, object_hook=load), Stored(_checksum(number, text), bases)


def write_document(
    db: sqlite3.Connection,
    table: str,
    number: int,
    content: Any,
    *,
    files: ArrayFiles,
    before: Stored | None = None,
) -> Stored:
    """Stores a document and what the database lacks of its arrays; ``before`` is what it has."""
    import torch  # noqa: PLC0415 - reading predictions needs none of it

    from evergraph.estimator.graph import Grown  # noqa: PLC0415 - as above

    has, bases = before.bases if before else {}, dict[object, tuple[str, int]]()

    def store(value: Tensor | Grown) -> dict[str, Any]:
        if isinstance(value, Grown):
            array, shape, kind = value.array, value.array.shape, str(value.array.dtype)
            row = array.dtype.itemsize * math.prod(shape[1:])
            base, first = has.get(value.lineage, ("", 0))
            place = files if kind == "float32" and array.nbytes >= LARGE else None
            goes_on = base and first <= value.length
            if goes_on and _in_file(db, base):
                place = files
                goes_on = files.has(base, first * row)
            elif goes_on and place:  # it has become large
                goes_on = False
            if not goes_on:
                base, first = f"{number}-{len(bases)}", 0
            bases[value.lineage] = (base, value.length)
            _write(db, base, array[first:], first * row, place)
        else:
            tensor, shape = value.detach().cpu().contiguous(), tuple(value.shape)
            kind = str(tensor.dtype).removeprefix("torch.")
            array = tensor.reshape(-1).view(torch.uint8).numpy()
            base = hashlib.sha256(array.data).hexdigest()
            if not db.execute("SELECT 1 FROM block WHERE base = ?", (base,)).fetchone():
                _write(db, base, array, 0)
        return {ARRAY: {"dtype": kind, "shape": list(shape), "base": base}}

    text = json.dumps(content, default=store)
    written, checksum = datetime.now(UTC).isoformat(timespec="seconds"), _checksum(number, text)
    db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", (number, written, text, checksum))
    return Stored(checksum, bases)


def sweep(db: sqlite3.Connection) -> set[str]:
    """Deletes blocks that no document needs any more; returns the bases in files that are left."""
    used: dict[str, int] = {}
    in_files = set()

    def note(value: dict[str, Any]) -> Any:
        if value.keys() == {ARRAY}:
            array = value[ARRAY]
            used[array["base"]] = max(used.get(array["base"], 0), _num_bytes(array))
        return value

    for (text,) in db.execute(
        "SELECT document FROM version UNION ALL SELECT document FROM pending"
    ):
        with suppress(Damage), _damage():
            json.loads(text, object_hook=note)
    base = ""
    while base := db.execute("SELECT min(base) FROM block WHERE base > ?", (base,)).fetchone()[0]:
        place = (base, used.get(base, 0))
        db.execute("DELETE FROM block WHERE base = ? AND start >= ?", place)
        if _in_file(db, base):
            in_files.add(base)
    return in_files


def _in_file(db: sqlite3.Connection, base: str) -> bool:
    """Tells whether the blocks of a base are in a file."""
    query = "SELECT typeof(data) FROM block WHERE base = ? AND start = 0"
    return bool(db.execute(query, (base,)).fetchone() == ("integer",))


def read_predictions(db: sqlite3.Connection, number: int) -> dict[str, Any] | None:
    """Reads what a version says of its nodes, without PyTorch; None if it says nothing."""
    with _damage():
        document = json.loads(_text(db, "version", number))
        if document.get("predicted") is None:
            return None
        arrays = {**document["ids"], **document["predicted"]}
        found: dict[str, Any] = {"classes": document["classes"], **arrays}
        for name, value in arrays.items():
            if value is not None:
                found[name] = _read(db, value[ARRAY]).view(value[ARRAY]["dtype"])
        return found


def _text(db: sqlite3.Connection, table: str, number: int) -> str:
    """Reads a document as it was written."""
    query = f"SELECT document, sha256 FROM {table} WHERE number = ?"
    text, checksum = db.execute(query, (number,)).fetchone() or (None, None)
    if not isinstance(text, str) or checksum != _checksum(number, text):
        raise Damage("its list of contents")
    return text


def _checksum(number: int, text: str) -> bytes:
    return hashlib.sha256(f"{number} {text}".encode()).digest()


def _num_bytes(array: Mapping[str, Any]) -> int:
    """Computes the size of an array from what is said of it."""
    shape = array["shape"]
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("a shape that is none")
    return int(math.prod(shape) * SIZES[array["dtype"]])


def _write(
    db: sqlite3.Connection, base: str, rows: Array, start: int, files: ArrayFiles | None = None
) -> None:
    """Appends bytes to a base, cut into blocks; ``files`` are where they go if not in here."""
    data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    if files is not None and len(data):
        files.append(base, start, data)
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        checksum, stored = block_checksum(base, start + at, block), files and len(block)
        row = (base, start + at, checksum, block if stored is None else stored)
        db.execute("INSERT INTO block VALUES (?, ?, ?, ?)", row)


def block_checksum(base: str, start: int, data: bytes | memoryview) -> int:
    """Computes the checksum of a block, its place included: an index may lead to another one."""
    return zlib.crc32(data, zlib.crc32(f"{base} {start}".encode()))


def _read(db: sqlite3.Connection, array: Mapping[str, Any], room: int = 0) -> Array:
    """Reads an array's bytes; what is stored must be what was said before memory is taken."""
    place = (array["base"], _num_bytes(array))
    which = "FROM block WHERE base = ? AND start < ? ORDER BY start"
    end = 0
    for start, size in db.execute(f"SELECT start, length(data) {which}", place):
        if start != end:
            raise Damage("the order of blocks")
        end += size
    if end != place[1]:
        raise Damage("the size of an array")
    found = np.empty(end + room, dtype=np.uint8)
    for start, checksum, block in db.execute(f"SELECT start, crc32, data {which}", place):
        good = isinstance(block, bytes) and block_checksum(place[0], start, block) == checksum
        if not good:
            raise Damage("a block")
        found[start : start + len(block)] = np.frombuffer(block, dtype=np.uint8)
    return found


def _map(
    db: sqlite3.Connection, array: Mapping[str, Any], room: int, files: ArrayFiles
) -> tuple[Array, Mapped | None]:
    """Maps an array's file; its size is compared with what was said, and all of it is checked."""
    base, end, known = array["base"], _num_bytes(array), 0
    which = "FROM block WHERE base = ? AND start < ? ORDER BY start"
    with files.reading(base, end) as file:
        for start, crc, size in db.execute(f"SELECT start, crc32, data {which}", (base, end)):
            if start != known or type(size) is not int or not 0 < size <= end - start:
                raise Damage("the order of blocks")
            known += size
            found = block_checksum(base, start, b"")
            for _, part in read_blocks(file, start, known):
                found = zlib.crc32(part, found)
            if found != crc:
                raise Damage("a block")
        if known != end or array["dtype"] != "float32":
            raise Damage("the size of an array")
        return map_file(file, end, room)


def _load(db: sqlite3.Connection, array: Mapping[str, Any], files: ArrayFiles) -> Tensor | Grown:
    """Reads an array: as a tensor, or as one that grows, with room behind it."""
    import torch  # noqa: PLC0415 - as above

    from evergraph.estimator.graph import Grown  # noqa: PLC0415 - as above

    shape, kind = array["shape"], array["dtype"]
    if "-" in array["base"]:
        size, mapped = _num_bytes(array), None
        if size and _in_file(db, array["base"]):
            data, mapped = _map(db, array, size, files)  # room for as much again
        else:
            data = _read(db, array, size // max(shape[0], 1) * (shape[0] // 4))
        return Grown.of(data.view(kind).reshape(-1, *shape[1:]), shape[0], mapped)
    data = _read(db, array)
    if not data.size:
        return torch.empty(shape, dtype=getattr(torch, kind))
    if kind == "bool" and data.size and data.max() > 1:
        raise Damage("an array")
    return torch.from_numpy(data).view(getattr(torch, kind)).reshape(shape)


@contextmanager
def _damage() -> Iterator[None]:
    """Turns what foreign content raises into damage."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError):
        raise Damage("its list of contents") from None
