"""Grown: an array that grows at its end, whose snapshots share their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class _Buffer:
    """Memory with room behind what is used."""

    data: Array
    used: int


@dataclass(frozen=True, eq=False)
class Grown:
    """Rows in order of arrival, ``[n, ...]``; never changed, only followed by a longer one.

    Whoever appends to a snapshot first writes behind its end, into the memory that both share;
    whoever comes second copies.

    Attributes:
        length: n.
        lineage: The same object for all that one array grew into, so that a store knows which
            rows it has.
    """

    _buffer: _Buffer
    length: int
    lineage: object

    @classmethod
    def of(cls, data: Array, length: int | None = None) -> Grown:
        """Takes an array; what is behind ``length`` is room."""
        n = data.shape[0] if length is None else length
        return cls(_Buffer(data, n), n, object())

    @classmethod
    def empty(cls, dtype: Any, *shape: int) -> Grown:
        """Makes an array without rows."""
        return cls.of(np.empty((0, *shape), dtype=dtype))

    @property
    def array(self) -> Array:
        """The rows; nobody may change them."""
        return self._buffer.data[: self.length]

    @property
    def tensor(self) -> Tensor:
        """The rows as a tensor that shares their memory."""
        import torch  # noqa: PLC0415 - reading predictions needs none of it

        return torch.from_numpy(self.array)

    @property
    def is_newest(self) -> bool:
        """Tells whether nobody has appended to this snapshot."""
        return self._buffer.used == self.length

    def append(self, rows: Array) -> Grown:
        """Returns the array with rows below, in the time that these take on average."""
        begin, end = self.length, self.length + rows.shape[0]
        buffer = self._buffer
        if not self.is_newest or end > buffer.data.shape[0]:
            data = np.empty((end + end // 2, *buffer.data.shape[1:]), dtype=buffer.data.dtype)
            data[:begin] = self.array
            if self.is_newest:
                buffer.used = -1  # who appends to this snapshot from now on is second
            buffer = _Buffer(data, begin)
        buffer.data[begin:end] = rows
        buffer.used = end
        return Grown(buffer, end, self.lineage)
