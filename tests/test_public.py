"""The public face: few names, imported when used, the same in the documentation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import evergraph
from evergraph.events import TaskDone
from evergraph.stream import Graph

DOCUMENT = Path(__file__).parents[1] / "docs" / "api.md"
QUICK = {"epochs": 2, "channels": 4, "heads": 2}
SMALL = "synthetic:nodes=80,classes=4,mean_degree=4"


def test_names_are_few_and_documented():
    assert len(evergraph.__all__) <= 20
    assert dir(evergraph) == sorted(evergraph.__all__)
    named = re.findall(r"^\| \[?`(\w+)`", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(evergraph.__all__)


@pytest.mark.parametrize("name", evergraph.__all__)
def test_every_name_is_there(name: str):
    assert getattr(evergraph, name) is not None


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'rnu'"):
        _ = evergraph.rnu


def test_library_imports_nothing_of_the_lab():
    root = Path(evergraph.__file__).parent
    library = [path for path in root.rglob("*.py") if "lab" not in path.relative_to(root).parts]
    faces = {root / "__init__.py", root / "__main__.py"}
    assert not [p for p in library if p not in faces and "evergraph.lab" in p.read_text("utf-8")]


def test_import_loads_no_torch():
    code = "import evergraph, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize(
    ("name", "usual", "other"),
    [("OMP_WAIT_POLICY", "PASSIVE", "ACTIVE"), ("THP_MEM_ALLOC_ENABLE", "1", "0")],
)
@pytest.mark.parametrize("told", [False, True])
def test_import_sets_how_pytorch_works_unless_told_otherwise(
    name: str, usual: str, other: str, told: bool
):
    code, found = f"import os, evergraph; print(os.environ['{name}'])", other if told else usual
    environment = {key: value for key, value in os.environ.items() if key != name}
    environment |= {name: other} if told else {}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == f"{found}\n"


def test_run_returns_what_the_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    arguments = {"settings": {**QUICK, "beta": 0.2}, "device": "cpu"}
    first = evergraph.run(SMALL, "replay@mine", **arguments, on_event=seen.append)
    assert list(tmp_path.glob("*evergraph*")) == []  # nothing of ours is left
    assert [event.row for event in seen if isinstance(event, TaskDone)] == first["accuracy_matrix"]
    second = evergraph.run(SMALL, "replay@mine", **arguments, output=tmp_path / "run")
    written = json.loads((tmp_path / "run" / "results.json").read_text())
    assert second == written
    assert {**first, "seconds": None} == {**second, "seconds": None}
    assert (first["label"], first["settings"]["beta"]) == ("mine", 0.2)


def test_run_takes_presets_and_refuses_unknown_settings():
    results = evergraph.run("cora", "finetune", settings=QUICK, presets="printed", device="cpu")
    assert results["dataset"] == "cora"
    with pytest.raises(evergraph.InputError, match="did you mean 'epochs'"):
        evergraph.run("cora", "finetune", settings={"epoch": 3})


def test_run_takes_a_graph():
    graph = evergraph.load_graph("synthetic", None, {"nodes": 80, "classes": 4, "mean_degree": 4})
    assert isinstance(graph, Graph)
    results = evergraph.run(graph, "finetune", settings=QUICK, device="cpu")
    named = evergraph.run(SMALL, "finetune", settings=QUICK, device="cpu")
    assert results["accuracy_matrix"] == named["accuracy_matrix"]


def test_compare_returns_the_summary(tmp_path: Path):
    arguments = {"settings": QUICK, "device": "cpu", "output": tmp_path}
    summary = evergraph.compare(SMALL, ["finetune", "replay:selector=mf@mf"], 2, **arguments)
    assert [entry["label"] for entry in summary] == ["finetune", "mf"]
    assert [entry["seeds"] for entry in summary] == [[0, 1], [0, 1]]
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    (difference,) = json.loads((tmp_path / "comparisons.json").read_text())  # as the command does
    assert (difference["reference"], difference["other"]) == ("finetune", "mf")
    assert "finetune − mf" in (tmp_path / "summary.md").read_text()
    pm = [evergraph.run(SMALL, "finetune", seed=s, settings=QUICK)["pm"] for s in (0, 1)]
    assert summary[0]["pm"]["mean"] == pytest.approx(np.mean(pm))
    with pytest.raises(evergraph.InputError, match="missing"):
        evergraph.compare("missing.npz", "finetune", 1)


def test_training_counts_denormals_as_zero():
    tiny = torch.full((1,), 1e-310, dtype=torch.float64)
    seen = []
    evergraph.run(
        SMALL,
        "finetune",
        settings=QUICK,
        device="cpu",
        on_event=lambda event: seen.append(bool((tiny * 1.0).any())),
    )
    assert seen
    assert not any(seen)
    assert bool((tiny * 1.0).any())  # and afterwards as before

    def fail(event: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        evergraph.run(SMALL, "finetune", settings=QUICK, device="cpu", on_event=fail)
    assert bool((tiny * 1.0).any()), caught  # also while the failure is looked at
