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
    """One line of a table: a variant of a method, run over all seeds."""

    name: str  # as in the table of the paper's numbers
    method: str  # the variant as on the command line, NAME[:key=value,...]
    series: str = ""  # the line or group of a figure that it belongs to
    x: float | None = None  # its place on the horizontal axis, where the figure has one
    y: float | None = None  # its place on the vertical axis of a heat map
    #: Reads the graph as it came, or as structure learning left it.
    view: Literal["before", "after"] = "after"


def _per_task(*stages: str) -> Callable[[Results], float | None]:
    """Reads the seconds of some stages per task that has them: all but the last, or the first."""

    def read(results: Results) -> float | None:
        known = [results["seconds"][stage] for stage in stages if stage in results["seconds"]]
        return sum(known) / max(len(results["tasks"]) - 1, 1) if known else None

    return read


def _forgetting(results: Results) -> float:
    """Reads what the probed class lost since it was learned, in points."""
    label = results["settings"]["probed_class"]
    matrix = results["by_class"]["accuracy_matrix"]
    fresh = next(seen[label] for seen in matrix if len(seen) > label)
    return float(fresh - matrix[-1][label])


def _probed_homophily(results: Results) -> float:
    """Reads the homophily of the nodes kept of the probed class, by all labels."""
    label = str(results["settings"]["probed_class"])
    return float(results["diagnostics"]["buffer_homophily"]["before"]["by_class"][label])


#: What a metric may be that does not stand in the results as it is.
READERS: dict[str, Callable[[Results], float | None]] = {
    "forgetting of the probed class": _forgetting,
    "homophily of the probed class": _probed_homophily,
    "selection per task": _per_task("selection"),
    "inference per task": _per_task("inference"),
    "structure per task": _per_task("structure", "inference", "candidates"),
    "seconds of a task": lambda results: results["seconds"]["total"] / len(results["tasks"]),
    "minutes of a task": lambda results: results["seconds"]["total"] / len(results["tasks"]) / 60,
}


@dataclass(frozen=True)
class Metric:
    """One metric: where it stands in a run's results, and what it means.

    A point is 1 for percent and 0.01 for ratios; None is one hundredth of the printed value, for
    counts and seconds.
    """

    key: str  # as in the table of the paper's numbers
    title: str  # its name in tables and figures
    at: str = ""  # its path in results.json, or one of READERS; "" where no run has it
    point: float | None = 1.0  # what one point is in its unit
    better: int = 1  # 1 when more is better, −1 when less is, 0 when neither is
    digits: int = 2  # decimals shown
    relative_to: str | None = None  # divide by the value of this row, seed by seed
    timed: bool = False  # a time, which says nothing where rows were run on different machines

    def read(self, results: Results, view: str) -> float | None:
        """Finds the value in a run's results, None where the path ends early."""
        if self.at in READERS:
            return READERS[self.at](results)
        found: Any = results
        for key in self.at.split("."):
            found = found.get(view if key == "VIEW" else key) if isinstance(found, dict) else None
        return None if found is None else float(found)


class Statement(NamedTuple):
    """A sentence of the paper as something to measure."""

    text: str  # what is claimed, in our words
    where: str  # where the paper says so
    contrast: Mapping[str, Any]  # positive where it is true, as contrasts.contrast takes it
    graphs: Sequence[str]  # that the paper says it of; on others it is beyond the paper
    by_construction: str | None = None  # why no measurement can refute or show it, if none can


class Headline(NamedTuple):
    """A claim that the paper is read for, and the statements that it is made of."""

    claim: str  # in a few words
    source: str  # where the paper makes it
    made_of: Sequence[tuple[str, str]]  # experiment and text; the first says by how much
    unit: str  # of that first margin


@dataclass(frozen=True)
class Figure:
    """How rows become a picture.

    Kinds: ``points`` one per row; ``groups`` of bars per metric; ``lines`` over ``x``, one per
    series; ``heatmap`` over ``x`` and ``y``; ``scatter`` of the first metric against the second,
    one point per row and seed; ``embedding`` of nodes in the plane; ``edges`` around replayed
    nodes; ``frontier`` of PM against bytes and seconds.
    """

    kind: Literal[
        "points", "groups", "lines", "heatmap", "scatter", "embedding", "edges", "frontier"
    ]
    metrics: tuple[str, ...]  # keys of those shown, one panel each
    x: str = ""  # title of the horizontal axis
    y: str = ""  # title of the vertical axis of a heat map
    split: bool = False  # give every series its own panel, named below it instead of x


@dataclass(frozen=True)
class Experiment:
    """One table, figure or claim of the paper.

    Its entry in the catalogue, whose head says what everything means, with the rows for a dataset,
    the metrics and statements made, and in ``describe`` what finds the values of the single row of
    a table that needs no run.
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
