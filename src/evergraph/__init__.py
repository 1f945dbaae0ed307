"""Evergraph keeps a graph neural network up to date as its graph grows, without forgetting.

Everything here is imported when it is first used, so that ``import evergraph`` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph import methods, metrics
    from evergraph.errors import InputError
    from evergraph.estimator import ContinualNodeClassifier
    from evergraph.lab.api import compare, run
    from evergraph.memory import SELECTORS
    from evergraph.methods import METHODS, Method, MethodConfig, TaskContext
    from evergraph.stream import Graph, GraphView, Protocol, TaskStream, datasets
    from evergraph.stream.datasets import load_graph
    from evergraph.testing import find_leaks

__version__ = "0.1.0"

#: Every public name and the module that it comes from; a module stands for itself.
_PLACES = {
    "ContinualNodeClassifier": "evergraph.estimator",
    "run": "evergraph.lab.api",
    "compare": "evergraph.lab.api",
    "load_graph": "evergraph.stream.datasets",
    "Graph": "evergraph.stream",
    "Protocol": "evergraph.stream",
    "TaskStream": "evergraph.stream",
    "GraphView": "evergraph.stream",
    "Method": "evergraph.methods",
    "MethodConfig": "evergraph.methods",
    "TaskContext": "evergraph.methods",
    "METHODS": "evergraph.methods",
    "SELECTORS": "evergraph.memory",
    "find_leaks": "evergraph.testing",
    "InputError": "evergraph.errors",
    "datasets": "evergraph.stream.datasets",
    "methods": "evergraph.methods",
    "metrics": "evergraph.metrics",
}
__all__ = [
    "METHODS",
    "SELECTORS",
    "ContinualNodeClassifier",
    "Graph",
    "GraphView",
    "InputError",
    "Method",
    "MethodConfig",
    "Protocol",
    "TaskContext",
    "TaskStream",
    "__version__",
    "compare",
    "datasets",
    "find_leaks",
    "load_graph",
    "methods",
    "metrics",
    "run",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = _PLACES[name]
    module = import_module(place)
    found = module if place.endswith(f".{name}") else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
