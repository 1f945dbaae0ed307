"""``datasets``: sizes of the graphs and of their streams (Table 9)."""

from collections.abc import Mapping
from pathlib import Path

from evergraph.config import Variant
from evergraph.lab.paper.experiment import THREE, Experiment, Facts, Figure, Metric, Row
from evergraph.stream.datasets import load_graph

TITLES = {
    "nodes": "nodes",
    "edges": "edges",
    "features": "features",
    "classes_per_task": "classes per task",
    "tasks": "tasks",
}


def describe(facts: Facts, data_root: Path | None) -> Mapping[str, float]:
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


EXPERIMENT = Experiment(
    id="datasets",
    title="Statistics of the datasets",
    source="Table 9",
    rows=lambda facts: [Row(facts.dataset, facts.dataset)],
    metrics=tuple(
        Metric(key, title, lambda results, row: None, None, 0, 0) for key, title in TITLES.items()
    ),
    figure=Figure("points", ("nodes", "edges")),
    datasets=THREE,
    describe=describe,
    notes=(
        "Edges are counted once, without duplicates and loops; the paper counts them as the files "
        "do.",
    ),
)
