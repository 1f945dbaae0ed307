"""``structure-effect``: DSLR with and without structure learning (Figures 6 and 13)."""

from evergraph.lab.paper.catalog.buffer_sizes import at, size_rows
from evergraph.lab.paper.experiment import Experiment, Figure, Statement
from evergraph.lab.paper.metrics import CURRENT, FM, PM

WITH, WITHOUT = "dslr", "dslr w/o SL"

EXPERIMENT = Experiment(
    id="structure-effect",
    title="Effect of structure learning over buffer sizes",
    source="Figures 6 and 13",
    rows=lambda facts: [
        *size_rows(facts, WITHOUT, "dslr:structure=none"),
        *size_rows(facts, WITH, "dslr"),
    ],
    metrics=(PM, FM, CURRENT),
    figure=Figure("lines", ("pm", "fm"), "buffer, % of training nodes"),
    quick_rows=(*at(WITH, 1, 5), *at(WITHOUT, 1, 5)),
    statements=(
        Statement(
            "structure learning raises PM on average over all sizes",
            "Section 5.1.3, Figure 6",
            lambda t: t.mean(at(WITH), "pm") - t.mean(at(WITHOUT), "pm"),
        ),
        Statement(
            "structure learning lowers FM on average over all sizes",
            "Section 5.1.3, Figure 6",
            lambda t: t.mean(at(WITHOUT), "fm") - t.mean(at(WITH), "fm"),
        ),
        Statement(
            "its lead in PM grows as the buffer shrinks",
            "Section 5.1.3, Figure 6",
            lambda t: t.slope(at(WITHOUT), "pm") - t.slope(at(WITH), "pm"),
        ),
        Statement(
            "with 1 % it does as well, within one point of PM, as without at 4 %",
            "Section 5.1.3, Figure 6 (a)",
            lambda t: t(f"{WITH} 1 %", "pm") - t(f"{WITHOUT} 4 %", "pm") + 1.0,
        ),
        Statement(
            "with 1 % its FM is as low, within one point, as without at 2 %",
            "Appendix J.3, Figure 13 (b)",
            lambda t: t(f"{WITHOUT} 2 %", "fm") - t(f"{WITH} 1 %", "fm") + 1.0,
        ),
    ),
)
