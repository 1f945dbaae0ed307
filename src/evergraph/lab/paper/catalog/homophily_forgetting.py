"""``homophily-forgetting``: forgetting of a class over its buffer's homophily (Figure 2)."""

from evergraph.lab.paper.catalog.homophily_trend import deviation_at, trend
from evergraph.lab.paper.experiment import (
    Experiment,
    Facts,
    Figure,
    Metric,
    Results,
    Row,
    Statement,
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
    fresh = next(seen[label] for seen in matrix if len(seen) > label)
    return float(fresh - matrix[-1][label])


def homophily(results: Results, row: Row) -> float:
    """Reads the homophily of the nodes kept of the probed class, by all labels."""
    label = str(results["settings"]["probed_class"])
    return float(results["diagnostics"]["buffer_homophily"]["before"]["by_class"][label])


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
            "the less homophilous its replayed nodes, the more a class is forgotten",
            WHERE,
            lambda t: -trend(t),
        ),
        Statement(
            "forgetting falls faster over the lower half of homophily than over the upper",
            WHERE,
            lambda t: trend(t, "upper") - trend(t, "lower"),
        ),
        Statement(
            "forgetting varies more over seeds at the highest homophily than at the lowest",
            WHERE,
            lambda t: deviation_at(t, most=True) - deviation_at(t, most=False),
        ),
    ),
    notes=("Nodes are sorted by the labels that may be read (decision 0021).",),
)
