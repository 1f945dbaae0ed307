"""``homophily-forgetting``: forgetting of a class over its buffer's homophily (Figure 2)."""

from evergraph.experiments.experiment import (
    Experiment,
    Facts,
    Figure,
    Metric,
    Results,
    Row,
    Statement,
    Table,
    Values,
    average,
)

POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
WHERE = "Section 1, Figure 2, Appendix A"


def rows(facts: Facts) -> list[Row]:
    """Lists every class that can be forgotten, at every part of its nodes."""
    probed = range((facts.num_tasks - 1) * facts.classes_per_task)
    return [
        Row(
            f"class {label + 1} at {position:g}",
            f"homophily-probe:probed_class={label},position={position}",
            f"class {label + 1}",
            position,
        )
        for label in probed
        for position in POSITIONS
    ]


def forgetting(results: Results, row: Row) -> float:
    """Reads what the probed class lost since it was learned, in points."""
    label = results["settings"]["probed_class"]
    matrix = results["by_class"]["accuracy_matrix"]
    learned = next(row for row in matrix if len(row) > label)
    return float(learned[label] - matrix[-1][label])


def homophily(results: Results, row: Row) -> float:
    """Reads the homophily of the nodes kept of the probed class, by all labels."""
    label = str(results["settings"]["probed_class"])
    return float(results["diagnostics"]["buffer_homophily"]["before"]["by_class"][label])


def at(table: Table, position: float) -> Values:
    """Averages the forgetting of all classes at one position."""
    names = [row.name for row in table.rows if row.x == position]
    return table.mean(names, "forgetting")


def deviation(table: Table, position: float) -> Values:
    """Averages how far seeds are from their median at one position."""
    names = [row.name for row in table.rows if row.x == position]
    return average([table.deviation(name, "forgetting") for name in names])


EXPERIMENT = Experiment(
    id="homophily-forgetting",
    title="Forgetting of a class over the homophily of its replayed nodes",
    source="Figure 2, Appendix A",
    rows=rows,
    metrics=(
        Metric("homophily", "homophily", homophily, 0.01, 0, 3),
        Metric("forgetting", "forgetting ↓", forgetting, better=-1),
    ),
    figure=Figure("scatter", ("homophily", "forgetting")),
    quick_rows=tuple(f"class {label} at {p}" for label in (1, 3) for p in ("0", "0.5", "1")),
    statements=(
        Statement(
            "the least homophilous nodes are forgotten more than the most homophilous",
            WHERE,
            lambda t: at(t, 0.0) - at(t, 1.0),
        ),
        Statement(
            "the gain is larger over the lower half of homophily than over the upper",
            WHERE,
            lambda t: (at(t, 0.0) - at(t, 0.5)) - (at(t, 0.5) - at(t, 1.0)),
        ),
        Statement(
            "forgetting varies more over seeds at the highest homophily than at the lowest",
            WHERE,
            lambda t: deviation(t, 1.0) - deviation(t, 0.0),
        ),
    ),
    notes=("Nodes are sorted by the labels that may be read (decision 0021).",),
)
