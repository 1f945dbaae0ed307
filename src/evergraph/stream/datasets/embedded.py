"""Cora and Citeseer as they come with the package: no network, no data root."""

from __future__ import annotations

from importlib import resources

from evergraph.stream.datasets.plain import read_plain
from evergraph.stream.graph import Graph

EMBEDDED = ("cora", "citeseer")


def load_embedded(name: str) -> Graph:
    """Reads one of the embedded graphs."""
    assert name in EMBEDDED
    resource = resources.files("evergraph.stream.datasets") / "data" / f"{name}.npz"
    with resources.as_file(resource) as path:
        return read_plain(path, name)
