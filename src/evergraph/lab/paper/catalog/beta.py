"""``beta``: weight of the current task against the buffer (Table 6)."""

from evergraph.lab.paper.experiment import Experiment, Facts, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import CURRENT, FM, PM

BETAS = (0.01, 0.05, 0.1, 0.2, 0.3)
NUMBERS = [str(beta) for beta in BETAS]
NOT_USED = "not used"


def rows(facts: Facts) -> list[Row]:
    """Lists every β; without one there is no replay term to balance by class either."""
    rows = [Row(str(beta), f"dslr:beta={beta}", "β", beta) for beta in BETAS]
    return [*rows, Row(NOT_USED, "dslr:beta=none,replay_weights=none", NOT_USED, 0.35)]


EXPERIMENT = Experiment(
    id="beta",
    title="PM, FM and Current over β",
    source="Table 6",
    rows=rows,
    metrics=(PM, FM, CURRENT),
    figure=Figure("lines", ("pm", "fm", "current"), "β (last point: not used)"),
    quick_rows=("0.05", "0.1", "0.3", NOT_USED),
    statements=(
        Statement("FM rises with β", "Section 5.2.4, Table 6", lambda t: t.slope(NUMBERS, "fm")),
        Statement(
            "Current rises with β", "Section 5.2.4, Table 6", lambda t: t.slope(NUMBERS, "current")
        ),
        Statement(
            "without β FM is above that of the β in use",
            "Section 5.2.4, Table 6",
            larger(NOT_USED, "0.1", "fm"),
        ),
    ),
    notes=("The preset of each dataset decides which β is in use; the rows override it.",),
)
