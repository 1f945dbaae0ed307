"""``cm-vs-cd``: two coverages, ER-GNN's and DSLR's (Table 7)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import CURRENT, FM, PM

EXPERIMENT = Experiment(
    id="cm-vs-cd",
    title="Coverage maximisation (ER-GNN) and coverage-based diversity (DSLR)",
    source="Table 7",
    rows=lambda facts: [
        Row("CM", "dslr:structure=none,selector=cm"),
        Row("CD", "dslr:structure=none"),
    ],
    metrics=(PM, FM, CURRENT),
    figure=Figure("points", ("pm", "fm")),
    statements=(
        Statement(
            "CD's PM is above CM's",
            "Appendix B.3, Table 7",
            larger("CD", "CM", "pm"),
        ),
        Statement(
            "CD's FM is below CM's",
            "Appendix B.3, Table 7",
            larger("CM", "CD", "fm"),
        ),
    ),
    notes=("Both have DSLR's settings, so that the selector alone differs.",),
)
