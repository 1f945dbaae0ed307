"""Robust scaling: columns of any unit become comparable, and no single value rules the rest.

The scale is fixed once, on the nodes seen by then, and never changes: what was learned is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from evergraph.stream.graph import Features, SparseRows, row_lengths, row_sums, take_columns

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
#: More than the length of any row.
LIMITLESS = 3e38
#: The longest row, in lengths that all but 1 % of the rows stay below.
LONGEST = 3.0


@dataclass(frozen=True)
class Scale:
    """Centre and width of every column, and the length of the longest row.

    Attributes:
        kind: ``binary`` and ``normalised`` features stay as they are, ``robust`` ones are centred
            where they are far from zero, and divided by the interquartile range. Columns with many
            zeros, and all of sparse features, are divided by the median of what is not zero.
        center: ``[d]``.
        width: ``[d]``.
        limit: Longer rows are shortened to this length.
    """

    kind: str
    center: Tensor
    width: Tensor
    limit: float

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
        lengths = row_lengths(_holding(features, values))
        odd = (lengths > self.limit) | (row_sums(_holding(features, far.float())) > 0)
        shorter = torch.where(lengths > self.limit, self.limit / lengths, 1)
        by_value = shorter[:, None]
        if isinstance(features, SparseRows):
            by_value = shorter[features.row_index()]
        return _holding(features, values * by_value), int(odd.sum())

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
