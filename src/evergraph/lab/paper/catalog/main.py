"""``main``: nine methods on every dataset (Table 2)."""

from evergraph.lab.paper.experiment import (
    Experiment,
    Figure,
    Row,
    Statement,
    Table,
    Values,
    average,
)
from evergraph.lab.paper.metrics import CURRENT, FM, PM

BASELINES = ("lwf", "ewc", "gem", "mas", "continual-gnn", "twp", "er-gnn", "rclg")
NO_REPLAY = ("lwf", "ewc", "mas", "twp")


def spread(table: Table) -> Values:
    """Compares distances from the median over seeds: the mean of all baselines less DSLR's."""
    others = average([table.deviation(name, "pm") for name in BASELINES])
    return others - table.deviation("dslr", "pm")


EXPERIMENT = Experiment(
    id="main",
    title="PM and FM of nine methods",
    source="Table 2",
    rows=lambda facts: [Row(name, name) for name in (*BASELINES, "dslr")],
    metrics=(PM, FM, CURRENT),
    figure=Figure("points", ("pm", "fm")),
    statements=(
        Statement(
            "DSLR's PM is above that of the best baseline",
            "Section 5.1.1 (1)",
            lambda t: t("dslr", "pm") - t.best(BASELINES, "pm"),
        ),
        Statement(
            "DSLR's FM is below that of the best baseline",
            "Section 5.1.1 (1)",
            lambda t: t.best(BASELINES, "fm") - t("dslr", "fm"),
        ),
        Statement(
            "DSLR varies less over seeds than the baselines do on average",
            "Section 5.1.1 (1)",
            spread,
        ),
        Statement(
            "ER-GNN's PM is above that of the best baseline without replay",
            "Section 5.1.1 (2)",
            lambda t: t("er-gnn", "pm") - t.best(NO_REPLAY, "pm"),
        ),
        Statement(
            "ContinualGNN's PM is above that of the best baseline without replay",
            "Section 5.1.1 (2)",
            lambda t: t("continual-gnn", "pm") - t.best(NO_REPLAY, "pm"),
        ),
        Statement(
            "ER-GNN's FM is above that of the best other baseline",
            "Section 5.1.1 (2)",
            lambda t: t("er-gnn", "fm") - t.best([b for b in BASELINES if b != "er-gnn"], "fm"),
        ),
    ),
)
