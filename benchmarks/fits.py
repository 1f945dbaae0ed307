"""How a measurement grows with the size of its input."""

from __future__ import annotations

import math
import statistics


def fit_exponent(values: dict[float, float]) -> float:
    """Least squares of log value against log size."""
    x = [math.log(size) for size in values]
    y = [math.log(value) for value in values.values()]
    return float(statistics.linear_regression(x, y).slope)
