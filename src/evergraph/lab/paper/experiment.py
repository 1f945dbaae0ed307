"""The vocabulary of the catalogue: what an experiment of the paper is made of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Results = Mapping[str, Any]
THREE = ("cora", "citeseer", "amazon-computers")


@dataclass(frozen=True)
class Facts:
    """What the rows of an experiment may depend on: sizes of the stream under its protocol."""

    dataset: str
    num_train: int
    num_tasks: int
    num_classes: int
    classes_per_task: int


@dataclass(frozen=True)
class Row:
    """One line of a table: a variant of a method, run over all seeds.

    Attributes:
        name: As in the table of the paper's numbers.
        method: The variant as on the command line, ``NAME[:key=value,...]``.
        series: The line or group of a figure that it belongs to.
        x: Its place on the horizontal axis, where the figure has one.
        y: Its place on the vertical axis of a heat map.
        view: ``before`` reads the graph as it came, ``after`` as structure learning left it.
    """

    name: str
    method: str
    series: str = ""
    x: float | None = None
    y: float | None = None
    view: Literal["before", "after"] = "after"


@dataclass(frozen=True)
class Metric:
    """One metric: how it is read from a run's results, and what it means.

    Attributes:
        key: As in the table of the paper's numbers.
        title: Its name in tables and figures.
        read: Finds the value in ``results.json``; None where there is none.
        point: What one point is in its unit: 1 for percent, 0.01 for ratios; None is one
            hundredth of the printed value, for counts and seconds.
        better: 1 when more is better, −1 when less is, 0 when neither is.
        digits: Decimals shown.
        relative_to: Divide by the value of this row, seed by seed.
        timed: A time, which says nothing where rows were run on different machines.
    """

    key: str
    title: str
    read: Callable[[Results, Row], float | None]
    point: float | None = 1.0
    better: int = 1
    digits: int = 2
    relative_to: str | None = None
    timed: bool = False


class Values(dict[int, float]):
    """A quantity per seed; arithmetic pairs the seeds that both sides have."""

    def __add__(self, other: Values | float) -> Values:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Values | float) -> Values:
        return self._with(other, lambda a, b: a - b)

    def __truediv__(self, other: Values | float) -> Values:
        return self._with(other, lambda a, b: a / b if b else float("nan")).known()

    def __neg__(self) -> Values:
        return Values({seed: -value for seed, value in self.items()})

    def _with(self, other: Values | float, combine: Callable[[float, float], float]) -> Values:
        if not isinstance(other, Values):
            return Values({seed: combine(value, other) for seed, value in self.items()})
        common = sorted(self.keys() & other.keys())
        return Values({seed: combine(self[seed], other[seed]) for seed in common})

    def known(self) -> Values:
        """Drops seeds without a number."""
        return Values({seed: value for seed, value in self.items() if not math.isnan(value)})

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
        facts: The dataset.
        rows: Its variants.
        values: By row and metric; what was not measured is not there.
        better: By metric, as in :class:`Metric`.
        notes: What a reader must know about them.
    """

    facts: Facts
    rows: Sequence[Row]
    values: Mapping[tuple[str, str], Values]
    better: Mapping[str, int]
    notes: Sequence[str] = ()

    def __call__(self, row: str, metric: str) -> Values:
        """Returns a row's values of a metric, empty if it was not measured."""
        return self.values.get((row, metric), Values())

    def best(self, names: Sequence[str], metric: str) -> Values:
        """Returns the values with the best mean among some rows, empty until all are measured."""
        sign = self.better.get(metric, 1) or 1
        found = self._all(names, metric)
        return max(found, key=lambda values: sign * (values.mean or 0.0), default=Values())

    def mean(self, names: Sequence[str], metric: str) -> Values:
        """Averages rows, seed by seed; empty until all are measured."""
        return average(self._all(names, metric))

    def _all(self, names: Sequence[str], metric: str) -> list[Values]:
        """Lists the values of those names that are rows here, none while one is still missing."""
        here = {row.name for row in self.rows}
        found = [self(name, metric) for name in names if name in here]
        return found if all(found) else []

    def deviation(self, row: str, metric: str) -> Values:
        """Returns each seed's distance from the median over seeds (Levene, Brown, Forsythe).

        Two seeds are always equally far from their median: nothing below three.
        """
        values = self(row, metric)
        if len(values) < 3:
            return Values()
        middle = statistics.median(values.values())
        return Values({seed: abs(value - middle) for seed, value in values.items()})

    def slope(self, names: Sequence[str], metric: str) -> Values:
        """Fits a line over the rows' ``x`` for every seed, once all rows are measured."""
        places = {row.name: row.x for row in self.rows if row.x is not None}
        placed = [name for name in names if name in places]
        found = self._all(placed, metric)
        xs = [places[name] for name in placed[: len(found)]]
        if len(set(xs)) < 2:
            return Values()
        middle = statistics.fmean(xs)
        spread = sum((x - middle) ** 2 for x in xs)
        return Values(
            {
                seed: sum((x - middle) * y[seed] for x, y in zip(xs, found, strict=True)) / spread
                for seed in sorted(set(found[0]).intersection(*found))
            }
        )

    @property
    def series(self) -> list[str]:
        """Lists the lines or groups that rows belong to, in order."""
        return list(dict.fromkeys(row.series for row in self.rows))

    def names(self, series: str | None = None) -> list[str]:
        """Lists the rows, or those of one series, in order."""
        return [row.name for row in self.rows if series is None or row.series == series]


