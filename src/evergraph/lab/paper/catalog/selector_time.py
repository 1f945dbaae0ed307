"""``selector-time``: seconds that selection takes (Table 11)."""

from evergraph.lab.paper.catalog.selector_rows import rows
from evergraph.lab.paper.experiment import Experiment, Figure, Statement, larger
from evergraph.lab.paper.metrics import SELECTION

EXPERIMENT = Experiment(
    id="selector-time",
    title="Time of buffer selection per task",
    source="Table 11",
    rows=rows,
    metrics=(SELECTION,),
    figure=Figure("points", ("selection",)),
    statements=(
        Statement(
            "MF takes less time than CD",
            "Appendix H, Table 11",
            larger("cd", "mf", "selection"),
        ),
        Statement(
            "CD takes less time than CM",
            "Appendix H, Table 11",
            larger("cm", "cd", "selection"),
        ),
    ),
    notes=("Seconds are those of the machine at hand.",),
)
