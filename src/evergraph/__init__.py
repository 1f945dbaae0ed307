"""Evergraph keeps a graph neural network up to date as its graph grows, without forgetting."""

__version__ = "0.1.0"
