"""Contrasts: a sentence of the paper as a quantity per seed that is positive where it is true.

The catalogue writes one as ``{pm: dslr, above: er-gnn}``: a quantity of some rows, above or below
that of other rows or a number. What can stand there is :data:`QUANTITIES` and :func:`_select`. A
quantity is an array over seeds, NaN where one of the runs behind it is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.lab.paper.experiments import Row

Values = NDArray[np.float64]
#: Points of Current below the best row's from which a row's tasks count as not learnt. Training on
#: all labels is up to 9.2 points below fine-tuning, which has no old class to keep (decision 0022).
NOT_LEARNT = 10.0


@dataclass(frozen=True)
class Table:
    """The measurements of one experiment on one dataset, for statements to look at."""

    dataset: str  # the graph's name
    rows: Sequence[Row]  # its variants
    seeds: Sequence[int]  # all that some row has
    values: Mapping[tuple[str, str], Values]  # by row and metric, [seeds], NaN for not measured
    better: Mapping[str, int]  # by metric, as it has it

    def __call__(self, row: str, metric: str) -> Values:
        """Returns a row's values of a metric, ``[seeds]``."""
        return self.values.get((row, metric), np.full(len(self.seeds), np.nan))

    def known(self, values: Values) -> dict[int, float]:
        """Returns the values of the seeds that have one."""
        pairs = zip(self.seeds, values.tolist(), strict=True)
        return {seed: value for seed, value in pairs if not math.isnan(value)}

    def means(self, names: Iterable[str], metric: str) -> dict[str, float]:
        """Averages over the seeds that were run, of the rows that have any."""
        found = {name: self.known(self(name, metric)).values() for name in names}
        return {name: float(np.mean([*values])) for name, values in found.items() if values}

    def whole(self, names: Iterable[str], metric: str) -> Values:
        """Stacks the values of those names that are rows here, ``[rows, seeds]``.

        While one of them is not measured at all there is one row of NaN.
        """
        found = [name for name in names if name in self.names()]
        if not found or len(self.means(found, metric)) < len(found):
            return np.full((1, len(self.seeds)), np.nan)
        return np.stack([self(name, metric) for name in found])

    @property
    def series(self) -> list[str]:
        """Lists the lines or groups that rows belong to, in order."""
        return list(dict.fromkeys(row.series for row in self.rows))

    def names(self, series: str | None = None) -> list[str]:
        """Lists the rows, or those of one series, in order."""
        return [row.name for row in self.rows if series is None or row.series == series]

    @cached_property
    def not_learnt(self) -> frozenset[str]:
        """Finds the rows whose current tasks are not learnt: Current far below the best row's.

        What was never learnt cannot be forgotten, which flatters FM and spoils PM.
        """
        means = self.means(self.names(), "current")
        best = max(means.values(), default=0.0)
        return frozenset(name for name, mean in means.items() if mean < best - NOT_LEARNT)


def contrast(spec: Mapping[str, Any], table: Table) -> Values:
    """Measures a contrast as the catalogue writes it, the quantity first.

    ``within`` is how far the sentence may be missed and still be called true.
    """
    quantity, rows = next(iter(spec.items()))
    (relation,) = spec.keys() & {"above", "below"}
    other = spec[relation]
    bound = other if isinstance(other, int | float) else evaluate(table, quantity, other)
    margin = evaluate(table, quantity, rows) - bound
    return (margin if relation == "above" else -margin) + float(spec.get("within", 0))


def incomparable(spec: Mapping[str, Any], table: Table) -> list[str]:
    """Lists the rows that a contrast sets against others in PM or FM and that are not learnt."""
    quantity, *sides = next(iter(spec.items()))
    sides += [spec[relation] for relation in ("above", "below") if relation in spec]
    metric = quantity.rpartition(" of ")[2]
    if metric not in ("pm", "fm") or any(isinstance(side, int | float) for side in sides):
        return []
    named = dict.fromkeys(name for side in sides for name in _select(table, side, metric))
    return [name for name in named if name in table.not_learnt]


