"""``selector-quality``: six selectors without structure learning (Tables 13 and 15)."""

from evergraph.lab.paper.catalog.selector_rows import rows
from evergraph.lab.paper.experiment import Experiment, Figure, Statement, larger
from evergraph.lab.paper.metrics import CENTRE, DIVERSITY, FM, PM

WHERE = "Appendix I, Tables 13 and 15"

EXPERIMENT = Experiment(
    id="selector-quality",
    title="Selectors: PM, FM, diversity and distance from the centre",
    source="Tables 13 and 15",
    rows=rows,
    metrics=(PM, FM, DIVERSITY, CENTRE),
    figure=Figure("points", ("pm", "fm", "diversity", "centre")),
    tables=("selector-quality", "selectors"),
    statements=(
        *(
            Statement(
                f"CD is more diverse than {name}",
                WHERE,
                larger("cd", name, "diversity"),
            )
            for name in ("mf", "cm")
        ),
        Statement(
            "CD is nearer to the centre than random",
            WHERE,
            larger("random", "cd", "centre"),
        ),
        *(
            Statement(f"{name}'s PM is below that of {other}", WHERE, larger(other, name, "pm"))
            for name in ("random", "kmeans")
            for other in ("mf", "cm", "cd")
        ),
        Statement(
            "CD's PM is above that of every other selector",
            WHERE,
            lambda t: t("cd", "pm") - t.best([n for n in t.names() if n != "cd"], "pm"),
        ),
    ),
    notes=(
        "Table 15's row ContinualGNN is the whole method and belongs to main; importance is its "
        "selector with DSLR's settings.",
        "The paper's numbers come from two tables that contradict each other in four cells.",
    ),
)
