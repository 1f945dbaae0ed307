"""Encoders on an :class:`~evergraph.stream.Adjacency`, and the growing head."""

from evergraph.nn.encoders import GAT, GCN, SAGE, GATLayer, GCNLayer, SAGELayer
from evergraph.nn.model import (
    ENCODERS,
    GrowingHead,
    ModelConfig,
    NodeClassifier,
    Output,
    build_model,
)

__all__ = [
    "ENCODERS",
    "GAT",
    "GCN",
    "SAGE",
    "GATLayer",
    "GCNLayer",
    "GrowingHead",
    "ModelConfig",
    "NodeClassifier",
    "Output",
    "SAGELayer",
    "build_model",
]
