"""Contrasts: a sentence of the paper as a quantity per seed that is positive where it is true."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from evergraph.lab.paper.experiment import Contrast, Table, Values, average

Names = str | Sequence[str]


def above(first: Names, second: Names, metric: str, within: float = 0.0) -> Contrast:
    """Claims that a row, or the mean of several, is above another, or at most ``within`` below."""
    one, other = _listed(first), _listed(second)
    return lambda table: table.mean(one, metric) - table.mean(other, metric) + within


def above_best(name: str, others: Sequence[str], metric: str, within: float = 0.0) -> Contrast:
    """Claims that a row is above the best of some others."""
    return lambda table: table(name, metric) - table.best(others, metric) + within


def negated(contrast: Contrast) -> Contrast:
    """Claims the opposite."""
    return lambda table: -contrast(table)


def rises(names: Sequence[str] | None, metric: str) -> Contrast:
    """Claims that a metric rises with the rows' ``x``, all rows by default."""
    return lambda table: table.slope(names or table.names(), metric)


def steeper(first: Sequence[str], second: Sequence[str], metric: str) -> Contrast:
    """Claims that a metric rises faster over some rows than over others."""
    return lambda table: table.slope(first, metric) - table.slope(second, metric)


def steady(series: str) -> Contrast:
    """Claims that PM away from the extremes stays within two points of the best value."""

    def contrast(table: Table) -> Values:
        inner = table.names(series)[1:-1]
        means = {name: mean for name in inner if (mean := table(name, "pm").mean) is not None}
        if not inner or len(means) < len(inner):  # the worst or the best may be among those to come
            return Values()
        worst, best = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        return table(worst, "pm") - table(best, "pm") + 2.0

    return contrast


def varies_less(name: str, others: Sequence[str], metric: str) -> Contrast:
    """Claims that a row is nearer to its median over seeds than others are on average."""
    return lambda table: (
        average([table.deviation(other, metric) for other in others])
        - table.deviation(name, metric)
    )


def trend(table: Table, half: Literal["whole", "lower", "upper"] = "whole") -> Values:
    """Fits forgetting over measured homophily with one slope for all classes, per seed.

    Args:
        table: Metrics ``homophily`` and ``forgetting``, a series per class.
        half: ``lower`` or ``upper`` takes each class's less or more homophilous rows; the middle
            belongs to both.
    """
    found = Values()
    for seed in sorted({seed for name in table.names() for seed in table(name, "homophily")}):
        product = square = 0.0
        for series in table.series:
            both = [(table(n, "homophily"), table(n, "forgetting")) for n in table.names(series)]
            points = sorted((x[seed], y[seed]) for x, y in both if seed in x and seed in y)
            count = len(points) // 2 + 1
            points = {"whole": points, "lower": points[:count], "upper": points[-count:]}[half]
            if points:
                xs, ys = zip(*points, strict=True)
                x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
                product += sum((x - x_mean) * (y - y_mean) for x, y in points)
                square += sum((x - x_mean) ** 2 for x in xs)
        if square > 0:
            found[seed] = product / square
    return found


def deviation_at(table: Table, *, most: bool) -> Values:
    """Averages over classes how far seeds are from their median, at one end of homophily."""
    found = []
    for series in table.series:
        means = {name: table(name, "homophily").mean for name in table.names(series)}
        known = {name: mean for name, mean in means.items() if mean is not None}
        if known:
            name = (max if most else min)(known, key=known.__getitem__)
            found.append(table.deviation(name, "forgetting"))
    return average(found)


def _listed(names: Names) -> Sequence[str]:
    return [names] if isinstance(names, str) else names
