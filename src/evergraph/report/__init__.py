"""Results for people: tables, the page (``page/``), figures for papers (``paper_figures.py``)."""

from evergraph.report.tables import (
    Sheet,
    accuracy_matrix,
    comparison_sheet,
    grid_sheet,
    run_scores,
    tuning_sheet,
)

__all__ = [
    "Sheet",
    "accuracy_matrix",
    "comparison_sheet",
    "grid_sheet",
    "run_scores",
    "tuning_sheet",
]
