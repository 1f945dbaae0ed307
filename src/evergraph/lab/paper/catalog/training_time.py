"""``training-time``: minutes per task of recent methods (Table 5)."""

from dataclasses import replace

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import MINUTES

METHODS = ("twp", "continual-gnn", "er-gnn", "rclg", "dslr")
FACTOR = replace(MINUTES, key="factor", title="times DSLR", better=0, digits=2, relative_to="dslr")

EXPERIMENT = Experiment(
    id="training-time",
    title="Training time per task",
    source="Table 5",
    rows=lambda facts: [Row(name, name) for name in METHODS],
    metrics=(MINUTES, FACTOR),
    figure=Figure("points", ("minutes", "factor")),
    statements=(
        *(
            Statement(
                f"DSLR needs less time than {name}",
                "Section 5.2.3, Table 5",
                larger(name, "dslr", "minutes"),
            )
            for name in ("twp", "continual-gnn", "rclg")
        ),
        Statement(
            "ER-GNN needs less time than DSLR",
            "Section 5.2.3, Table 5",
            larger("dslr", "er-gnn", "minutes"),
        ),
    ),
    notes=("Minutes are those of the machine at hand; the factor can be compared.",),
)