Contrast = Callable[[Table], Values]
Claim = Contrast | tuple[str, Contrast]


class Statement(NamedTuple):
    """A sentence of the paper as something to measure.

    Attributes:
        text: What is claimed, in our words.
        where: Where the paper says so.
        contrast: A quantity per seed that is positive where the sentence is true.
    """

    text: str
    where: str
    contrast: Contrast


@dataclass(frozen=True)
class Figure:
    """How rows become a picture.

    Attributes:
        kind: ``points`` one per row; ``groups`` of bars per metric; ``lines`` over ``x``, one per
            series; ``heatmap`` over ``x`` and ``y``; ``scatter`` of the first metric against the
            second, one point per row and seed; ``embedding`` of nodes in the plane; ``edges``
            around replayed nodes; ``frontier`` of PM against bytes and seconds.
        metrics: Keys of the metrics shown, one panel each.
        x: Title of the horizontal axis.
        y: Title of the vertical axis of a heat map.
        split: Give every series its own panel, named below it instead of ``x``.
    """

    kind: Literal[
        "points", "groups", "lines", "heatmap", "scatter", "embedding", "edges", "frontier"
    ]
    metrics: tuple[str, ...]
    x: str = ""
    y: str = ""
    split: bool = False


@dataclass(frozen=True)
class Experiment:
    """One table, figure or claim of the paper.

    Attributes:
        id: Its name on the command line.
        title: What it shows.
        source: Where it is in the paper.
        rows: The variants for a dataset.
        metrics: What is read from runs; a metric without any value is left out.
        figure: The picture.
        datasets: What it runs on unless told otherwise.
        quick_rows: Names of the rows that ``--quick`` keeps, all by default.
        tables: Keys of the paper's numbers that belong to it, its own id by default.
        where: Where the paper says what follows.
        says: What it says, sentence → contrast, or → (where, contrast) if that is elsewhere.
        describe: Finds the values of the single row without any run, for descriptive tables.
        notes: What a reader must know, in sentences.
        in_paper: Whether it can be run with the settings that the paper prints.
    """

    id: str
    title: str
    source: str
    rows: Callable[[Facts], Sequence[Row]]
    metrics: tuple[Metric, ...]
    figure: Figure
    datasets: tuple[str, ...] = THREE
    quick_rows: tuple[str, ...] | None = None
    tables: tuple[str, ...] = ()
    where: str = ""
    says: Mapping[str, Claim] = field(default_factory=dict)
    describe: Callable[[Facts, Any], Mapping[str, float]] | None = None
    notes: tuple[str, ...] = ()
    in_paper: bool = True

    @property
    def statements(self) -> list[Statement]:
        """Lists what the paper says."""
        return [
            Statement(text, *(claim if isinstance(claim, tuple) else (self.where, claim)))
            for text, claim in self.says.items()
        ]

    @property
    def paper_tables(self) -> tuple[str, ...]:
        """Names the tables of the paper's numbers to look into."""
        return self.tables or (self.id,)
