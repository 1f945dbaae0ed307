"""Datasets: embedded, downloaded, generated, or read from a file; one function loads any."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.errors import InputError, unknown_name
from evergraph.stream.datasets.download import data_folder
from evergraph.stream.datasets.npz import read_plain, write_plain
from evergraph.stream.datasets.raw import load_amazon, load_arxiv, load_reddit
from evergraph.stream.datasets.synthetic import SyntheticConfig, generate
from evergraph.stream.graph import Graph
from evergraph.stream.protocol import CATALOGUE
from evergraph.validation import parse


@dataclass(frozen=True)
class DatasetInfo:
    """What a user sees of a dataset before loading it; sizes are those of the paper."""

    name: str
    description: str
    origin: str
    nodes: int
    edges: int
    features: int
    classes: int
    obtained: str
    protocol: Mapping[str, Any] = field(default_factory=dict)  # where it is not the default one


PACKAGES = "ubuntu-packages"
DATASETS = {name: DatasetInfo(name, **entry) for name, entry in CATALOGUE.items()}


def load_packages(root: Path) -> Graph:
    """Reads the packages' graph, which is built or copied there and never downloaded."""
    path = root / f"{PACKAGES}.npz"
    if path.is_file():
        return read_plain(path, PACKAGES)
    raise InputError(
        f"Expected '{path.name}' in '{root}' (got none); build one with 'evergraph datasets build "
        "packages', or point --data-root or EVERGRAPH_DATA at the folder that has it."
    )


#: What is not embedded, and what reads it from the data root.
LOADERS: dict[str, Callable[[Path], Graph]] = {
    "amazon-computers": load_amazon,
    "ogbn-arxiv": load_arxiv,
    "reddit": load_reddit,
    PACKAGES: load_packages,
}


def load_graph(
    name: str, data_root: Path | None = None, options: Mapping[str, Any] | None = None
) -> Graph:
    """Loads a dataset by name, or a graph in the plain npz format by path.

    Args:
        name: A key of :data:`DATASETS`, or the path of an npz file.
        data_root: Where raw files are read from and downloaded to; None takes
            ``EVERGRAPH_DATA``, else a cache in the home folder.
        options: Fields of :class:`SyntheticConfig`, for ``synthetic`` only.

    Raises:
        InputError: If the name is unknown or the data is absent or wrong.
    """
    if name == "synthetic":
        return generate(parse(SyntheticConfig, options or {}))
    if options:
        raise InputError(
            f"Expected no options for dataset '{name}' (got {', '.join(map(str, options))}); "
            "drop them or use 'synthetic'."
        )
    if name in LOADERS:
        return LOADERS[name](data_folder(data_root))
    if name in DATASETS:
        embedded = resources.files("evergraph.stream.datasets") / "data" / f"{name}.npz"
        with resources.as_file(embedded) as path:
            return read_plain(path, name)
    path = Path(os.path.expanduser(name))
    if name.endswith(".npz") or "/" in name or "\\" in name or os.path.isfile(path):
        return read_plain(path)
    raise unknown_name("dataset", name, DATASETS)


__all__ = [
    "DATASETS",
    "DatasetInfo",
    "SyntheticConfig",
    "generate",
    "load_graph",
    "read_plain",
    "write_plain",
]
