"""Encoders on an :class:`~evergraph.stream.Adjacency`, and the growing head."""

from evergraph.nn.model import ENCODERS, ModelConfig, NodeClassifier

__all__ = ["ENCODERS", "ModelConfig", "NodeClassifier"]
