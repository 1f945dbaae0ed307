"""``embedding``: two classes and their buffers in the plane (Figure 1)."""

from evergraph.lab.paper.experiment import Experiment, Figure, Row, Statement, larger
from evergraph.lab.paper.metrics import CENTRE, DIVERSITY

EXPERIMENT = Experiment(
    id="embedding",
    title="t-SNE of the first two classes with their replayed nodes",
    source="Figure 1",
    rows=lambda facts: [
        Row("MF", "dslr:structure=none,selector=mf"),
        Row("CD", "dslr:structure=none"),
    ],
    metrics=(DIVERSITY, CENTRE),
    figure=Figure("embedding", ()),
    statements=(
        Statement(
            "nodes kept by MF are nearer to the centre of their class than those kept by CD",
            "Section 1, Figure 1",
            larger("CD", "MF", "centre"),
        ),
        Statement(
            "nodes kept by CD are more spread than those kept by MF",
            "Section 1, Figure 1",
            larger("CD", "MF", "diversity"),
        ),
    ),
    notes=("Training nodes by the model that selected them.",),
)
