"""Encoders on an :class:`~evergraph.stream.Adjacency`, and the growing head."""

from evergraph.nn.gat import GAT, GATLayer
from evergraph.nn.model import GrowingHead, ModelConfig, NodeClassifier, Output, build_model

__all__ = [
    "GAT",
    "GATLayer",
    "GrowingHead",
    "ModelConfig",
    "NodeClassifier",
    "Output",
    "build_model",
]