def evaluate(table: Table, quantity: str, rows: Any) -> Values:
    """Measures a quantity, such as ``pm`` or ``slope of pm``, of some rows, ``[seeds]``."""
    if " / " in quantity:
        one, other = (evaluate(table, part, rows) for part in quantity.split(" / "))
        return one / np.where(other == 0, np.nan, other)
    kind, _, metric = quantity.rpartition(" of ")
    return np.asarray(QUANTITIES[kind](table, _select(table, rows, metric), metric))


def _select(table: Table, rows: Any, metric: str) -> Sequence[str]:
    """Names the rows that an entry of the catalogue means."""
    if isinstance(rows, str):
        return table.names() if rows == "all" else [rows]
    if not isinstance(rows, Mapping):
        return list(rows)
    ((how, what),) = rows.items()
    if how in ("series", "inner"):
        return table.names(what) if how == "series" else table.names(what)[1:-1]
    if how == "best":  # of those that have learnt; nobody while one is still missing
        names = [name for name in table.names() if name in what and name not in table.not_learnt]
        each = [table.means(names, metric)]
        choose = min if table.better.get(metric) == -1 else max
        return _extremes(each, choose) if len(each[0]) == len(names) else []
    each = [table.means(table.names(series), what) for series in table.series]
    return _extremes(each, max if how == "most" else min)


def _extremes(each: Iterable[Mapping[str, float]], choose: Callable[..., str]) -> list[str]:
    return [choose(means, key=means.__getitem__) for means in each if means]


def _range(table: Table, names: Sequence[str], metric: str) -> Values:
    """Subtracts the row with the lowest mean from the one with the highest."""
    found = np.ma.masked_invalid(table.whole(names, metric))
    means = found.mean(axis=1)
    return np.asarray(found.data[means.argmax()] - found.data[means.argmin()])


def _deviation(table: Table, names: Sequence[str], metric: str) -> Values:
    """Averages each seed's distance from the median over seeds (Levene, Brown, Forsythe).

    Two seeds are always equally far from their median: nothing below three.
    """
    found = [table(name, metric) for name in names]
    found = [abs(row - np.nanmedian(row)) for row in found if len(table.known(row)) > 2]
    return np.asarray(np.mean(found or [np.full(len(table.seeds), np.nan)], axis=0))


def _slope(table: Table, names: Sequence[str], metric: str) -> Values:
    """Fits a line over the rows' ``x`` for every seed, once all rows are measured."""
    places = {row.name: row.x for row in table.rows if row.x is not None and row.name in names}
    found = table.whole(places, metric)
    x = np.array([*places.values()], dtype=float)
    if len(set(places.values())) < 2 or len(found) < 2:
        return np.full(len(table.seeds), np.nan)
    x -= x.mean()
    return np.asarray(x @ found / (x @ x))


def _trend(table: Table, names: Sequence[str], metric: str) -> Values:
    """Fits a metric over measured homophily with one slope for all series, per seed.

    In place of rows stands ``whole``, or ``lower`` or ``upper`` for each series' less or more
    homophilous rows; the middle belongs to both.
    """
    (half,) = names
    slopes = np.full(len(table.seeds), np.nan)
    for seed in range(len(table.seeds)):
        product = square = 0.0
        for series in table.series:
            pairs = [
                (table(n, "homophily")[seed], table(n, metric)[seed]) for n in table.names(series)
            ]
            points = np.array(sorted(pair for pair in pairs if not np.isnan(pair).any()))
            count = len(points) // 2 + 1
            points = {"whole": points, "lower": points[:count], "upper": points[-count:]}[half]
            if len(points):
                x, y = (points - points.mean(axis=0)).T
                product, square = product + x @ y, square + x @ x
        if square > 0:
            slopes[seed] = product / square
    return slopes


#: What is measured of some rows; without a name their mean, seed by seed.
QUANTITIES: dict[str, Callable[[Table, Sequence[str], str], Values]] = {
    "": lambda table, names, metric: table.whole(names, metric).mean(axis=0),
    "difference": lambda table, names, metric: table(names[0], metric) - table(names[1], metric),
    "range": _range,
    "deviation": _deviation,
    "slope": _slope,
    "trend": _trend,
}
