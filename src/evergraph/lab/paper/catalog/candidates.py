"""``candidates``: all nodes or the K nearest as candidates for addition (Figure 8)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import CURRENT, FM, INFERENCE, PM

EXPERIMENT = Experiment(
    id="candidates",
    title="Structure inference over the entire graph and over candidates",
    source="Figure 8",
    rows=lambda facts: [Row("entire", "dslr:candidates=entire"), Row("candidates", "dslr")],
    metrics=(PM, FM, CURRENT, INFERENCE),
    figure=Figure("points", ("pm", "fm", "inference")),
    statements=(
        Statement(
            "candidates need less time for inference",
            "Section 5.2.1, Figure 8 (c)",
            larger("entire", "candidates", "inference"),
        ),
        Statement(
            "candidates give a higher PM",
            "Section 5.2.1, Figure 8 (a)",
            larger("candidates", "entire", "pm"),
        ),
        Statement(
            "candidates give a lower FM",
            "Section 5.2.1, Figure 8 (b)",
            larger("entire", "candidates", "fm"),
        ),
    ),
)
