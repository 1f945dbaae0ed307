"""The estimator: Evergraph for a graph of your own that keeps growing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.estimator.classifier import ContinualNodeClassifier

__all__ = ["ContinualNodeClassifier"]


def __getattr__(name: str) -> Any:
    """Imports the class when it is asked for: PyTorch is slow to import."""
    if name == "ContinualNodeClassifier":
        from evergraph.estimator.classifier import ContinualNodeClassifier  # noqa: PLC0415

        return ContinualNodeClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
