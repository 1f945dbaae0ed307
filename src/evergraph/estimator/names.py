"""Names: what nodes are called, and where to find them, without an object for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from evergraph.errors import InputError
from evergraph.estimator.arrays import Array, Grown

Id = str | int
#: Names that came since the index was sorted, as a share of those that were there.
UNSORTED = 0.25


@dataclass
class _Index:
    """Rows by key: sorted ones, and a dictionary of what came since."""

    keys: Array
    rows: Array
    recent: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Names:
    """The names of nodes in order of arrival, all text or all whole numbers.

    A key is a whole number itself or the hash of a text. What is found by key is compared with
    the name.
    """

    keys: Grown  # [n] int64
    text: Grown | None = None  # [bytes] uint8, all names one after the other
    ends: Grown | None = None  # [n] int64, where each ends in text
    _index: list[_Index] = field(default_factory=list, compare=False)  # none until it is needed

    @property
    def kind(self) -> type[Id] | None:
        """Tells whether names are text or whole numbers; None as long as there are none."""
        if not self.keys.length:
            return None
        return int if self.text is None else str

    def __len__(self) -> int:
        return self.keys.length

    def take(self, rows: Array | None = None) -> list[Any]:
        """Returns the names of some nodes, of all by default."""
        if self.text is None or self.ends is None:
            return list((self.keys.array if rows is None else self.keys.array[rows]).tolist())
        at = np.arange(len(self)) if rows is None else rows
        ends, data = self.ends.array, memoryview(self.text.array)  # type: ignore[arg-type]
        begins = np.where(at > 0, ends[at - 1], 0).tolist()
        return [str(data[a:b], "utf-8") for a, b in zip(begins, ends[at].tolist(), strict=True)]

    def where(self, names: Sequence[Id]) -> Array:
        """Returns the row of each name, ``[m]``, −1 where it is not known."""
        if not len(self) or not names or type(names[0]) is not self.kind:
            return np.full(len(names), -1)
        rows = self._by_key(_keys(names))
        known = np.flatnonzero(rows >= 0)
        there = self.take(rows[known])
        wrong = [at for at, name in zip(known.tolist(), there, strict=True) if name != names[at]]
        rows[wrong] = -1
        return rows

    def append(self, names: Sequence[Id]) -> Names:
        """Adds names, which must be new and of one kind."""
        keys = _keys(names)
        if len(np.unique(keys)) < len(names) or (len(self) and (self._by_key(keys) >= 0).any()):
            raise InputError(
                "Expected names with different hashes (got two that share one, which happens once "
                "in a billion graphs); rename one of them."
            )
        index = self._index if self.keys.is_newest else []
        if index:
            new = enumerate(keys.tolist(), len(self))
            index[0].recent.update((key, row) for row, key in new)
        grown = self.keys.append(keys)
        if isinstance(names[0], int):
            return Names(grown, _index=index)
        texts = [str(name).encode() for name in names]
        text, ends = self.text, self.ends
        if text is None or ends is None:
            text, ends = Grown.empty(np.uint8), Grown.empty(np.int64)
        new_ends = text.length + np.cumsum([len(name) for name in texts])
        data = np.frombuffer(b"".join(texts), dtype=np.uint8)
        return Names(grown, text.append(data), ends.append(new_ends), index)

    def keep(self, rows: Array) -> Names:
        """Returns some names in their order, as new arrays."""
        kept = Names(Grown.empty(np.int64))
        return kept.append(self.take(rows)) if len(rows) else kept

    def _by_key(self, keys: Array) -> Array:
        """Looks keys up; what is found may be another name of the same key."""
        index = self._index[0] if self._index else _Index(keys[:0], keys[:0])
        recent, sorted_ones = len(index.recent), index.keys.size
        if recent > max(1000, UNSORTED * sorted_ones) or recent + sorted_ones < len(self):
            order = np.argsort(self.keys.array, kind="stable")
            index = _Index(self.keys.array[order], order)
            self._index[:] = [index]
        at = np.searchsorted(index.keys, keys).clip(max=max(index.keys.size - 1, 0))
        rows = np.where(index.keys[at] == keys, index.rows[at], -1)
        if index.recent:
            missing = np.flatnonzero(rows < 0)
            rows[missing] = [index.recent.get(key, -1) for key in keys[missing].tolist()]
        rows[rows >= len(self)] = -1  # of a longer list that shares the index
        return rows


def _keys(names: Sequence[Id]) -> Array:
    if isinstance(names[0], int):
        return np.array(names, dtype=np.int64)
    digests = b"".join(blake2b(str(name).encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)
