"""Examples, the notebook and the documentation: all of it runs."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import evergraph
import record_outputs
from evergraph.config import Variant, resolve
from evergraph.lab.folder import Run
from evergraph.lab.runs import Place, execute
from evergraph.memory import SELECTORS
from evergraph.methods import METHODS

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Gives the registries back as they were: examples add to them."""
    before = [(registry, dict(registry)) for registry in (SELECTORS, METHODS)]
    yield
    for registry, content in before:
        registry.clear()
        registry.update(content)


def run(name: str, *words: str, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    patch.setattr(sys, "argv", [name, *words])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


SAYS = {
    "growing_citations.py": "year 3: 2708 papers, 7 topics",
    "rare_fraud.py": "480 accounts are left",
    "custom_selector.py": "hubs: PM",
    "custom_method.py": "leaks: []",
    "from_pyg.py": "then: 400 nodes, classes [0, 1, 2, 3]",
}


def test_every_example_is_tested():
    others = {"amazon_computers.py", "packages.py", "served_packages.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SAYS, *others}
    assert [path.name for path in EXAMPLES.glob("*.ipynb")] == ["quickstart.ipynb"]


@pytest.mark.parametrize("name", SAYS)
def test_example_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    run(name, "2", patch=monkeypatch)
    assert SAYS[name] in capsys.readouterr().out


def test_packages_example_draws_a_grid_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("matplotlib")
    small = {"stream": "time", "epochs": 2, "channels": 4, "heads": 2}
    graph = "synthetic:nodes=120,classes=4,steps=3,feature_dim=8,mean_degree=4"
    seen = []
    for method, seed in (("frozen", 0), ("frozen", 1), ("joint", 0)):
        output = tmp_path / "grid" / "runs" / f"{method}-{seed}"
        results = evergraph.run(graph, method, seed=seed, settings=small, output=output)
        seen.append(results["stream"]["seen"])
    capsys.readouterr()
    picture = tmp_path / "packages.png"
    run("packages.py", str(tmp_path / "grid"), str(picture), patch=monkeypatch)
    assert picture.read_bytes().startswith(b"\x89PNG")
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head == "| | 0 | 1 | 2 | all packages |"
    cells = {row.split(" | ")[0].strip("| "): row.split(" | ")[1:] for row in rows}
    assert set(cells) == {"frozen", "joint", "joint, one release behind"}
    assert cells["frozen"][-1] == f"{(seen[0] + seen[1]) / 2:.1f} |"
    assert cells["joint"][-1] == f"{seen[2]:.1f} |"


def test_served_packages_are_taught_release_by_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for extra in ("fastapi", "uvicorn", "prometheus_client"):
        pytest.importorskip(extra)
    n, rng = 180, np.random.default_rng(0)
    y = np.arange(n) % 3
    x = sparse.csr_matrix((rng.random((n, 9)) < 0.2) + 3.0 * np.eye(9)[y], dtype=np.float32)
    ends = np.stack([np.arange(n - 3), np.arange(3, n)])
    when = np.arange(n) // 60
    np.savez(
        tmp_path / "ubuntu-packages.npz",
        **{"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": x.shape},
        **{"y": y, "class_names": np.array(["admin", "games", "libs"])},
        **{"names": np.array([f"package-{at}" for at in range(n)]), "edge_index": ends},
        **{"time": when, "edge_time": when[ends].max(axis=0)},
    )
    monkeypatch.setenv("EVERGRAPH_DATA", str(tmp_path))
    run("served_packages.py", str(tmp_path / "state"), patch=monkeypatch)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("release 0: 60 packages are learned into")
    assert (
        told[2] == "release 2: 60 packages are version 2; 100 % of those without a label are right"
    )


def test_notebook_runs_and_shows_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))
    recorded = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    scores = record_outputs.run_cells(notebook)["scores"]
    again = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    kinds = [[output["output_type"] for output in outputs] for outputs in recorded]
    assert kinds == [[output["output_type"] for output in outputs] for outputs in again]
    assert any("image/png" in output.get("data", {}) for outputs in recorded for output in outputs)
    held = ast.literal_eval("".join(recorded[1][0]["data"]["text/plain"]))
    for name, rows in scores.items():  # within three points: processors round differently
        for row, before in zip(rows, held[name], strict=True):
            assert row == pytest.approx(before, abs=3.0)
    last = {name: rows[-1] for name, rows in scores.items()}
    assert max(last["fine-tuning"][:2]) < 5  # what the text says
    assert min(last["Evergraph"]) > 80


def test_outputs_of_examples_are_recorded():
    told = json.loads((EXAMPLES / "outputs.json").read_text(encoding="utf-8"))
    assert set(told) == set(SAYS)
    assert all(SAYS[name] in text for name, text in told.items())


@pytest.mark.dataset
def test_amazon_example_reaches_what_a_run_reaches(
    data_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    run("amazon_computers.py", "replay", "epochs=2", "channels=8", patch=monkeypatch)
    method = Variant.parse("replay:epochs=2,channels=8")
    config = resolve(Variant.parse_dataset("amazon-computers"), method, seed=0)
    results = execute(Run(tmp_path / "run", config), Place("auto", data_root))
    expected = [round(value, 2) for value in results["accuracy_matrix"][-1]]
    assert f"replay: PM {results['pm']:.2f}, on the tasks {expected}" in capsys.readouterr().out
    use = (EXAMPLES / "amazon_computers.py").read_text().split('"""', 2)[2].splitlines()
    assert len([line for line in use if line and not line.startswith(("import", "from"))]) < 20


def test_every_decision_stands_in_the_index_under_its_title():
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for path in sorted(folder.glob("0*.md")):
        number, title = path.read_text(encoding="utf-8").splitlines()[0][2:].split(" · ", 1)
        assert path.name.startswith(f"{number}-")
        assert f"| [{number}]({path.name}) | {title} |" in index


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_outside_the_site_lead_somewhere(name: str):
    links = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
    files = [link for link in links if "://" not in link]
    assert [link for link in files if not (ROOT / link).exists()] == []
