"""``ablation``: what each component of DSLR adds (Table 4)."""

from evergraph.lab.paper.catalog import ablation_rows as of
from evergraph.lab.paper.experiment import Experiment, Figure, Statement, Table, Values
from evergraph.lab.paper.metrics import CURRENT, FM, PM

OTHERS = (of.MF, of.CD, of.MF_SL, of.LINK, of.NODE, of.HOMOPHILY)


def above(better: str, worse: str, text: str) -> tuple[Statement, Statement]:
    """States that one row is better than another in PM and in FM."""

    def pm(table: Table) -> Values:
        return table(better, "pm") - table(worse, "pm")

    def fm(table: Table) -> Values:
        return table(worse, "fm") - table(better, "fm")

    where = "Section 5.2.2, Table 4"
    return Statement(f"{text} (PM)", where, pm), Statement(f"{text} (FM)", where, fm)


EXPERIMENT = Experiment(
    id="ablation",
    title="Components of DSLR",
    source="Table 4",
    rows=lambda facts: list(of.ROWS.values()),
    metrics=(PM, FM, CURRENT),
    figure=Figure("points", ("pm", "fm")),
    statements=(
        *above(of.CD, of.MF, "coverage is better than the class mean"),
        *above(of.MF_SL, of.MF, "structure learning improves the class mean"),
        *above(of.BOTH, of.CD, "structure learning improves coverage"),
        *above(of.BOTH, of.LINK, "both losses are better than the link loss alone"),
        *above(of.BOTH, of.NODE, "both losses are better than the node loss alone"),
        *above(of.BOTH, of.HOMOPHILY, "learning is better than only raising homophily"),
        Statement(
            "DSLR's PM is above that of every other row",
            "Section 5.2.2, Table 4",
            lambda t: t(of.BOTH, "pm") - t.best(OTHERS, "pm"),
        ),
    ),
    notes=(
        "Row (1) is run twice: MF with DSLR's settings, and ER-GNN with its own.",
        "Rows (3) and (4)-3 have the paper's λ = 0.5; the last row is DSLR with its preset.",
    ),
)
