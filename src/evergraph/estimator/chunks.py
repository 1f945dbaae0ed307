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
from typing import Any

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.files import physical_memory

CHUNK = 1 << 20
ARRAY = "$array"
DTYPES = {
    name: getattr(torch, name)
    for name in (
        *("float16", "bfloat16", "float32", "float64"),
        *("uint8", "int8", "int16", "int32", "int64", "bool"),
    )
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
    query = f"SELECT document, sha256 FROM {table} WHERE number = ?"
    text, checksum = db.execute(query, (number,)).fetchone() or (None, None)
    if not isinstance(text, str) or checksum != _checksum(number, text):
        raise Damage("its list of contents")
    needed = 0

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


def _checksum(number: int, text: str) -> bytes:
    return hashlib.sha256(f"{number} {text}".encode()).digest()


def _num_bytes(array: dict[str, Any]) -> int:
    """Computes the size of an array from what is said of it."""
    shape = array["shape"]
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("a shape that is none")
    return int(math.prod(shape) * DTYPES[array["dtype"]].itemsize)


def _load(db: sqlite3.Connection, array: dict[str, Any]) -> Tensor:
    """Reads an array; what is stored must be what was said before memory is taken."""
    digests = [(bytes.fromhex(chunk),) for chunk in array["chunks"]]
    size = "SELECT length(data) FROM chunk WHERE sha256 = ?"
    if sum(db.execute(size, key).fetchone()[0] for key in digests) != _num_bytes(array):
        raise Damage("the size of an array")
    data, at = torch.empty(_num_bytes(array), dtype=torch.uint8), 0
    for key in digests:
        chunk = db.execute("SELECT data FROM chunk WHERE sha256 = ?", key).fetchone()[0]
        if not isinstance(chunk, bytes) or hashlib.sha256(chunk).digest() != key[0]:
            raise Damage("a chunk")
        data[at : at + len(chunk)] = torch.frombuffer(bytearray(chunk), dtype=torch.uint8)
        at += len(chunk)
    kind = DTYPES[array["dtype"]]
    if kind == torch.bool and data.numel() and int(data.max()) > 1:
        raise Damage("an array")
    return data.view(kind).reshape(array["shape"])
