"""Fixtures shared by all tests: a factory of small labelled graphs and the real data's folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from evergraph.lab import cli
from evergraph.stream import Graph, SparseRows
from evergraph.stream.datasets import write_plain
from support import Answer, Command

if not torch.cuda.is_available():
    # Without a GPU the CUDA kernels run in Triton's interpreter, which it must know from the start.
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Tensors here are tiny: a second thread costs more than it gives, in commands run beside too.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# Derandomised: a failure is the same for everyone; the first call into torch is slow, so no
# deadline.
settings.register_profile("evergraph", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("evergraph")

# Some tests work in another folder, where a relative path would lead elsewhere.
if os.environ.get("EVERGRAPH_DATA"):
    os.environ["EVERGRAPH_DATA"] = str(Path(os.environ["EVERGRAPH_DATA"]).resolve())


@pytest.fixture(autouse=True)
def _floats_as_they_are() -> None:
    """Undoes what a test may leave that stops in the middle of training: denormals as zero."""
    torch.set_flush_denormal(False)


def tiny_graph(
    num_nodes: int = 40,
    num_classes: int = 4,
    *,
    num_features: int = 8,
    average_degree: float = 4.0,
    homophily: float = 0.7,
    sparse: bool = False,
    seed: int = 0,
    name: str = "tiny",
) -> Graph:
    """Builds a random labelled graph, the same for the same arguments.

    Classes are as equal in size as possible and scattered over the node ids. Features are
    non-negative counts in which column ``label % num_features`` stands out, so that a model
    can learn them; ``sparse`` stores the very same numbers as :class:`SparseRows`. Edges
    are drawn one by one, with both ends in one class with probability about ``homophily``.
    Class names are not in label order: label ``c`` is ``class-Z``, ``class-Y``, ...
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_nodes) % num_classes
    y = labels[torch.randperm(num_nodes, generator=generator)]
    counts = torch.randint(0, 3, (num_nodes, num_features), generator=generator)
    keep = torch.rand(num_nodes, num_features, generator=generator) < 0.25
    x = (counts * keep).to(torch.float32)
    x[torch.arange(num_nodes), y % num_features] += 3.0

    num_edges = round(num_nodes * average_degree / 2)
    first = torch.randint(0, num_nodes, (num_edges,), generator=generator)
    second = torch.randint(0, num_nodes, (num_edges,), generator=generator)
    alike = torch.rand(num_edges, generator=generator) < homophily
    picks = torch.rand(num_edges, generator=generator)
    for label in range(num_classes):
        members = torch.nonzero(y == label).flatten()
        mine = alike & (y[first] == label)
        second[mine] = members[(picks[mine] * members.numel()).long()]

    names = tuple(f"class-{chr(ord('Z') - c)}" for c in range(num_classes))
    features = to_sparse(x) if sparse else x
    return Graph.build(name, features, torch.stack([first, second]), y, names)


def to_sparse(x: torch.Tensor) -> SparseRows:
    """Stores the non-zeros of a dense matrix as sparse rows."""
    rows, columns = torch.nonzero(x, as_tuple=True)
    counts = torch.bincount(rows, minlength=x.shape[0])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(counts, 0)])
    return SparseRows(x[rows, columns], columns, indptr, x.shape[1])


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Graph]:
    """The factory :func:`tiny_graph`; session-wide, so that ``@given`` accepts it."""
    return tiny_graph


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real graphs, or a skip that says how to provide it."""
    value = os.environ.get("EVERGRAPH_DATA")
    if not value:
        pytest.skip("EVERGRAPH_DATA is not set: point it at the folder of real graphs")
    root = Path(value)
    if not root.is_dir():
        pytest.skip(f"EVERGRAPH_DATA={value} is not a folder")
    return root


#: What the system may call its Chromium.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, or a skip that says how to get it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    candidates = [os.environ.get("EVERGRAPH_BROWSER"), *map(shutil.which, BROWSERS)]
    program = next((path for path in candidates if path), None)
    if program is None:
        pytest.skip("no Chromium found: install chromium or set EVERGRAPH_BROWSER to its path")
    with playwright.sync_playwright() as driver:
        try:
            started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"{program} does not start: {str(error).splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_graph: Callable[..., Graph]) -> Path:
    """A working folder with ``graph.npz``: four classes of ten nodes."""
    write_plain(make_graph(), tmp_path / "graph.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls the command in this process; what it raises beyond exiting fails the test."""

    def call(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["evergraph", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return Answer(stop.value.code, *capsys.readouterr())

    return call
