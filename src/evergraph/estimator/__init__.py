"""The estimator: Evergraph for a graph of your own that keeps growing."""

from evergraph.estimator.classifier import ContinualNodeClassifier

__all__ = ["ContinualNodeClassifier"]
