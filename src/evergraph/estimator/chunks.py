"""Documents in SQLite: JSON whose arrays are cut into chunks under their SHA-256.

Blocks of bytes that did not change are not written again, and every byte has a checksum.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evergraph.errors import InputError
from evergraph.files import physical_memory

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 20
ARRAY = "$array"
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


def read_document(db: sqlite3.Connection, table: str, number: int) -> Any:
    """Reads a document with its arrays; their sizes are known before memory is taken."""
    text, needed = _text(db, table, number), 0

    def measure(value: dict[str, Any]) -> Any:
        nonlocal needed
        needed += _num_bytes(value[ARRAY]) if value.keys() == {ARRAY} else 0
        return value

    def load(value: dict[str, Any]) -> Any:
        return _load(db, value[ARRAY]) if value.keys() == {ARRAY} else value

    try:
        json.loads(text, object_hook=measure)
        if needed > physical_memory():
            raise Damage("the sizes of its arrays, which are larger than the memory")
        return json.loads(text, object_hook=load)
    except Damage:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError, RuntimeError):
        raise Damage("its list of contents") from None


def write_document(db: sqlite3.Connection, table: str, number: int, content: Any) -> None:
    """Stores a document, and the chunks of its arrays that are not there yet."""
    import torch  # noqa: PLC0415 - reading predictions needs none of it

    def store(value: Tensor) -> dict[str, Any]:
        array = value.detach().cpu().contiguous()
        data = array.reshape(-1).view(torch.uint8).numpy()
        chunks = []
        for at in range(0, data.size, CHUNK):
            chunk = data[at : at + CHUNK].tobytes()
            digest = hashlib.sha256(chunk).digest()
            db.execute("INSERT OR IGNORE INTO chunk VALUES (?, ?)", (digest, chunk))
            chunks.append(digest.hex())
        kind = str(array.dtype).removeprefix("torch.")
        return {ARRAY: {"dtype": kind, "shape": list(array.shape), "chunks": chunks}}

    text = json.dumps(content, default=store)
    written = datetime.now(UTC).isoformat(timespec="seconds")
    row = (number, written, text, _checksum(number, text))
    db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", row)


def sweep(db: sqlite3.Connection) -> None:
    """Deletes chunks that no document names any more."""
    documents = db.execute("SELECT document FROM version UNION ALL SELECT document FROM pending")
    used = {name for (text,) in documents for name in re.findall("[0-9a-f]{64}", str(text))}
    there = db.execute("SELECT sha256, lower(hex(sha256)) FROM chunk").fetchall()
    gone = [(digest,) for digest, name in there if name not in used]
    db.executemany("DELETE FROM chunk WHERE sha256 = ?", gone)


def _text(db: sqlite3.Connection, table: str, number: int) -> str:
    """Reads a document as it was written."""
    query = f"SELECT document, sha256 FROM {table} WHERE number = ?"
    text, checksum = db.execute(query, (number,)).fetchone() or (None, None)
    if not isinstance(text, str) or checksum != _checksum(number, text):
        raise Damage("its list of contents")
    return text


def _checksum(number: int, text: str) -> bytes:
    return hashlib.sha256(f"{number} {text}".encode()).digest()


def _num_bytes(array: dict[str, Any]) -> int:
    """Computes the size of an array from what is said of it."""
    shape = array["shape"]
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("a shape that is none")
    return int(math.prod(shape) * SIZES[array["dtype"]])


def read_predictions(db: sqlite3.Connection, number: int) -> dict[str, Any] | None:
    """Reads what a version says of its nodes without PyTorch: arrays as bytes, None if nothing."""
    try:
        document = json.loads(_text(db, "version", number))
        if document.get("predicted") is None:
            return None
        arrays = {**document["ids"], **document["predicted"]}
        found = {name: _read_bytes(db, value[ARRAY]) for name, value in arrays.items()}
        return {**found, "classes": document["classes"]}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise Damage("its list of contents") from None


def _read_bytes(db: sqlite3.Connection, array: dict[str, Any]) -> bytearray:
    """Reads an array; what is stored must be what was said before memory is taken."""
    digests = [(bytes.fromhex(chunk),) for chunk in array["chunks"]]
    size = "SELECT length(data) FROM chunk WHERE sha256 = ?"
    if sum(db.execute(size, key).fetchone()[0] for key in digests) != _num_bytes(array):
        raise Damage("the size of an array")
    data = bytearray()
    for key in digests:
        chunk = db.execute("SELECT data FROM chunk WHERE sha256 = ?", key).fetchone()[0]
        if not isinstance(chunk, bytes) or hashlib.sha256(chunk).digest() != key[0]:
            raise Damage("a chunk")
        data += chunk
    return data


def _load(db: sqlite3.Connection, array: dict[str, Any]) -> Tensor:
    """Reads an array as a tensor."""
    import torch  # noqa: PLC0415 - as above

    data, kind = _read_bytes(db, array), getattr(torch, array["dtype"])
    if not data:
        return torch.empty(array["shape"], dtype=kind)
    if kind == torch.bool and max(data) > 1:
        raise Damage("an array")
    return torch.frombuffer(data, dtype=kind).reshape(array["shape"])
