"""``structure-heatmap``: share of refined nodes against added neighbours (Figures 7 and 14)."""

from evergraph.lab.paper.experiment import Experiment, Facts, Figure, Row, Statement
from evergraph.lab.paper.metrics import CURRENT, FM, PM

RATIOS = (0.25, 0.5, 0.75, 1.0)
NEIGHBOURS = (1, 2, 3, 4, 5)


def name(ratio: float, n: int) -> str:
    """Names a cell."""
    return f"{round(100 * ratio)} %, N = {n}"


def rows(facts: Facts) -> list[Row]:
    """Lists every cell of the map."""
    return [
        Row(name(ratio, n), f"dslr:sl_ratio={ratio},num_neighbors={n}", f"N = {n}", 100 * ratio, n)
        for n in NEIGHBOURS
        for ratio in RATIOS
    ]


EXPERIMENT = Experiment(
    id="structure-heatmap",
    title="Share of the buffer that is refined, and neighbours added to each node",
    source="Figures 7 and 14",
    rows=rows,
    metrics=(PM, FM, CURRENT),
    figure=Figure("heatmap", ("pm", "fm"), "refined part of the buffer, %", "N"),
    quick_rows=tuple(name(ratio, n) for ratio in (0.5, 1.0) for n in (1, 5)),
    statements=(
        Statement(
            "PM rises with the share that is refined",
            "Section 5.1.3, Figure 7",
            lambda t: t.slope([row.name for row in t.rows], "pm"),
        ),
        Statement(
            "FM falls with the share that is refined",
            "Section 5.1.3, Figure 7",
            lambda t: -t.slope([row.name for row in t.rows], "fm"),
        ),
        Statement(
            "N = 5 is not better by a point than the best smaller N at a ratio of 100 %",
            "Section 5.1.3, Figure 7",
            lambda t: (
                t.best([name(1.0, n) for n in NEIGHBOURS[:-1]], "pm") - t(name(1.0, 5), "pm") + 1.0
            ),
        ),
    ),
)
