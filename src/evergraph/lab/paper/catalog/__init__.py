"""The catalogue: one file per experiment, one dictionary.

To add one, write a file with an ``EXPERIMENT`` and add it to the list below; the command, the
files it writes and the document follow.
"""

from evergraph.errors import unknown_name
from evergraph.lab.paper.catalog import (
    ablation,
    beta,
    buffer_homophily,
    buffer_size,
    candidates,
    cm_vs_cd,
    datasets,
    deletion_addition,
    diversity,
    diversity_effect,
    embedding,
    frontier,
    homophily_forgetting,
    homophily_structure,
    homophily_variants,
    hyperparameters,
    link_predictor_time,
    main,
    radius,
    selector_quality,
    selector_time,
    sensitivity,
    structure_effect,
    structure_heatmap,
    training_time,
)
from evergraph.lab.paper.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.id: module.EXPERIMENT
    for module in (
        main,
        buffer_homophily,
        homophily_forgetting,
        buffer_size,
        diversity_effect,
        diversity,
        structure_effect,
        structure_heatmap,
        candidates,
        ablation,
        homophily_variants,
        training_time,
        sensitivity,
        beta,
        cm_vs_cd,
        deletion_addition,
        selector_time,
        link_predictor_time,
        selector_quality,
        radius,
        homophily_structure,
        embedding,
        datasets,
        hyperparameters,
        frontier,
    )
}


def find_experiments(name: str) -> list[Experiment]:
    """Returns one experiment by its id, or all of them."""
    if name == "all":
        return list(EXPERIMENTS.values())
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, {*EXPERIMENTS, "all"})
    return [EXPERIMENTS[name]]


__all__ = ["EXPERIMENTS", "find_experiments"]
