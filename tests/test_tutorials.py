"""The tutorials: what stands in them runs, and says what they say that it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from evergraph.methods import METHODS
from evergraph.stream import Protocol, TaskStream
from evergraph.stream.datasets import load_graph

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorials" / "dslr-from-scratch.md"
FILE = ROOT / "benchmarks" / "naive_dslr.py"


def pieces(page: Path = PAGE) -> str:
    """Puts a page's Python together."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
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


#: Every other tutorial, and something that its Python prints.
SAYS = {
    "own-graph.md": r"fine-tuning: 0 % on old topics, \d\d % on new\nEvergraph: \d\d % on old",
    "compare.md": r"finetune \d+\.\d \[0, 1, 2\]\nreplay \d+\.\d",
    "watch.md": r"2708 nodes, 2\d\d\d labels: \d\d\.\d %",
    "write-a-method.md": r"finetune \d+\.\d\nl2 \d+\.\d\nl2:lam=0.01 \d+\.\d",
}


def test_every_tutorial_is_tested():
    assert {path.name for path in PAGE.parent.iterdir()} == {PAGE.name, *SAYS}


@pytest.mark.parametrize("name", SAYS)
def test_tutorial_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    module = ModuleType("tutorial")
    monkeypatch.setitem(sys.modules, "tutorial", module)
    before = dict(METHODS)
    try:
        exec(compile(pieces(PAGE.parent / name), name, "exec"), vars(module))
    finally:
        METHODS.clear()
        METHODS.update(before)
    printed = capsys.readouterr().out
    assert re.search(SAYS[name], printed), printed
    shown = re.findall(r"```text\n(.*?)```", (PAGE.parent / name).read_text("utf-8"), re.DOTALL)
    for block in shown:  # numbers within three points: processors round differently
        lines = [line for line in printed.splitlines() if line.partition(":")[0] in block]
        said, found = (re.findall(r"\d+", text) for text in (block, "\n".join(lines)))
        assert all(abs(int(a) - int(b)) <= 3 for a, b in zip(said, found, strict=True))
