"""How forgetting goes with homophily, seed by seed and within classes."""

import statistics
from collections.abc import Iterable, Sequence

from evergraph.lab.paper.experiment import Table, Values, average

Point = tuple[float, float]


def trend(table: Table, half: str = "whole") -> Values:
    """Fits forgetting over measured homophily with one slope for all classes, per seed.

    Args:
        table: Columns ``homophily`` and ``forgetting``, a series per class.
        half: ``lower`` or ``upper`` takes each class's less or more homophilous rows.
    """
    found = {}
    for seed in sorted({seed for name in table.names() for seed in table(name, "homophily")}):
        classes = [_part(_points(table, series, seed), half) for series in _series(table)]
        slope = _slope([points for points in classes if len(points) > 1])
        if slope is not None:
            found[seed] = slope
    return Values(found)


def deviation_at(table: Table, most: bool) -> Values:
    """Averages over classes how far seeds are from their median, at one end of homophily."""
    cells = []
    for series in _series(table):
        means = {name: table(name, "homophily").mean for name in table.names(series)}
        known = {name: mean for name, mean in means.items() if mean is not None}
        if known:
            name = (max if most else min)(known, key=lambda name: known[name])
            cells.append(table.deviation(name, "forgetting"))
    return average(cells)


def _series(table: Table) -> list[str]:
    return list(dict.fromkeys(row.series for row in table.rows))


def _points(table: Table, series: str, seed: int) -> list[Point]:
    """Lists a class's rows as (homophily, forgetting), the least homophilous first."""
    cells = [(table(n, "homophily"), table(n, "forgetting")) for n in table.names(series)]
    return sorted((x[seed], y[seed]) for x, y in cells if seed in x and seed in y)


def _part(points: Sequence[Point], half: str) -> Sequence[Point]:
    count = len(points) // 2 + 1  # the middle belongs to both
    return {"whole": points, "lower": points[:count], "upper": points[-count:]}[half]


def _slope(classes: Iterable[Sequence[Point]]) -> float | None:
    """Fits one slope to groups of points that may each have their own level."""
    product = square = 0.0
    for points in classes:
        middle_x = statistics.fmean(x for x, _ in points)
        middle_y = statistics.fmean(y for _, y in points)
        product += sum((x - middle_x) * (y - middle_y) for x, y in points)
        square += sum((x - middle_x) ** 2 for x, _ in points)
    return product / square if square > 0 else None
