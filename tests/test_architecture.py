"""The house as drawn is the house as built: import arrows of the code and of the picture."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evergraph"
BASICS = {"errors", "device", "validation", "events", "metrics", "files", "team", "launch"}


def room(parts: list[str]) -> str | None:
    """Names the room of a module; the public face and ``python -m`` stand before the house."""
    if not parts or parts[0] in {"__init__", "__main__", "__version__"}:
        return None
    if parts[:2] == ["lab", "cli"]:
        return "cli"
    return "basics" if parts[0] in BASICS else parts[0]


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def arrows_in_code() -> dict[tuple[str, str], str]:
    """Finds all pairs (room, room that imports it), each with a file as its witness."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        here = room(list(path.relative_to(PACKAGE).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in imported(node):
                package, *parts = name.split(".")
                there = room(parts) if package == "evergraph" else None
                if here and there and here != there:
                    found.setdefault((there, here), str(path.relative_to(PACKAGE)))
    return found


def groups_in_picture() -> list[tuple[list[str], list[str]]]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = re.search(r"```arrows\n(.*?)```", text, re.DOTALL)
    assert picture is not None
    chains = [line.split("→") for line in picture[1].splitlines()]
    groups = [[[word.strip() for word in part.split(",")] for part in chain] for chain in chains]
    return [pair for chain in groups for pair in pairwise(chain)]


def reachable(steps: set[tuple[str, str]]) -> set[tuple[str, str]]:
    while True:
        more = {(a, d) for (a, b), (c, d) in product(steps, steps) if b == c} - steps
        if not more:
            return steps
        steps = steps | more


def test_imports_point_only_to_the_left():
    allowed = reachable(
        {pair for left, right in groups_in_picture() for pair in product(left, right)}
    )
    wrong = {pair: file for pair, file in arrows_in_code().items() if pair not in allowed}
    assert wrong == {}


def test_every_arrow_of_the_picture_is_in_the_code():
    code = arrows_in_code()
    idle = [(a, b) for a, b in groups_in_picture() if not any(p in code for p in product(a, b))]
    assert idle == []


def test_every_room_is_in_the_picture():
    drawn = {name for pair in groups_in_picture() for group in pair for name in group}
    assert drawn == {name for pair in arrows_in_code() for name in pair}


def test_estimator_imports_nothing_of_the_lab():
    assert ("lab", "estimator") not in arrows_in_code()


#: Prints how many of our files a call passes, the way there not counted.
WALK = """
import os, sys, tempfile
import evergraph
home, passed = os.path.dirname(evergraph.__file__) + os.sep, set()

def look(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(home) and code.co_name[0] != "<":
        passed.add(code.co_filename)
{prepare}
sys.setprofile(look)
try:
    {call}
except SystemExit:
    pass
sys.setprofile(None)
print(len(passed))
"""
RUN = """
from evergraph.lab.cli import main
words = ["run", "--set", "epochs=2", "--set", "link_epochs=2", "--output"]
sys.argv = ["evergraph", *words, tempfile.mkdtemp() + "/run"]
"""
LEARN = """
import numpy as np
few = {"epochs": 2, "link_epochs": 2, "channels": 4, "num_candidates": 8, "num_neighbors": 2}
clf = evergraph.ContinualNodeClassifier("dslr", buffer_size=12, device="cpu", settings=few)
n = {n}  # in each of two batches
ids, labels = [f"n{i}" for i in range(2 * n)], ["abc"[i % 3] for i in range(2 * n)]
x = np.random.default_rng(0).normal(size=(2 * n, 8))
edges = [(ids[i], ids[(7 * i + 1) % (2 * n)]) for i in range(2 * n)]
clf.learn(ids[:n], x[:n], [], ["ab"[i % 2] for i in range(n)])
"""
SECOND = "clf.learn(ids[n:], x[n:], edges, labels[n:])"


@pytest.mark.parametrize(
    ("prepare", "call", "most"),
    [
        (RUN, "main()", 35),
        (LEARN.replace("{n}", "30"), SECOND, 25),
        # Enough nodes to look back at: the watch, and ridge regression on features alone.
        (LEARN.replace("{n}", "200"), SECOND, 28),
    ],
    ids=["run", "learn", "learn and look back"],
)
def test_way_of_a_command_is_short(prepare: str, call: str, most: int):
    script = WALK.replace("{prepare}", prepare).replace("{call}", call)
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert 10 < int(told.stdout.split()[-1]) <= most


def test_learning_imports_no_compiler():
    script = WALK.replace("{prepare}", LEARN.replace("{n}", "30")).replace("{call}", SECOND)
    script += "print(*(name for name in sys.modules if name.startswith('torch._dynamo')))"
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-1] == ""
