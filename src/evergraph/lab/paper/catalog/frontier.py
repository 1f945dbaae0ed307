"""``frontier``: what accuracy costs in bytes kept and in seconds, beyond the paper."""

from evergraph.config import Variant
from evergraph.lab.paper.experiment import Experiment, Facts, Figure, Row
from evergraph.lab.paper.frontier import METHODS
from evergraph.lab.paper.metrics import BYTES, FM, PM, SECONDS


def rows(facts: Facts) -> list[Row]:
    """Lists the methods under their labels."""
    return [Row(Variant.parse(text).label, text.partition("@")[0]) for text in METHODS]


EXPERIMENT = Experiment(
    id="frontier",
    title="Accuracy against bytes kept and seconds",
    source="beyond the paper",
    rows=rows,
    metrics=(PM, FM, BYTES, SECONDS),
    figure=Figure("frontier", ("pm",)),
    quick_rows=("analytic", "analytic-rank-15", "dslr", "replay-mf", "joint", "finetune"),
    notes=(
        "Seconds are those of the machine that each run was made on.",
        "Joint training reads all old labels: it sets the mark and does not compete.",
    ),
    in_paper=False,
)
