"""SIGKILL at moments spread over a run and over learn: every resume ends in the same bits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batches import contents
from evergraph.estimator.store import Store
from evergraph.stream import Graph
from evergraph.stream.datasets import write_plain
from killing import Killer
from support import QUICK

# Compiled kernels would be loaded again by every fork.
SMALL = (*QUICK, "--set", "attention=plain", "--device", "cpu")
LEARN = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--labels", "labels.csv")


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    server = Killer()
    yield server
    server.close()


@pytest.fixture
def work(tmp_path: Path, make_graph: Callable[..., Graph]) -> Path:
    """A folder with a graph, and tables of a first and a second batch of it."""
    graph = make_graph(60, 6)
    write_plain(graph, tmp_path / "graph.npz")
    for name, inside in (("first", graph.y < 4), ("", graph.y >= 0)):
        prefix = f"{name}-" if name else ""
        rows = [row for row in range(60) if bool(inside[row]) and (name or graph.y[row] >= 4)]
        head = ",".join(["id", *(f"f{at}" for at in range(8))])
        lines = [",".join([f"n{row}", *map(str, graph.x[row].tolist())]) for row in rows]
        (tmp_path / f"{prefix}nodes.csv").write_text("\n".join([head, *lines]) + "\n")
        labels = [f"n{row},{graph.class_names[int(graph.y[row])]}" for row in rows]
        (tmp_path / f"{prefix}labels.csv").write_text("\n".join(["id,label", *labels]) + "\n")
        pairs = [
            f"n{a},n{b}"
            for a, b in graph.edges.T.tolist()
            if bool(inside[a] and inside[b]) and (name or a in rows or b in rows)
        ]
        (tmp_path / f"{prefix}edges.csv").write_text("\n".join(["source,target", *pairs]) + "\n")
    return tmp_path


def moments(count: int, whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Spreads kills over the operations on files and databases, and over a command's seconds."""
    half = count // 2
    files = [{"at": whole["operations"] * at // half} for at in range(half)]
    rest = count - half
    return files + [{"after": whole["seconds"] * (at + 0.5) / rest} for at in range(rest)]


def results(folder: Path) -> tuple[Any, bytes]:
    """Reads what a run came to, but for the seconds, and its weights."""
    found = json.loads((folder / "results.json").read_text())
    return {k: v for k, v in found.items() if k != "seconds"}, weights(folder)


def weights(folder: Path) -> bytes:
    """Returns the network and the method's state of a checkpoint, without its records."""
    from evergraph.files import pack, unpack

    state = unpack((folder / "checkpoint" / "learner.safetensors").read_bytes())
    return pack({key: state[key] for key in ("next_task", "method", "model")})


def kill_runs(killer: Killer, work: Path, count: int) -> int:
    """Kills runs at all moments and resumes them; returns how many were really cut short."""
    words = ("run", "--dataset", "graph.npz", *SMALL, "--output")
    whole = killer(work, *words, "whole")
    assert whole["code"] == 0, (work / "stderr.txt").read_text()
    expected, cut = results(work / "whole"), 0
    for number, moment in enumerate(moments(count, whole)):
        output = work / f"run-{number}"
        code = killer(work, *words, output.name, **moment)["code"]
        assert code in {-9, 0}
        cut += code == -9
        if (output / "config.yaml").exists():
            again = killer(work, "resume", output.name, "--device", "cpu")
        else:  # killed before it had a folder: there is nothing to resume
            again = killer(work, *words, output.name)
        assert again["code"] == 0, (work / "stderr.txt").read_text()
        assert results(output) == expected
        shutil.rmtree(output)
    return cut


def kill_learns(killer: Callable[..., Any], work: Path, count: int) -> int:
    """Kills a second learn at all moments and resumes it."""
    first = [f"first-{word}" if word.endswith(".csv") else word for word in LEARN]
    options = ("--method", "dslr", "--buffer-size", "12", *SMALL)
    begun = killer(work, "learn", "begun", *first, *options)
    assert begun["code"] == 0, (work / "stderr.txt").read_text()
    shutil.copytree(work / "begun", work / "whole")
    whole = killer(work, "learn", "whole", *LEARN, "--device", "cpu")
    assert whole["code"] == 0, (work / "stderr.txt").read_text()
    killer(work, "predict", "whole", "-o", "whole.csv", "--device", "cpu")
    expected, cut = contents(work / "whole"), 0
    for number, moment in enumerate(moments(count, whole)):
        state = work / f"state-{number}"
        shutil.copytree(work / "begun", state)
        code = killer(work, "learn", state.name, *LEARN, "--device", "cpu", **moment)["code"]
        assert code in {-9, 0}
        cut += code == -9
        noted = Store(state).has_pending
        again = killer(work, "resume", state.name, "--device", "cpu")
        assert again["code"] == 0, (work / "stderr.txt").read_text()
        if contents(state) != expected:  # killed before the change was on disk
            assert not noted
            assert contents(state) == contents(work / "begun")
            killer(work, "learn", state.name, *LEARN, "--device", "cpu")
        assert contents(state) == expected
        killer(work, "predict", state.name, "-o", "again.csv", "--device", "cpu")
        assert (work / "again.csv").read_bytes() == (work / "whole.csv").read_bytes()
        shutil.rmtree(state)
    return cut


def test_five_kills_of_a_run_lose_nothing(killer: Killer, work: Path):
    assert kill_runs(killer, work, 5) >= 3


def test_five_kills_of_learn_lose_nothing(killer: Killer, work: Path):
    assert kill_learns(killer, work, 5) >= 3


def test_six_kills_of_learn_with_features_in_a_file_lose_nothing(killer: Killer, work: Path):
    assert kill_learns(partial(killer, files=True), work, 6) >= 3
    assert list((work / "whole").glob("*.array"))


@pytest.mark.slow
def test_fifty_kills_of_a_run_lose_nothing(killer: Killer, work: Path):
    assert kill_runs(killer, work, 50) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("files", [False, True])
def test_ninety_five_kills_of_learn_lose_nothing(killer: Killer, work: Path, files: bool):
    assert kill_learns(partial(killer, files=files), work, 95) >= 57
