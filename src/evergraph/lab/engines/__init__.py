"""Engines: where the cells of a grid are run."""

from evergraph.lab.engines.base import Engine, Job, run_cell
from evergraph.lab.engines.local import LocalEngine
from evergraph.lab.engines.ray_cluster import RayEngine

__all__ = ["Engine", "Job", "LocalEngine", "RayEngine", "run_cell"]
