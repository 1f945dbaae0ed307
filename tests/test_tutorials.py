"""The tutorial on DSLR: its pieces are the benchmark's file, and they learn."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from evergraph.stream import Protocol, TaskStream
from evergraph.stream.datasets import load_graph

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorials" / "dslr-from-scratch.md"
FILE = ROOT / "benchmarks" / "naive_dslr.py"


def pieces() -> str:
    """Puts the page's Python together."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return "\n\n\n".join(block.strip() for block in blocks) + "\n"


def test_tutorial_pieces_are_the_file():
    assert pieces() == FILE.read_text(encoding="utf-8")


def test_tutorial_runs_and_reaches_what_the_file_reaches(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch_geometric")
    options = {"nodes": 90, "classes": 6, "homophily": 0.5, "feature_signal": 1.0}
    stream = TaskStream(load_graph("synthetic", None, options), Protocol())
    reached = []
    for name, code in (("page", pieces()), ("file", FILE.read_text(encoding="utf-8"))):
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)  # dataclasses look their module up
        exec(compile(code, name, "exec"), vars(module))
        with torch.random.fork_rng():
            reached.append(module.run(4, 2, stream)["pm"])
    assert reached[0] == reached[1]
    assert 0 < reached[0] <= 100
