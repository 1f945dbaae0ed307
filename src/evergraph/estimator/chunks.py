"""Documents in SQLite: plain values whose arrays are cut into chunks under their SHA-256.

Blocks of bytes that did not change are not written again, and every byte has a checksum.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

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


class Damage(Exception):
    """Something in a store that cannot be read, with what is wrong."""


class Found(NamedTuple):
    """A version, or the change that is to be made to one."""

    number: int
    content: Any


def read_document(db: sqlite3.Connection, table: str, number: int) -> Found:
    """Reads a document with its arrays."""
    query = f"SELECT document, sha256 FROM {table} WHERE number = ?"
    text, checksum = db.execute(query, (number,)).fetchone() or (None, None)
    if not isinstance(text, str) or checksum != _checksum(number, text):
        raise Damage("its list of contents")
    try:
        document = json.loads(text)
        needed = sum(_num_bytes(array) for array in _arrays(document))
        if needed > physical_memory():
            raise Damage("the sizes of its arrays, which are larger than the memory")
        return Found(number, _lower(document, lambda array: _load(db, array)))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError, RuntimeError):
        raise Damage("its list of contents") from None


def write_document(db: sqlite3.Connection, table: str, found: Found) -> None:
    """Stores a document, and the chunks of its arrays that are not there yet."""
    known = {row[0] for row in db.execute("SELECT sha256 FROM chunk")}

    def store(data: Any) -> str:
        digest = hashlib.sha256(data).digest()
        if digest not in known:
            db.execute("INSERT INTO chunk VALUES (?, ?)", (digest, data))
            known.add(digest)
        return digest.hex()

    text = json.dumps(_lift(found.content, store))
    written = datetime.now(UTC).isoformat(timespec="seconds")
    row = (found.number, written, text, _checksum(found.number, text))
    db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", row)


def sweep(db: sqlite3.Connection) -> None:
    """Deletes chunks that nothing refers to any more."""
    used: set[str] = set()
    for table in ("version", "pending"):
        for (text,) in db.execute(f"SELECT document FROM {table}").fetchall():
            with suppress(ValueError, TypeError, KeyError, RecursionError):  # a damaged one
                used.update(
                    chunk for array in _arrays(json.loads(text)) for chunk in array["chunks"]
                )
    there = [row[0] for row in db.execute("SELECT sha256 FROM chunk")]
    gone = [(digest,) for digest in there if digest.hex() not in used]
    db.executemany("DELETE FROM chunk WHERE sha256 = ?", gone)


def _checksum(number: int, text: str) -> bytes:
    return hashlib.sha256(f"{number} {text}".encode()).digest()


def _lift(value: Any, store: Callable[[Any], str]) -> Any:
    """Replaces arrays in nested values by what they are and the chunks they are in."""
    if isinstance(value, Tensor):
        array = value.detach().cpu().contiguous()
        data = array.reshape(-1).view(torch.uint8).numpy()
        chunks = [store(data[at : at + CHUNK]) for at in range(0, data.size, CHUNK)]
        kind = str(array.dtype).removeprefix("torch.")
        return {ARRAY: {"dtype": kind, "shape": list(array.shape), "chunks": chunks}}
    if isinstance(value, dict):
        return {str(key): _lift(item, store) for key, item in value.items()}
    if isinstance(value, list):
        return [_lift(item, store) for item in value]
    return value


def _lower(value: Any, load: Callable[[dict[str, Any]], Tensor]) -> Any:
    """Puts arrays back where :func:`_lift` took them from."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return load(value[ARRAY])
        return {key: _lower(item, load) for key, item in value.items()}
    if isinstance(value, list):
        return [_lower(item, load) for item in value]
    return value


def _arrays(value: Any) -> Iterator[dict[str, Any]]:
    """Lists what a document says of its arrays."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            yield value[ARRAY]
        else:
            for item in value.values():
                yield from _arrays(item)
    elif isinstance(value, list):
        for item in value:
            yield from _arrays(item)


def _num_bytes(array: dict[str, Any]) -> int:
    """Computes the size of an array from what is said of it."""
    shape = array["shape"]
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("a shape that is none")
    return int(math.prod(shape) * DTYPES[array["dtype"]].itemsize)


def _load(db: sqlite3.Connection, array: dict[str, Any]) -> Tensor:
    """Reads an array; what is stored must be what was said before memory is taken."""
    digests = [bytes.fromhex(chunk) for chunk in array["chunks"]]
    stored = 0
    for digest in digests:
        row = db.execute("SELECT length(data) FROM chunk WHERE sha256 = ?", (digest,)).fetchone()
        if row is None:
            raise Damage("a chunk, which is missing")
        stored += row[0]
    if stored != _num_bytes(array):
        raise Damage("the size of an array")
    data, at = torch.empty(stored, dtype=torch.uint8), 0
    filled = data.numpy()
    for digest in digests:
        content = db.execute("SELECT data FROM chunk WHERE sha256 = ?", (digest,)).fetchone()[0]
        if not isinstance(content, bytes) or hashlib.sha256(content).digest() != digest:
            raise Damage("a chunk")
        filled[at : at + len(content)] = np.frombuffer(content, dtype=np.uint8)
        at += len(content)
    kind = DTYPES[array["dtype"]]
    if kind == torch.bool and stored and int(data.max()) > 1:
        raise Damage("an array")
    return data.view(kind).reshape(array["shape"])
