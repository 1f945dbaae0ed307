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


class Documents:
    """The documents of an open database, and the files that belong to it."""

    def __init__(self, db: sqlite3.Connection, files: ArrayFiles) -> None:
        self.db, self.files = db, files

    def read(self, table: str, number: int) -> tuple[Any, Stored]:
        """Reads a document with its arrays; their sizes are known before memory is taken."""
        from evergraph.estimator.graph import Grown  # noqa: PLC0415 - needs PyTorch

        text, needed, bases = self._text(table, number), 0, dict[object, tuple[str, int]]()

        def measure(value: dict[str, Any]) -> Any:
            nonlocal needed
            needed += _num_bytes(value[ARRAY]) if value.keys() == {ARRAY} else 0
            return value

        def load(value: dict[str, Any]) -> Any:
            if value.keys() != {ARRAY}:
                return value
            found = self._load(value[ARRAY])
            if isinstance(found, Grown):
                bases[found.lineage] = (value[ARRAY]["base"], found.length)
            return found

        with _damage():
            json.loads(text, object_hook=measure)
            if needed > physical_memory():
                raise Damage("the sizes of its arrays, which are larger than the memory")
            return json.loads(text, object_hook=load), Stored(_checksum(number, text), bases)

    def write(self, table: str, number: int, content: Any, before: Stored | None = None) -> Stored:
        """Stores a document and what is lacking of its arrays; ``before`` is what is there."""
        import torch  # noqa: PLC0415 - reading predictions needs none of it

        from evergraph.estimator.graph import Grown  # noqa: PLC0415 - as above

        has, bases = before.bases if before else {}, dict[object, tuple[str, int]]()

        def store(value: Tensor | Grown) -> dict[str, Any]:
            if isinstance(value, Grown):
                array, shape, kind = value.array, value.array.shape, str(value.array.dtype)
                row = array.dtype.itemsize * math.prod(shape[1:])
                base, first = has.get(value.lineage, ("", 0))
                large, goes_on = kind == "float32" and array.nbytes >= LARGE, first <= value.length
                if base and goes_on and self._in_file(base):
                    large, goes_on = True, self.files.has(base, first * row)
                elif large:  # it may have become so
                    goes_on = False
                if not base or not goes_on:
                    base, first = f"{number}-{len(bases)}", 0
                bases[value.lineage] = (base, value.length)
                self._append(base, array[first:], first * row, in_file=large)
            else:
                tensor, shape = value.detach().cpu().contiguous(), tuple(value.shape)
                kind = str(tensor.dtype).removeprefix("torch.")
                array = tensor.reshape(-1).view(torch.uint8).numpy()
                base = hashlib.sha256(array.data).hexdigest()
                if not self.db.execute("SELECT 1 FROM block WHERE base = ?", (base,)).fetchone():
                    self._append(base, array)
            return {ARRAY: {"dtype": kind, "shape": list(shape), "base": base}}

        text = json.dumps(content, default=store)
        written, checksum = datetime.now(UTC).isoformat(timespec="seconds"), _checksum(number, text)
        row = (number, written, text, checksum)
        self.db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", row)
        return Stored(checksum, bases)

    def sweep(self) -> set[str]:
        """Deletes blocks that no document needs; returns the bases in files that are left."""
        used: dict[str, int] = {}

        def note(value: dict[str, Any]) -> Any:
            if value.keys() == {ARRAY}:
                array = value[ARRAY]
                used[array["base"]] = max(used.get(array["base"], 0), _num_bytes(array))
            return value

        query = "SELECT document FROM version UNION ALL SELECT document FROM pending"
        for (text,) in self.db.execute(query):
            with suppress(Damage), _damage():
                json.loads(text, object_hook=note)
        base, in_files = "", set()
        query = "SELECT min(base) FROM block WHERE base > ?"
        while base := self.db.execute(query, (base,)).fetchone()[0]:
            place = (base, used.get(base, 0))
            self.db.execute("DELETE FROM block WHERE base = ? AND start >= ?", place)
            if self._in_file(base):
                in_files.add(base)
        return in_files

    def predictions(self, number: int) -> dict[str, Any] | None:
        """Reads what a version says of its nodes, without PyTorch; None if it says nothing."""
        with _damage():
            document = json.loads(self._text("version", number))
            if document.get("predicted") is None:
                return None
            arrays = {**document["ids"], **document["predicted"]}
            found: dict[str, Any] = {"classes": document["classes"], **arrays}
            for name, value in arrays.items():
                if value is not None:
                    found[name] = self._read(value[ARRAY]).view(value[ARRAY]["dtype"])
            return found

    def _text(self, table: str, number: int) -> str:
        """Reads a document as it was written."""
        query = f"SELECT document, sha256 FROM {table} WHERE number = ?"
        text, checksum = self.db.execute(query, (number,)).fetchone() or (None, None)
        if not isinstance(text, str) or checksum != _checksum(number, text):
            raise Damage("its list of contents")
        return text

    def _in_file(self, base: str) -> bool:
        """Tells whether the blocks of a base are in a file."""
        query = "SELECT typeof(data) FROM block WHERE base = ? AND start = 0"
        return bool(self.db.execute(query, (base,)).fetchone() == ("integer",))

    def _append(self, base: str, rows: Array, start: int = 0, *, in_file: bool = False) -> None:
        """Appends bytes to a base, cut into blocks."""
        data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        if in_file and len(data):
            self.files.append(base, start, data)
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            checksum = block_checksum(base, start + at, block)
            row = (base, start + at, checksum, len(block) if in_file else block)
            self.db.execute("INSERT INTO block VALUES (?, ?, ?, ?)", row)

    def _blocks(self, array: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """Lists start, size and checksum of an array's blocks, if they are what was said of it."""
        sizes = "CASE typeof(data) WHEN 'integer' THEN data ELSE length(data) END"
        which = "FROM block WHERE base = ? AND start < ? ORDER BY start"
        place, end = (array["base"], _num_bytes(array)), 0
        found = self.db.execute(f"SELECT start, {sizes}, crc32 {which}", place).fetchall()
        for start, size, _ in found:
            if start != end or type(size) is not int or size <= 0:
                raise Damage("the order of blocks")
            end += size
        if end != place[1]:
            raise Damage("the size of an array")
        return found

    def _read(self, array: Mapping[str, Any], room: int = 0) -> Array:
        """Reads an array's bytes, with room behind them."""
        blocks, base = self._blocks(array), array["base"]
        found = np.empty(_num_bytes(array) + room, dtype=np.uint8)
        for start, size, checksum in blocks:
            query = "SELECT data FROM block WHERE base = ? AND start = ?"
            (block,) = self.db.execute(query, (base, start)).fetchone()
            if not isinstance(block, bytes) or block_checksum(base, start, block) != checksum:
                raise Damage("a block")
            found[start : start + size] = np.frombuffer(block, dtype=np.uint8)
        return found

    def _map(self, array: Mapping[str, Any], room: int) -> tuple[Array, Mapped | None]:
        """Maps an array's file once all of it is checked."""
        base, end = array["base"], _num_bytes(array)
        with self.files.reading(base, end) as file:
            for start, size, checksum in self._blocks(array):
                found = block_checksum(base, start, b"")
                for _, part in read_blocks(file, start, start + size):
                    found = zlib.crc32(part, found)
                if found != checksum or array["dtype"] != "float32":
                    raise Damage("a block")
            return map_file(file, end, room)

    def _load(self, array: Mapping[str, Any]) -> Tensor | Grown:
        """Reads an array: as a tensor, or as one that grows, with room behind it."""
        import torch  # noqa: PLC0415 - as above

        from evergraph.estimator.graph import Grown  # noqa: PLC0415 - as above

        shape, kind = array["shape"], array["dtype"]
        if "-" in array["base"]:
            size, mapped = _num_bytes(array), None
            if size and self._in_file(array["base"]):
                data, mapped = self._map(array, size)  # room for as much again
            else:
                data = self._read(array, size // max(shape[0], 1) * (shape[0] // 4))
            return Grown.of(data.view(kind).reshape(-1, *shape[1:]), shape[0], mapped)
        data = self._read(array)
        if not data.size:
            return torch.empty(shape, dtype=getattr(torch, kind))
        if kind == "bool" and data.max() > 1:
            raise Damage("an array")
        return torch.from_numpy(data).view(getattr(torch, kind)).reshape(shape)


def _checksum(number: int, text: str) -> bytes:
    return hashlib.sha256(f"{number} {text}".encode()).digest()


def _num_bytes(array: Mapping[str, Any]) -> int:
    """Computes the size of an array from what is said of it."""
    shape = array["shape"]
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("a shape that is none")
    return int(math.prod(shape) * SIZES[array["dtype"]])


def block_checksum(base: str, start: int, data: bytes | memoryview) -> int:
    """Computes the checksum of a block, its place included: an index may lead to another one."""
    return zlib.crc32(data, zlib.crc32(f"{base} {start}".encode()))


@contextmanager
def _damage() -> Iterator[None]:
    """Turns what foreign content raises into damage."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError):
        raise Damage("its list of contents") from None
