"""Encoders on an :class:`~evergraph.stream.Adjacency`, and the growing head."""

from evergraph.nn.gat import GAT, GATLayer
from evergraph.nn.gcn import GCN, GCNLayer
from evergraph.nn.model import (
    ENCODERS,
    GrowingHead,
    ModelConfig,
    NodeClassifier,
    Output,
    build_model,
)
from evergraph.nn.sage import SAGE, SAGELayer

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
