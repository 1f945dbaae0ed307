"""The catalogue, read from ``experiments.yaml`` and ``metrics.yaml``; their heads say how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from evergraph.config import Variant, resolve
from evergraph.errors import unknown_name
from evergraph.lab.paper.experiment import (
    THREE,
    Experiment,
    Facts,
    Figure,
    Headline,
    Metric,
    Row,
    Statement,
)
from evergraph.stream.datasets import load_graph


def find_experiments(name: str) -> list[Experiment]:
    """Returns one experiment by its id, or all of them."""
    if name == "all":
        return list(EXPERIMENTS.values())
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, {*EXPERIMENTS, "all"})
    return [EXPERIMENTS[name]]


def make_experiment(
    id: str,
    *,
    rows: Any,
    metrics: Any,
    figure: Mapping[str, Any],
    tables: list[str] | None = None,
    quick: list[str] | None = None,
    where: str = "",
    graphs: list[str] | None = None,
    says: Mapping[str, Mapping[str, Any]] | None = None,
    describe: str | None = None,
    digits: int = 2,
    **plain: Any,
) -> Experiment:
    """Makes an experiment of its entry in the catalogue."""
    said = {"where": where, "graphs": graphs or THREE, "by_construction": None}
    if not plain.get("in_paper", True):
        said["graphs"] = []
    if describe is None:
        found = [METRICS[name] for name in metrics]
    else:  # nothing is read from runs
        found = [Metric(key, title, "", None, 0, digits) for key, title in metrics.items()]
    statements = []
    for text, claim in (says or {}).items():  # what says nothing else of it is its contrast
        contrast = {key: value for key, value in claim.items() if key not in said}
        about = {key: claim.get(key, value) for key, value in said.items()}
        statements.append(Statement(text, contrast=contrast, **about))
    return Experiment(
        id=id,
        rows=partial(make_rows, rows),
        metrics=tuple(found),
        figure=Figure(**{**figure, "metrics": tuple(figure["metrics"])}),
        tables=tables or [id],
        quick_rows=quick,
        statements=statements,
        describe=DESCRIPTIONS[describe] if describe is not None else None,
        **plain,
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
    return [row for entry in entries for row in _expand(entry, facts)]


def _expand(entry: Any, facts: Facts) -> Iterator[Row]:
    """Lists the rows of one entry; the first key of a pattern says which one it is."""
    if isinstance(entry, str):
        name = entry.format(dataset=facts.dataset)
        yield Row(name, name)
    elif (pattern := PATTERNS.get(next(iter(entry)))) is not None:
        yield from pattern(facts, **entry)
    else:
        yield Row(**entry)


def _each(facts: Facts, each: list[float], name: str, method: str, series: str) -> Iterator[Row]:
    """Puts values into a name and a method."""
    for value in each:
        yield Row(name.format(value), method.format(value), series, value)


def _percent(facts: Facts, percent: list[int], method: str, series: str) -> Iterator[Row]:
    """Gives a method buffers of parts of all training nodes, one node per class at least."""
    for part in percent:
        size = max(facts.num_classes, round(facts.num_train * part / 100))
        joint = "," if ":" in method else ":"
        yield Row(f"{series} {part} %", f"{method}{joint}buffer_size={size}", series, part)


def _positions(facts: Facts, positions: list[float]) -> Iterator[Row]:
    """Keeps nodes of every class that can be forgotten at some places of its homophily."""
    for label in range((facts.num_tasks - 1) * facts.classes_per_task):
        series = f"class {label + 1}"
        for position in positions:
            method = f"homophily-probe:probed_class={label},position={position}"
            yield Row(f"{series} at {position:g}", method, series, position)


def _refined(facts: Facts, refined: list[float], added: list[int]) -> Iterator[Row]:
    """Refines parts of the buffer by numbers of neighbours."""
    for n in added:
        for ratio in refined:
            method = f"dslr:sl_ratio={ratio},num_neighbors={n}"
            yield Row(f"{100 * ratio:.0f} %, N = {n}", method, f"N = {n}", 100 * ratio, n)


PATTERNS: dict[str, Callable[..., Iterator[Row]]] = {
    "each": _each,
    "percent": _percent,
    "positions": _positions,
    "refined": _refined,
}


def _dataset_sizes(facts: Facts, data_root: Path | None) -> Mapping[str, float]:
    """Counts what was loaded, undirected edges once and without loops."""
    variant = Variant.parse_dataset(facts.dataset)
    graph = load_graph(variant.name, data_root, variant.options or None)
    return {
        "nodes": graph.num_nodes,
        "edges": graph.edges.shape[1],
        "features": graph.x.shape[1],
        "classes_per_task": facts.classes_per_task,
        "tasks": facts.num_tasks,
    }


def _dslr_settings(facts: Facts, data_root: Path | None) -> Mapping[str, float]:
    """Reads the settings that a run of DSLR takes by default."""
    config = resolve(Variant.parse_dataset(facts.dataset), Variant.parse("dslr"), 0)
    keys = [metric.key for metric in EXPERIMENTS["hyperparameters"].metrics]
    values = {**config.settings, "lr": config.training.lr}
    return {key: float(values[key]) for key in keys}


DESCRIPTIONS = {"dataset sizes": _dataset_sizes, "settings of DSLR": _dslr_settings}
_HERE = resources.files("evergraph.lab.paper")
METRICS = {
    name: Metric(**{"key": name, **entry})
    for name, entry in yaml.safe_load(_HERE.joinpath("metrics.yaml").read_text("utf-8")).items()
}
_ENTRIES: dict[str, Any] = yaml.safe_load(_HERE.joinpath("experiments.yaml").read_text("utf-8"))
_HEADLINES = _ENTRIES.pop("headlines")
EXPERIMENTS: dict[str, Experiment] = {
    name: make_experiment(name, **entry) for name, entry in _ENTRIES.items()
}
HEADLINES: list[Headline] = [make_headline(**entry) for entry in _HEADLINES]
