"""``radius``: r balances representativeness and diversity (Table 14)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement
from evergraph.lab.paper.metrics import CENTRE, DIVERSITY, FM, PM

RADII = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
NAMES = [str(r) for r in RADII]

EXPERIMENT = Experiment(
    id="radius",
    title="Coverage over its radius r",
    source="Table 14",
    rows=lambda facts: [Row(str(r), f"dslr:r={r}", "r", r) for r in RADII],
    metrics=(PM, FM, DIVERSITY, CENTRE),
    figure=Figure("lines", ("pm", "fm", "diversity", "centre"), "r"),
    quick_rows=("0.1", "0.2", "0.4"),
    statements=(
        Statement(
            "diversity rises with r",
            "Appendix I, Table 14",
            lambda t: t.slope(NAMES, "diversity"),
        ),
        Statement(
            "distance from the centre rises with r",
            "Appendix I, Table 14",
            lambda t: t.slope(NAMES, "centre"),
        ),
    ),
)
