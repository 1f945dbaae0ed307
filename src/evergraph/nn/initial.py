"""Initial weights that all encoders share."""

from __future__ import annotations


def glorot_bound(fan_in: int, fan_out: int) -> float:
    """Returns the end of the interval that Glorot's uniform initialisation draws from."""
    return float((6 / (fan_in + fan_out)) ** 0.5)
