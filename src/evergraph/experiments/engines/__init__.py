"""Engines: where the cells of a grid are run."""

from evergraph.experiments.engines.base import Engine, Job, run_cell
from evergraph.experiments.engines.local import LocalEngine
from evergraph.experiments.engines.ray_cluster import RayEngine

__all__ = ["Engine", "Job", "LocalEngine", "RayEngine", "run_cell"]
