"""Fixtures: the real data folder, a network that is off, one small graph."""

import os
from pathlib import Path

import pytest
import torch

from evergraph.stream import Graph, SparseRows
from evergraph.stream.datasets import download


@pytest.fixture
def data_root() -> Path:
    root = os.environ.get("EVERGRAPH_DATA")
    if not root:
        pytest.skip("EVERGRAPH_DATA is not set: the real graphs are not there")
    return Path(root)


@pytest.fixture
def offline(monkeypatch):
    """Makes every download fail as it does without a network; lists what was asked for."""
    asked = []

    def refuse(dataset, folder):
        asked.append(dataset)
        raise OSError("<urlopen error [Errno -3] Temporary failure in name resolution>")

    monkeypatch.setattr(download, "fetch", refuse)
    return asked


@pytest.fixture
def small() -> Graph:
    """Four nodes, a path of three edges, features [[1,0,2],[0,0,0],[0,3,0],[0.5,0,0]]."""
    x = SparseRows(
        torch.tensor([1.0, 2.0, 3.0, 0.5]),
        torch.tensor([0, 2, 1, 0]),
        torch.tensor([0, 2, 2, 3, 4]),
        3,
    )
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    return Graph.build("small", x, edges, torch.tensor([0, 0, 1, 1]), ("cats", "dogs"))
