"""``buffer-homophily``: homophily of the buffer per class, MF and CD (Table 1)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import CLASS_HOMOPHILY, HOMOPHILY

EXPERIMENT = Experiment(
    id="buffer-homophily",
    title="Homophily of replayed nodes per class",
    source="Table 1",
    rows=lambda facts: [
        Row("MF", "dslr:structure=none,selector=mf", view="before"),
        Row("CD", "dslr:structure=none", view="before"),
    ],
    metrics=(*CLASS_HOMOPHILY, HOMOPHILY),
    figure=Figure("groups", tuple(metric.key for metric in CLASS_HOMOPHILY)),
    statements=(
        Statement(
            "nodes kept by CD have a lower homophily than those kept by MF",
            "Section 1, Table 1",
            larger("MF", "CD", "homophily"),
        ),
    ),
    notes=("The deviations printed in the paper are over nodes, ours over seeds.",),
)
