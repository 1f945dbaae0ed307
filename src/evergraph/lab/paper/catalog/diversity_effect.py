"""``diversity-effect``: coverage against the class mean over buffer sizes (Figures 5 and 12)."""

from evergraph.lab.paper.catalog.buffer_sizes import at, size_rows
from evergraph.lab.paper.experiment import Experiment, Figure, Statement
from evergraph.lab.paper.metrics import CURRENT, FM, PM

OURS, THEIRS = "dslr w/o SL", "er-gnn"

EXPERIMENT = Experiment(
    id="diversity-effect",
    title="Effect of diversity: DSLR without structure learning against ER-GNN",
    source="Figures 5 and 12",
    rows=lambda facts: [
        *size_rows(facts, THEIRS, "er-gnn"),
        *size_rows(facts, OURS, "dslr:structure=none"),
    ],
    metrics=(PM, FM, CURRENT),
    figure=Figure("lines", ("pm", "fm"), "buffer, % of training nodes"),
    quick_rows=(*at(OURS, 1, 5), *at(THEIRS, 1, 5)),
    statements=(
        Statement(
            "PM is above ER-GNN's on average over all sizes",
            "Section 5.1.2, Figure 5",
            lambda t: t.mean(at(OURS), "pm") - t.mean(at(THEIRS), "pm"),
        ),
        Statement(
            "FM is below ER-GNN's on average over all sizes",
            "Section 5.1.2, Figure 5",
            lambda t: t.mean(at(THEIRS), "fm") - t.mean(at(OURS), "fm"),
        ),
        Statement(
            "from 1 to 3 % PM rises more than ER-GNN's",
            "Section 5.1.2, Figure 5",
            lambda t: (
                (t(f"{OURS} 3 %", "pm") - t(f"{OURS} 1 %", "pm"))
                - (t(f"{THEIRS} 3 %", "pm") - t(f"{THEIRS} 1 %", "pm"))
            ),
        ),
        Statement(
            "from 3 to 5 % the lead in PM shrinks",
            "Section 5.1.2, Figure 5",
            lambda t: (
                (t(f"{OURS} 3 %", "pm") - t(f"{THEIRS} 3 %", "pm"))
                - (t(f"{OURS} 5 %", "pm") - t(f"{THEIRS} 5 %", "pm"))
            ),
        ),
    ),
    notes=("DSLR without structure learning has DSLR's settings, ER-GNN its own.",),
)
