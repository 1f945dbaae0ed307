"""``sensitivity``: one hyper-parameter at a time around the preset (Figures 10 and 15)."""

from evergraph.lab.paper.experiment import (
    Experiment,
    Facts,
    Figure,
    Row,
    Statement,
    Table,
    Values,
)
from evergraph.lab.paper.metrics import CURRENT, FM, PM

#: The paper's ranges; N is in ``structure-heatmap``, β in ``beta``.
RANGES: dict[str, tuple[float, ...]] = {
    "tau": (0.75, 0.8, 0.85, 0.9, 0.95),
    "r": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    "lam": (0.0, 0.25, 0.5, 0.75, 1.0),
    "num_candidates": (25, 50, 75, 100),
}
TITLES = {"tau": "τ", "r": "r", "lam": "λ", "num_candidates": "K"}


def rows(facts: Facts) -> list[Row]:
    """Lists every value of every hyper-parameter."""
    return [
        Row(f"{TITLES[key]} = {value:g}", f"dslr:{key}={value:g}", TITLES[key], value)
        for key, values in RANGES.items()
        for value in values
    ]


def steady(title: str) -> Statement:
    """States that PM away from the extremes stays within two points of the best value."""

    def contrast(table: Table) -> Values:
        inner = table.names(title)[1:-1]
        means = {name: table(name, "pm").mean or 0.0 for name in inner if table(name, "pm")}
        if not inner or len(means) < len(inner):  # the worst or the best may be among those to come
            return Values()
        worst, best = min(means, key=lambda n: means[n]), max(means, key=lambda n: means[n])
        return table(worst, "pm") - table(best, "pm") + 2.0

    return Statement(
        f"away from the extremes of {title}, the worst PM is within two points of the best",
        "Section 5.2.4, Figure 10",
        contrast,
    )


EXPERIMENT = Experiment(
    id="sensitivity",
    title="Sensitivity to τ, r, λ and K",
    source="Figures 10 and 15",
    rows=rows,
    metrics=(PM, FM, CURRENT),
    figure=Figure("lines", ("pm", "fm"), split=True),
    quick_rows=("τ = 0.75", "τ = 0.85", "τ = 0.95", "r = 0.1", "r = 0.2", "r = 0.4"),
    statements=tuple(steady(title) for title in TITLES.values()),
)
