"""Configurations, run folders, checkpoints, grids and their summaries."""

from evergraph.experiments.config import RunConfig, Variant, check_shared, parse_settings, resolve
from evergraph.experiments.runs import RunFolder, execute

__all__ = [
    "RunConfig",
    "RunFolder",
    "Variant",
    "check_shared",
    "execute",
    "parse_settings",
    "resolve",
]
