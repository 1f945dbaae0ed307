"""Features of nodes, dense or sparse, and the scale that they are brought to.

Features are a dense tensor or :class:`SparseRows`; functions take either. With a robust scale
columns of any unit become comparable, and no single value rules the rest. It is fixed once, on the
nodes seen by then, and never changes: what was learned is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from evergraph.stream.adjacency import OnDevice, Pattern, pointer, pointer_of, runs

Scaling = Literal["auto", "none", "robust"]
#: Most rows that a scale is measured on, evenly spaced, and columns at a time.
SAMPLE, COLUMNS = 4096, 1024
#: Rows that must be binary or of length one for features to be taken as they are.
MOST = 0.99
#: Share of zeros from which on a zero stands for absence, as in counts of words.
ABSENT = 0.25
#: An interquartile range in standard deviations of a normal distribution.
NORMAL = 1.349
#: Widths that the median is away from zero before a column is centred.
AWAY = 3.0
#: Widths up to which values stay; beyond, they count by their logarithm.
FAR = 10.0
#: Rows whose lengths are computed at a time.
BLOCK = 1 << 16
#: More than the length of any row.
LIMITLESS = 3e38
#: The longest row, in lengths that all but 1 % of the rows stay below.
LONGEST = 3.0


@dataclass(frozen=True)
class SparseRows(OnDevice):
    """A sparse ``[n, d]`` feature matrix in CSR form, float32.

    The first ``n`` rows are a prefix of every array, so a view of the nodes seen so far
    shares the memory of the whole.
    """

    values: Tensor  # [nnz] float32
    indices: Tensor  # [nnz] int64, column of each value
    indptr: Tensor  # [n + 1] int64
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, d)``."""
        return self.indptr.numel() - 1, self.num_columns

    @property
    def device(self) -> torch.device:
        """Where the arrays live."""
        return self.values.device

    def __getitem__(self, rows: slice | Tensor) -> SparseRows:
        """Returns the first rows (``[:m]``, sharing memory) or a copy of any, in their order."""
        if isinstance(rows, slice):
            assert rows.start is None
            assert rows.step is None
            indptr = self.indptr[: rows.stop + 1]
            stop = int(indptr[-1])
            return SparseRows(self.values[:stop], self.indices[:stop], indptr, self.num_columns)
        counts = (self.indptr[1:] - self.indptr[:-1])[rows]
        owner, rank = runs(counts)
        at = self.indptr[rows][owner] + rank
        return SparseRows(self.values[at], self.indices[at], pointer(counts), self.num_columns)

    @cached_property
    def pattern(self) -> Pattern:
        """Which columns every row holds."""
        return Pattern(self.indptr, self.indices.int())

    @cached_property
    def transpose(self) -> tuple[Pattern, Tensor]:
        """The pattern by column, and where each of its values is among ``values``, ``[nnz]``."""
        order = torch.argsort(self.indices, stable=True)
        indptr = pointer_of(self.indices, self.num_columns)
        return Pattern(indptr, self.row_index()[order].int()), order

    def with_values(self, values: Tensor) -> SparseRows:
        """Returns the same pattern holding other values; what was derived of it is shared."""
        other = SparseRows(values, self.indices, self.indptr, self.num_columns)
        for derived in ("pattern", "transpose"):
            if derived in self.__dict__:
                other.__dict__[derived] = self.__dict__[derived]
        return other

    def dense(self) -> Tensor:
        """Returns the dense ``[n, d]`` matrix; for small graphs, tests and diagnostics."""
        n, d = self.shape
        out = torch.zeros(n, d, dtype=self.values.dtype, device=self.device)
        out.index_put_((self.row_index(), self.indices), self.values, accumulate=True)
        return out

    def row_index(self) -> Tensor:
        """Returns the row of every stored value, ``[nnz]``."""
        rows = torch.arange(self.shape[0], device=self.device)
        return torch.repeat_interleave(rows, self.indptr[1:] - self.indptr[:-1])


