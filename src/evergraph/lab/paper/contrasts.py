"""Contrasts: a sentence of the paper as a quantity per seed that is positive where it is true.

The catalogue writes one as ``{pm: dslr, above: er-gnn}``: a quantity of some rows, above or below
that of other rows or a number. What can stand there is :data:`QUANTITIES` and :func:`_select`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from evergraph.lab.paper.experiment import Row

#: Points of Current below the best row's from which a row's tasks count as not learnt. Training on
#: all labels is up to 9.2 points below fine-tuning, which has no old class to keep (decision 0022).
NOT_LEARNT = 10.0


class Values(dict[int, float]):
    """A quantity per seed; arithmetic pairs the seeds that both sides have."""

    def __add__(self, other: Values | float) -> Values:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Values | float) -> Values:
        return self._with(other, lambda a, b: a - b)

    def __truediv__(self, other: Values) -> Values:
        return self._with(Values({seed: x for seed, x in other.items() if x}), lambda a, b: a / b)

    def __neg__(self) -> Values:
        return Values({seed: -value for seed, value in self.items()})

    def _with(self, other: Values | float, combine: Callable[[float, float], float]) -> Values:
        if not isinstance(other, Values):
            return Values({seed: combine(value, other) for seed, value in self.items()})
        common = sorted(self.keys() & other.keys())
        return Values({seed: combine(self[seed], other[seed]) for seed in common})

    @property
    def mean(self) -> float | None:
        """Averages over the seeds, None without any."""
        return statistics.fmean(self.values()) if self else None


def average(quantities: Sequence[Values]) -> Values:
    """Averages quantities, seed by seed, over the seeds that all of them have."""
    known = [values for values in quantities if values]
    if not known:
        return Values()
    seeds = sorted(set(known[0]).intersection(*known))
    return Values({seed: statistics.fmean(values[seed] for values in known) for seed in seeds})


@dataclass(frozen=True)
class Table:
    """The measurements of one experiment on one dataset, for statements to look at.

    Attributes:
        dataset: The graph's name.
        rows: Its variants.
        values: By row and metric; what was not measured is not there.
        better: By metric, as in :class:`~evergraph.lab.paper.experiment.Metric`.
    """

    dataset: str
    rows: Sequence[Row]
    values: Mapping[tuple[str, str], Values]
    better: Mapping[str, int]

    def __call__(self, row: str, metric: str) -> Values:
        """Returns a row's values of a metric, empty if it was not measured."""
        return self.values.get((row, metric), Values())

    def whole(self, names: Sequence[str], metric: str) -> dict[str, Values]:
        """Finds the values of those names that are rows here, none while one is still missing."""
        here = {row.name for row in self.rows}
        found = {name: self(name, metric) for name in names if name in here}
        return found if all(found.values()) else {}

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
        means = {name: self(name, "current").mean for name in self.names()}
        known = {name: mean for name, mean in means.items() if mean is not None}
        best = max(known.values(), default=0.0)
        return frozenset(name for name, mean in known.items() if mean < best - NOT_LEARNT)


def contrast(spec: Mapping[str, Any], table: Table) -> Values:
    """Measures a contrast as the catalogue writes it, the quantity first.

    ``within`` is how far the sentence may be missed and still be called true.
    """
    quantity, rows = next(iter(spec.items()))
    (relation,) = spec.keys() & {"above", "below"}
    other, within = spec[relation], float(spec.get("within", 0))
    bound = other if isinstance(other, int | float) else evaluate(table, quantity, other)
    margin = evaluate(table, quantity, rows) - bound
    return (margin if relation == "above" else -margin) + within


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
    """Measures a quantity, such as ``pm`` or ``slope of pm``, of some rows."""
    if " / " in quantity:
        one, other = (evaluate(table, part, rows) for part in quantity.split(" / "))
        return one / other
    kind, _, metric = quantity.rpartition(" of ")
    return QUANTITIES[kind](table, _select(table, rows, metric), metric)


def _select(table: Table, rows: Any, metric: str) -> Sequence[str]:
    """Names the rows that an entry of the catalogue means."""
    if isinstance(rows, str):
        return table.names() if rows == "all" else [rows]
    if not isinstance(rows, Mapping):
        return list(rows)
    ((how, what),) = rows.items()
    if how in ("series", "inner"):
        return table.names(what) if how == "series" else table.names(what)[1:-1]
    if how == "best":
        learnt = [name for name in what if name not in table.not_learnt]
        whole, sign = table.whole(learnt, metric), table.better.get(metric, 1) or 1
        return sorted(whole, key=lambda name: -sign * (whole[name].mean or 0.0))[:1]
    sign = {"most": -1, "least": 1}[how]
    found = ([name for name in table.names(one) if table(name, what)] for one in table.series)
    ordered = (sorted(one, key=lambda n: sign * (table(n, what).mean or 0.0)) for one in found)
    return [names[0] for names in ordered if names]


def _mean(table: Table, names: Sequence[str], metric: str) -> Values:
    """Averages rows, seed by seed; empty until all are measured."""
    return average(list(table.whole(names, metric).values()))


def _difference(table: Table, names: Sequence[str], metric: str) -> Values:
    """Subtracts the second of two rows from the first."""
    first, second = names
    return table(first, metric) - table(second, metric)


def _range(table: Table, names: Sequence[str], metric: str) -> Values:
    """Subtracts the row with the lowest mean from the one with the highest."""
    found = list(table.whole(names, metric).values())
    if not found:
        return Values()
    means = [values.mean or 0.0 for values in found]
    return found[means.index(max(means))] - found[means.index(min(means))]


def _deviation(table: Table, names: Sequence[str], metric: str) -> Values:
    """Averages each seed's distance from the median over seeds (Levene, Brown, Forsythe).

    Two seeds are always equally far from their median: nothing below three.
    """
    found = []
    for values in (table(name, metric) for name in names):
        if len(values) > 2:
            middle = statistics.median(values.values())
            found.append(Values({seed: abs(value - middle) for seed, value in values.items()}))
    return average(found)


def _slope(table: Table, names: Sequence[str], metric: str) -> Values:
    """Fits a line over the rows' ``x`` for every seed, once all rows are measured."""
    places = {row.name: row.x for row in table.rows if row.x is not None}
    found = table.whole([name for name in names if name in places], metric)
    xs = [places[name] for name in found]
    if len(set(xs)) < 2:
        return Values()
    middle = statistics.fmean(xs)
    spread = sum((x - middle) ** 2 for x in xs)
    return Values(
        {
            seed: sum((places[name] - middle) * found[name][seed] for name in found) / spread
            for seed in sorted(set.intersection(*map(set, found.values())))
        }
    )


def _trend(table: Table, names: Sequence[str], metric: str) -> Values:
    """Fits a metric over measured homophily with one slope for all series, per seed.

    In place of rows stands ``whole``, or ``lower`` or ``upper`` for each series' less or more
    homophilous rows; the middle belongs to both.
    """
    (half,) = names
    found = Values()
    for seed in sorted({seed for name in table.names() for seed in table(name, "homophily")}):
        product = square = 0.0
        for series in table.series:
            both = [(table(n, "homophily"), table(n, metric)) for n in table.names(series)]
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


QUANTITIES: dict[str, Callable[[Table, Sequence[str], str], Values]] = {
    "": _mean,
    "difference": _difference,
    "range": _range,
    "deviation": _deviation,
    "slope": _slope,
    "trend": _trend,
}
