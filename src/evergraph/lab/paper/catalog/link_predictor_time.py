"""``link-predictor-time``: structure learning within a task (Table 12)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement
from evergraph.lab.paper.metrics import STRUCTURE, TASK

EXPERIMENT = Experiment(
    id="link-predictor-time",
    title="Time of structure learning within the whole task",
    source="Table 12",
    rows=lambda facts: [Row("dslr", "dslr")],
    metrics=(STRUCTURE, TASK),
    figure=Figure("points", ("structure", "task")),
    statements=(
        Statement(
            "structure learning takes less than half of a task",
            "Appendix H, Table 12",
            lambda t: -(t("dslr", "structure") / t("dslr", "task")) + 0.5,
        ),
    ),
    notes=(
        "Structure learning is the link predictor, inference and candidates, over the tasks that "
        "have it; the whole task is the mean over all tasks.",
    ),
)