Features = Tensor | SparseRows


def take_columns(features: Features, start: int, stop: int) -> Tensor:
    """Returns the columns ``[start, stop)`` as a dense ``[n, stop - start]`` matrix."""
    if not isinstance(features, SparseRows):
        return features[:, start:stop]
    pattern, order = features.transpose
    first, last = int(pattern.indptr[start]), int(pattern.indptr[stop])
    columns, _ = runs(pattern.indptr[start + 1 : stop + 1] - pattern.indptr[start:stop])
    out = features.values.new_zeros(features.shape[0], stop - start)
    place = (pattern.columns[first:last].long(), columns)
    return out.index_put_(place, features.values[order[first:last]], accumulate=True)


def leanest(features: Features) -> Features:
    """Stores sparse rows densely when that takes no more memory, which is faster as well."""
    if isinstance(features, SparseRows):
        n, d = features.shape
        per_value = features.values.element_size() + features.indices.element_size()
        if n * d * features.values.element_size() <= features.values.numel() * per_value:
            return features.dense()
    return features


def row_sums(features: Features) -> Tensor:
    """Sums each row, ``[n]``."""
    if isinstance(features, SparseRows):
        sums = torch.zeros(features.shape[0], dtype=features.values.dtype, device=features.device)
        return sums.index_add_(0, features.row_index(), features.values)
    return features.sum(dim=1)


def row_lengths(features: Features) -> Tensor:
    """Computes the Euclidean length of each row, ``[n]``."""
    if isinstance(features, SparseRows):
        return row_sums(features.with_values(features.values.square())).sqrt()
    if features.stride(0) == 1 < features.shape[1]:  # they lie column by column, maybe on disk
        squares = features.new_zeros(features.shape[0])
        for column in features.t():
            squares.addcmul_(column, column)
        return squares.sqrt()
    blocks = torch.split(features, BLOCK)  # nothing as large as all features is made
    return torch.cat([block.square().sum(dim=1) for block in blocks]).sqrt()


def normalise_rows(features: Features) -> Features:
    """Divides each row by its sum; rows that sum to zero stay zero."""
    sums = row_sums(features)
    return times_rows(features, torch.where(sums == 0, torch.ones_like(sums), sums).reciprocal())


def times_rows(features: Features, factor: Tensor) -> Features:
    """Multiplies each row by a factor of its own, ``[n]``."""
    if isinstance(features, SparseRows):
        return features.with_values(features.values * factor[features.row_index()])
    return features * factor[:, None]


def from_scipy_parts(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, num_columns: int
) -> SparseRows:
    """Builds sparse rows from the arrays of a SciPy CSR matrix."""
    return SparseRows(
        torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32)),
        torch.from_numpy(np.ascontiguousarray(indices, dtype=np.int64)),
        torch.from_numpy(np.ascontiguousarray(indptr, dtype=np.int64)),
        num_columns,
    )


