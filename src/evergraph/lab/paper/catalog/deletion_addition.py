"""``deletion-addition``: why N adds and τ deletes (Table 8)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import DEGREE, FM, HIGH_DEGREE, ISOLATED, LOW_DEGREE, PM

PROPOSED, DELETION, ADDITION = "proposed", "deletion with N", "addition with tau"
WHERE = "Appendix C, Table 8"

EXPERIMENT = Experiment(
    id="deletion-addition",
    title="Deletion with N and addition with τ",
    source="Table 8",
    rows=lambda facts: [
        Row(PROPOSED, "dslr"),
        Row(DELETION, "dslr:deletion=lowest"),
        Row(ADDITION, "dslr:addition=threshold"),
    ],
    metrics=(PM, FM, ISOLATED, DEGREE, LOW_DEGREE, HIGH_DEGREE),
    figure=Figure("points", ("pm", "fm", "isolated", "degree", "low_degree", "high_degree")),
    statements=(
        Statement("deletion with N lowers PM", WHERE, larger(PROPOSED, DELETION, "pm")),
        Statement("deletion with N raises FM", WHERE, larger(DELETION, PROPOSED, "fm")),
        Statement(
            "deletion with N isolates more nodes",
            WHERE,
            larger(DELETION, PROPOSED, "isolated"),
        ),
        Statement("addition with τ lowers PM", WHERE, larger(PROPOSED, ADDITION, "pm")),
        Statement("addition with τ raises FM", WHERE, larger(ADDITION, PROPOSED, "fm")),
        Statement(
            "addition with τ raises the degree of replayed nodes",
            WHERE,
            larger(ADDITION, PROPOSED, "degree"),
        ),
        Statement(
            "addition with τ lowers the accuracy of low-degree nodes",
            WHERE,
            larger(PROPOSED, ADDITION, "low_degree"),
        ),
    ),
)
