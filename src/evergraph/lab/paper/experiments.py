"""The catalogue of experiments: what one is made of, and how ``experiments.yaml`` is read.

The heads of that file and of ``metrics.yaml`` say what every entry means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import product
from typing import Any, Literal, NamedTuple

import yaml

from evergraph.config import Variant, resolve
from evergraph.errors import unknown_name
from evergraph.methods import METHODS

Results = Mapping[str, Any]
THREE = ("cora", "citeseer", "amazon-computers")
#: The streams of the table of the field; graphs that grew have the last alone.
FIELD_STREAMS = ("class", "blurry:0.3", "time")


@dataclass(frozen=True)
class Facts:
    """What the rows of an experiment may depend on: sizes of the stream under its protocol."""

    dataset: str
    num_train: int
    num_tasks: int
    num_classes: int
    classes_per_task: int
    stream: str = "class"  # that of its own protocol
    num_nodes: int = 0  # of the graph, as the next two
    num_edges: int = 0  # undirected ones once, without loops
    num_features: int = 0

    def looked_up(self) -> dict[str, Any]:
        """Returns what tables show without a run: the sizes, and the settings that DSLR takes."""
        config = resolve(Variant.parse_dataset(self.dataset), Variant.parse("dslr"), 0)
        return {
            "nodes": self.num_nodes,
            "edges": self.num_edges,
            "features": self.num_features,
            "classes_per_task": self.classes_per_task,
            "tasks": self.num_tasks,
            "lr": config.training.lr,
            **config.settings,
        }


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
    shortcut: str = ""  # a leak that is switched on, by its name in leaks.SHORTCUTS; "": a run


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
    at: str  # its path in results.json, or one of READERS
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
    ours_alone: bool = False  # whether that is so with our settings alone, and not as printed


class Headline(NamedTuple):
    """A claim that the paper is read for, and the statements that it is made of."""

    claim: str  # in a few words
    source: str  # where the paper makes it
    made_of: Sequence[tuple[str, str]]  # experiment and text; the first says by how much
    unit: str  # of that first margin


@dataclass(frozen=True)
class Experiment:
    """One table, figure or claim of the paper.

    Its entry in the catalogue, whose head says what everything means, with the rows for a dataset,
    the metrics and the statements made.
    """

    id: str
    title: str
    source: str
    rows: Callable[[Facts], Sequence[Row]]
    metrics: tuple[Metric, ...]
    figure: Mapping[str, Any]
    tables: Sequence[str]
    datasets: Sequence[str] = THREE
    quick: Sequence[str] | None = None
    statements: Sequence[Statement] = ()
    looked_up: bool = False  # needs no run: its single row is found in the facts
    notes: Sequence[str] = ()
    in_paper: bool = True
    by_name: bool = False  # too large to be among all

    @property
    def has_settings(self) -> bool:
        """Whether the paper's settings may tell more: it trains and is about more than time."""
        timed = all(metric.timed for metric in self.metrics)
        return self.in_paper and not self.looked_up and not timed


def find_experiments(name: str) -> list[Experiment]:
    """Returns one experiment by its id, or all but those that have to be asked for by name."""
    if name == "all":
        return [one for one in EXPERIMENTS.values() if not one.by_name]
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, {*EXPERIMENTS, "all"})
    return [EXPERIMENTS[name]]


def make_experiment(
    id: str,
    *,
    rows: Any,
    metrics: Any,
    figure: dict[str, Any],
    where: str = "",
    graphs: Sequence[str] = THREE,
    says: Mapping[str, Mapping[str, Any]] | None = None,
    digits: int = 2,
    **plain: Any,
) -> Experiment:
    """Makes an experiment of its entry in the catalogue."""
    named = graphs if plain.get("in_paper", True) else []
    statements = []
    for text, claim in (says or {}).items():
        about: dict[str, Any] = {"where": where, "graphs": named}
        about |= {key: value for key, value in claim.items() if key in Statement._fields}
        statements.append(Statement(text, contrast=claim, **about))
    if plain.get("looked_up"):  # by their keys
        found = [Metric(key, title, key, None, 0, digits) for key, title in metrics.items()]
    else:
        found = [METRICS[name] for name in metrics]
    return Experiment(
        id=id,
        rows=partial(make_rows, rows),
        metrics=tuple(found),
        figure={"kind": "", "metrics": (), "x": "", "y": "", "split": False} | figure,
        statements=statements,
        **{"tables": [id], **plain},
    )


