"""Evergraph keeps a graph neural network up to date as its graph grows, without forgetting.

Everything here is imported when it is first used, so that ``import evergraph`` takes no time.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph import methods, metrics
    from evergraph.errors import InputError
    from evergraph.estimator import ContinualNodeClassifier
    from evergraph.lab.api import compare, run
    from evergraph.memory import SELECTORS
    from evergraph.methods import METHODS, Method, MethodConfig, TaskContext
    from evergraph.serve.client import Client
    from evergraph.stream import Graph, GraphView, Protocol, TaskStream, datasets
    from evergraph.stream.datasets import load_graph
    from evergraph.testing import find_leaks

__version__ = "0.2.0"

# Threads that wait for each other sleep instead of spinning, for beside another busy process those
# that spin keep the one that works from its core. Read when PyTorch is loaded (decision 0033).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# PyTorch may take large arrays in pages of 2 MB, which are found and filled sooner (decision 0044).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

#: The modules that public names come from; a module stands for itself.
_MODULES = {
    "evergraph.errors": ["InputError"],
    "evergraph.estimator": ["ContinualNodeClassifier"],
    "evergraph.lab.api": ["compare", "run"],
    "evergraph.memory": ["SELECTORS"],
    "evergraph.methods": ["METHODS", "Method", "MethodConfig", "TaskContext", "methods"],
    "evergraph.metrics": ["metrics"],
    "evergraph.serve.client": ["Client"],
    "evergraph.stream": ["Graph", "GraphView", "Protocol", "TaskStream"],
    "evergraph.stream.datasets": ["datasets", "load_graph"],
    "evergraph.testing": ["find_leaks"],
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [
    "METHODS",
    "SELECTORS",
    "Client",
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
