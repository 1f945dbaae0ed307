"""The vocabulary of the catalogue: what an experiment of the paper is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


class Statement(NamedTuple):
    """A sentence of the paper as something to measure.

    Attributes:
        text: What is claimed, in our words.
        where: Where the paper says so.
        contrast: A quantity per seed that is positive where the sentence is true, as
            :func:`~evergraph.lab.paper.contrasts.contrast` takes it.
        graphs: The graphs that the paper says it of; on others it is beyond the paper.
        by_construction: Why no measurement can refute or show it, if none can.
    """

    text: str
    where: str
    contrast: Mapping[str, Any]
    graphs: Sequence[str]
    by_construction: str | None = None


class Headline(NamedTuple):
    """A claim that the paper is read for, and the statements that it is made of.

    Attributes:
        claim: In a few words.
        source: Where the paper makes it.
        made_of: Statements as experiment and text; the first says by how much.
        unit: Of that first margin.
    """

    claim: str
    source: str
    made_of: Sequence[tuple[str, str]]
    unit: str


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
        tables: Keys of the paper's numbers that belong to it.
        statements: What the paper says about it.
        describe: Finds the values of the single row without any run, for descriptive tables.
        notes: What a reader must know, in sentences.
        in_paper: Whether the paper has it, so that it can be run with the settings printed there.
    """

    id: str
    title: str
    source: str
    rows: Callable[[Facts], Sequence[Row]]
    metrics: tuple[Metric, ...]
    figure: Figure
    tables: Sequence[str]
    datasets: Sequence[str] = THREE
    quick_rows: Sequence[str] | None = None
    statements: Sequence[Statement] = ()
    describe: Callable[[Facts, Any], Mapping[str, float]] | None = None
    notes: Sequence[str] = ()
    in_paper: bool = True
