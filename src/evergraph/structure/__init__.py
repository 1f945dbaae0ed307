"""Structure learning: link predictor, candidates, refinement of the buffer's neighbourhood."""

from evergraph.structure.link_predictor import (
    StructureConfig,
    link_loss,
    link_scores,
    pair_pattern,
    sample_non_edges,
)
from evergraph.structure.refinement import (
    Refinement,
    nearest_nodes,
    refine,
    unique_pairs,
)

__all__ = [
    "Refinement",
    "StructureConfig",
    "link_loss",
    "link_scores",
    "nearest_nodes",
    "pair_pattern",
    "refine",
    "sample_non_edges",
    "unique_pairs",
]
