"""``diversity``: how spread the buffer and the correct predictions are (Table 3)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import CORRECT_DIVERSITY, DIVERSITY

EXPERIMENT = Experiment(
    id="diversity",
    title="Diversity of the buffer and of correctly predicted nodes",
    source="Table 3",
    rows=lambda facts: [Row("er-gnn", "er-gnn"), Row("dslr w/o SL", "dslr:structure=none")],
    metrics=(DIVERSITY, CORRECT_DIVERSITY),
    figure=Figure("points", ("diversity", "correct_diversity")),
    statements=(
        Statement(
            "the buffer of coverage is more diverse than ER-GNN's",
            "Section 5.1.2, Table 3",
            larger("dslr w/o SL", "er-gnn", "diversity"),
        ),
        Statement(
            "the nodes it predicts correctly are more diverse",
            "Section 5.1.2, Table 3",
            larger("dslr w/o SL", "er-gnn", "correct_diversity"),
        ),
    ),
)
