"""``homophily-variants``: homophily of replayed nodes under variants (Figure 9)."""

from evergraph.lab.paper.catalog import ablation_rows as of
from evergraph.lab.paper.experiment import Experiment, Figure, Statement, larger
from evergraph.lab.paper.metrics import HOMOPHILY

ROWS = [of.ROWS[name] for name in (of.CD, of.LINK, of.NODE, of.BOTH, of.HOMOPHILY)]

EXPERIMENT = Experiment(
    id="homophily-variants",
    title="Homophily of replayed nodes under variants of structure learning",
    source="Figure 9",
    rows=lambda facts: ROWS,
    metrics=(HOMOPHILY,),
    figure=Figure("points", ("homophily",)),
    statements=(
        Statement(
            "both losses give a higher homophily than the link loss alone",
            "Section 5.2.2, Figure 9",
            larger(of.BOTH, of.LINK, "homophily"),
        ),
        Statement(
            "raising homophily directly gives the highest",
            "Section 5.2.2, Figure 9",
            lambda t: (
                t(of.HOMOPHILY, "homophily")
                - t.best([of.CD, of.LINK, of.NODE, of.BOTH], "homophily")
            ),
        ),
    ),
)