def make_headline(made_of: Mapping[str, list[str]], **plain: Any) -> Headline:
    """Makes a headline of its entry, refusing statements that no experiment has."""
    parts = [(name, text) for name, texts in made_of.items() for text in texts]
    for name, text in parts:
        if text not in (known := [statement.text for statement in EXPERIMENTS[name].statements]):
            raise unknown_name(f"statement of '{name}'", text, known)
    return Headline(made_of=parts, **plain)


def make_rows(entries: Mapping[str, str] | list[Any], facts: Facts) -> list[Row]:
    """Lists the rows of an experiment for a dataset."""
    if isinstance(entries, Mapping):
        return [Row(name, method) for name, method in entries.items()]
    rows: list[Row] = []
    for entry in entries:
        if isinstance(entry, str):
            name = entry.format(dataset=facts.dataset)
            rows.append(Row(name, name))
        elif "each" in entry:
            rows += _each(facts, **entry)
        elif "under" in entry:
            rows += _under(facts, **entry)
        else:
            rows.append(Row(**entry))
    return rows


def _each(facts: Facts, each: Mapping[str, Any], **row: Any) -> Iterator[Row]:
    """Puts every combination of values into the texts of a row; a single value is its place.

    Texts may also name the series, the ``share`` that a ``percent`` is, the ``size`` of so many
    training nodes, one per class at least, and the ``number`` of a ``label``, from 1 on. Classes
    that are ``forgettable`` are all but those of the last task.
    """
    forgettable = range((facts.num_tasks - 1) * facts.classes_per_task)
    lists = [forgettable if values == "forgettable" else values for values in each.values()]
    for values in product(*lists):
        known = {**row, **dict(zip(each, values, strict=True))}
        known["share"] = known.get("percent", 0) / 100
        known["size"] = max(facts.num_classes, round(facts.num_train * known["share"]))
        known["number"] = known.get("label", 0) + 1
        texts: dict[str, Any] = {key: text.format(**known) for key, text in row.items()}
        place = {"x": values[0]} if len(values) == 1 else {}
        place |= {key: float(texts[key]) for key in ("x", "y") if key in texts}
        yield Row(**texts | place)


def _under(facts: Facts, under: list[str], methods: list[str] | str) -> Iterator[Row]:
    """Puts methods before several streams; a graph that grew is learned as it grew alone."""
    in_time = facts.stream == "time"
    for stream in (one for one in under if (one == "time") == in_time):
        for method in METHODS if methods == "all" else methods:
            if stream == facts.stream:
                yield Row(method, method, stream)
            else:
                joint = "," if ":" in method else ":"
                yield Row(f"{method} · {stream}", f"{method}{joint}stream={stream}", stream)


_HERE = resources.files("evergraph.lab.paper")
METRICS = {
    name: Metric(**{"key": name, **entry})
    for name, entry in yaml.safe_load(_HERE.joinpath("metrics.yaml").read_text("utf-8")).items()
}
_ENTRIES: dict[str, Any] = yaml.safe_load(_HERE.joinpath("experiments.yaml").read_text("utf-8"))
#: What ``--quick`` changes: enough to see every experiment work, not to judge one.
QUICK: dict[str, Any] = _ENTRIES.pop("quick")
_HEADLINES = _ENTRIES.pop("headlines")
EXPERIMENTS: dict[str, Experiment] = {
    name: make_experiment(name, **entry) for name, entry in _ENTRIES.items()
}
HEADLINES: list[Headline] = [make_headline(**entry) for entry in _HEADLINES]
