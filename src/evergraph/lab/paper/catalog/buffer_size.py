"""``buffer-size``: rehearsal methods over the size of the buffer (Figures 4 and 11)."""

from evergraph.lab.paper.catalog.buffer_sizes import at, size_rows
from evergraph.lab.paper.experiment import (
    Experiment,
    Facts,
    Figure,
    Row,
    Statement,
    Table,
    Values,
)
from evergraph.lab.paper.metrics import CURRENT, FM, PM

METHODS = ("continual-gnn", "er-gnn", "dslr")


def rows(facts: Facts) -> list[Row]:
    """Lists every method at every size."""
    return [row for name in METHODS for row in size_rows(facts, name, name)]


def claims(other: str) -> tuple[Statement, ...]:
    """States that another method suffers more from a small buffer than DSLR, and is behind it."""

    def gains(table: Table) -> Values:
        return table.slope(at(other), "pm") - table.slope(at("dslr"), "pm")

    def loses(table: Table) -> Values:
        return table.slope(at("dslr"), "fm") - table.slope(at(other), "fm")

    def behind(table: Table) -> Values:
        return table.mean(at("dslr"), "pm") - table.mean(at(other), "pm")

    where = "Section 5.1.1 (3), Figure 4"
    return (
        Statement(f"as its buffer shrinks, {other} loses more PM than DSLR", where, gains),
        Statement(f"as its buffer shrinks, {other}'s FM rises more than DSLR's", where, loses),
        Statement(
            f"DSLR's PM is above {other}'s on average over all sizes",
            "Appendix J.1, Figure 11",
            behind,
        ),
    )


EXPERIMENT = Experiment(
    id="buffer-size",
    title="Rehearsal methods with buffers of 1 to 5 % of the training nodes",
    source="Figures 4 and 11",
    rows=rows,
    metrics=(PM, FM, CURRENT),
    figure=Figure("lines", ("pm", "fm"), "buffer, % of training nodes"),
    quick_rows=tuple(name for method in METHODS for name in at(method, 1, 5)),
    statements=(*claims("continual-gnn"), *claims("er-gnn")),
)
