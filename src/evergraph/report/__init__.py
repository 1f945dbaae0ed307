"""Tables of results; figures and the page come to live here as well."""

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
