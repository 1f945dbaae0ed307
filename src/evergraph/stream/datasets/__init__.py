"""Datasets: embedded, downloaded, generated, or read from a file."""

from evergraph.stream.datasets.npz import read_plain, write_plain
from evergraph.stream.datasets.registry import DATASETS, DatasetInfo, load_graph
from evergraph.stream.datasets.synthetic import SyntheticConfig, generate

__all__ = [
    "DATASETS",
    "DatasetInfo",
    "SyntheticConfig",
    "generate",
    "load_graph",
    "read_plain",
    "write_plain",
]
