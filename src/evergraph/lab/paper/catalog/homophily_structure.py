"""``homophily-structure``: homophily per class without and with structure learning (Table 16)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import CLASS_HOMOPHILY, HOMOPHILY

WITHOUT, WITH = "without SL", "with SL"

EXPERIMENT = Experiment(
    id="homophily-structure",
    title="Homophily of replayed nodes per class, without and with structure learning",
    source="Table 16",
    rows=lambda facts: [
        Row(WITHOUT, "dslr", view="before"),
        Row(WITH, "dslr", view="after"),
    ],
    metrics=(*CLASS_HOMOPHILY, HOMOPHILY),
    figure=Figure("groups", tuple(metric.key for metric in CLASS_HOMOPHILY)),
    statements=(
        Statement(
            "structure learning raises the homophily of replayed nodes",
            "Appendix J.3, Table 16",
            larger(WITH, WITHOUT, "homophily"),
        ),
    ),
    notes=("The same buffer, on the graph as it came and as it was refined in the last task.",),
)