@dataclass(frozen=True)
class Scale:
    """Centre and width of every column, and the length of the longest row."""

    #: ``binary`` and ``normalised`` features stay as they are, ``robust`` ones are centred where
    #: they are far from zero, and divided by the interquartile range. Columns with many zeros, and
    #: all of sparse features, are divided by the median of what is not zero.
    kind: str
    center: Tensor  # [d]
    width: Tensor  # [d]
    limit: float  # longer rows are shortened to this length

    @classmethod
    def fit(cls, features: Features, scaling: Scaling = "auto") -> Scale:
        """Measures features; ``auto`` leaves binary and normalised ones as they are."""
        n, d = features.shape
        some = features[torch.arange(0, n, max(1, -(-n // SAMPLE)))]
        kind = _in_order(some) if scaling == "auto" else None
        scale = cls(kind or "robust", torch.zeros(d), torch.ones(d), LIMITLESS)
        if kind is None:
            blocks = (take_columns(some, at, min(at + COLUMNS, d)) for at in range(0, d, COLUMNS))
            measured = [_measure(block, isinstance(some, SparseRows)) for block in blocks]
            center, width = (torch.cat(parts) for parts in zip(*measured, strict=True))
            # A column that nothing was seen of is taken for one like the others.
            usual = width[(width > 0) & (center == 0)]
            width[width == 0] = usual.median() if usual.numel() else 1.0
            scale = cls("robust", center, width, LIMITLESS)
        lengths = row_lengths(scale.apply(some)[0]).sort().values
        longest = LONGEST * float(lengths[int(0.99 * (lengths.numel() - 1))])
        return cls(scale.kind, scale.center, scale.width, longest or LIMITLESS)

    def apply(self, features: Features) -> tuple[Features, int]:
        """Returns the features on this scale, and how many rows are beyond its range."""
        if isinstance(features, SparseRows):
            values = features.values / self.width[features.indices]
        else:
            values = (features - self.center) / self.width
        far = values.abs() > FAR
        beyond = values[far]
        values[far] = beyond.sign() * FAR * (1 + (beyond.abs() / FAR).log())
        scaled = _holding(features, values)
        lengths = row_lengths(scaled)
        odd = (lengths > self.limit) | (row_sums(_holding(features, far.float())) > 0)
        shorter = torch.where(lengths > self.limit, self.limit / lengths, 1)
        return times_rows(scaled, shorter), int(odd.sum())

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain values that restore the scale."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @classmethod
    def restore(cls, state: dict[str, Any], num_columns: int) -> Scale:
        """Takes back what :meth:`state_dict` returned; refuses what does not fit."""
        scale = cls(**state)
        both = torch.stack([scale.center, scale.width])
        good = both.shape == (2, num_columns) and both.dtype == torch.float32
        if not good or not bool(both.isfinite().all()) or not bool((scale.width > 0).all()):
            raise ValueError("a scale of other features")
        if not float(scale.limit) > 0 or type(scale.kind) is not str:
            raise ValueError("a scale that is none")
        return scale


def _in_order(features: Features) -> str | None:
    """Tells whether nearly all rows are binary or of length or sum one, and which."""
    values = features.values if isinstance(features, SparseRows) else features
    odd = ((values != 0) & (values != 1)).float()
    if _mostly(row_sums(_holding(features, odd)) == 0):
        return "binary"
    for length in (row_lengths(features), row_sums(_holding(features, values.abs()))):
        if _mostly(((length - 1).abs() < 1e-3) | (length == 0)):
            return "normalised"
    return None


def _measure(x: Tensor, sparse: bool) -> tuple[Tensor, Tensor]:
    """Finds centre and width of columns, both ``[c]``; width 0 where all values are the same.

    Zero stays where it is unless the values are far from it. Then the median becomes one and not
    zero, for a row of zeros has no direction.
    """
    n = x.shape[0]
    ordered = x.sort(dim=0).values
    median, spread = ordered[n // 2], (ordered[3 * n // 4] - ordered[n // 4]) / NORMAL
    absent = ((x == 0).float().mean(dim=0) >= ABSENT) | sparse
    apart = (x - torch.where(absent, 0, median)).abs().sort(dim=0).values
    same = (apart == 0).sum(dim=0)
    middle = (same + (n - same - 1) // 2).clamp(min=0)  # of what is not at the centre
    width = torch.where(absent | (spread == 0), apart.gather(0, middle[None])[0], spread)
    away = (median.abs() > AWAY * width) & ~absent
    # Below this it is rounding.
    width = torch.where(away, torch.maximum(width, 1e-4 * median.abs()), width)
    return torch.where(away, median - width, 0), width


def _holding(features: Features, values: Tensor) -> Features:
    """Returns features of the same form that hold other values."""
    return features.with_values(values) if isinstance(features, SparseRows) else values


def _mostly(rows: Tensor) -> bool:
    return float(rows.float().mean()) >= MOST
