"""The README: its snippets run, its commands exist, its numbers are those of committed results."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergraph
from evergraph.config import Variant, resolve
from evergraph.lab.cli import COMMANDS
from evergraph.lab.field import read_field
from evergraph.lab.report.document import read_results
from evergraph.lab.summary import mean_std
from evergraph.lab.tables import claims, spread
from support import Command

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/tutorials").glob("*.md")]


GRAPHS = ("cora", "citeseer", "amazon-computers")
DSLR = "DSLR, our settings"
PLUS = "`dslr+`, which also distils its last network"


def table(text: str, *, first: str) -> dict[str, list[str]]:
    """Reads the Markdown table whose head begins so: first cell → the others, without marks."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(first))
    rows: dict[str, list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        rows[name] = cells
    return rows


def blocks(text: str, *languages: str) -> list[str]:
    """Finds the fenced blocks of some languages, each from its opening to its end."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for language, block in found if language in languages]


# --- snippets ------------------------------------------------------------------------------


def test_three_lines_keep_a_graph_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = {"ids": [f"n{at}" for at in range(40)], "labels": ["ab"[at % 2] for at in range(40)]}
    names |= {"new_ids": [f"m{at}" for at in range(20)], "new_labels": ["c", None] * 10}
    names |= {"x": rng.normal(size=(40, 6)), "new_x": rng.normal(size=(20, 6)) + 2}
    names["edges"] = [(f"n{at}", f"n{(at + 2) % 40}") for at in range(40)]
    names["new_edges"] = [(f"m{at}", f"n{at}") for at in range(20)]
    code = blocks(README, "python")[0]
    assert len([line for line in code.splitlines() if line]) == 4  # an import and three lines
    exec(code, names)
    assert names["clf"].classes_.tolist() == ["a", "b", "c"]
    again = evergraph.ContinualNodeClassifier.load("state")
    assert len(again.predict(names["new_ids"])) == 20


def test_the_site_begins_with_the_same_three_lines():
    home = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert all(line in home for line in blocks(README, "python")[0].splitlines())


def test_experiments_run_from_python(monkeypatch: pytest.MonkeyPatch):
    few = {"epochs": 1, "link_epochs": 1, "channels": 4}

    def quick(*words: Any, **options: Any) -> dict[str, Any]:
        return evergraph.lab.api.run(*words, **options, settings=few)

    monkeypatch.setattr(evergraph, "run", quick)
    names: dict[str, Any] = {}
    exec(blocks(README, "python")[1], names)
    assert len(names["results"]["accuracy_matrix"]) == 3


# --- commands ------------------------------------------------------------------------------


def commands() -> dict[str, set[str]]:
    """Finds every command of the documents and the options that it is shown with."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text("utf-8")
        within = re.findall(r"`(evergraph [^`]+)`", text)  # in running text
        for block in [*blocks(text, "", "bash"), *within]:
            for line in block.replace("\\\n", " ").splitlines():
                words = line.partition("#")[0].split()
                if words[:1] == ["evergraph"] and len(words) > 1:
                    options = {
                        w.strip("[]").partition("=")[0] for w in words if w.startswith(("-", "[-"))
                    }
                    found.setdefault(words[1], set()).update(options)
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_commands_of_the_documents_exist(command: Command, name: str):
    assert name in COMMANDS
    shown = command(name, "--help").out
    assert [option for option in commands()[name] if option not in shown] == []


def test_documents_show_every_command():
    assert set(COMMANDS) == set(commands())


def test_extras_and_targets_are_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(re.findall(r"\[(\w+)\](?:\"| for)", README))
    assert {"tables", "report", "tune", "pyg", "ogb"} <= extras
    assert extras <= set(project["optional-dependencies"])
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"`make (\w+)`", README))
    assert named
    assert named <= set(targets)
    promised = [c.rpartition(" ")[2] for c in project["classifiers"] if ":: 3." in c]
    assert f"Python {promised[0]} to {promised[-1]}" in README
    assert project["requires-python"] == f">={promised[0]}"


def test_methods_that_are_advised_are_there():
    advised = table(README, first="| you want |")
    named = {name for cells in advised.values() for name in re.findall(r"`([^`]+)`", cells[0])}
    assert {"analytic", "dslr", "dslr+", "replay", "joint"} <= named
    assert named <= set(evergraph.METHODS)


def shown_run() -> dict[str, tuple[float, str]]:
    """Reads the table that `evergraph run` prints: metric → this run, the paper."""
    lines = re.findall(r"^│ (\w+) [↑↓] +│ +([\d.]+) │ +(.+?) │$", README, re.MULTILINE)
    return {name: (float(value), paper) for name, value, paper in lines}


def test_shown_run_stands_beside_the_papers_numbers():
    printed = claims("cora", "dslr", {})
    shown = shown_run()
    assert set(shown) == {"PM", "FM", "Current"}
    assert shown["PM"][1] == spread(printed["pm"])
    assert shown["FM"][1] == spread(printed["fm"])
    assert shown["Current"][1] == "–"


@pytest.mark.slow
def test_shown_run_is_what_the_command_gives():
    results = evergraph.run()
    for name, (value, _) in shown_run().items():  # other processors round differently
        assert results[name.lower()] == pytest.approx(value, abs=2), name


# --- numbers -------------------------------------------------------------------------------


def test_instead_is_what_was_measured():
    measured = json.loads((ROOT / "docs" / "instead.json").read_text())
    names = {
        "leave the model alone": "leave it alone",
        "fine-tune on the new batch": "fine-tune",
        "a PyTorch Geometric script, from scratch": "a PyG script",
        "retrain from scratch (`joint`)": "retrain from scratch",
        "Evergraph, `analytic`": "evergraph, analytic",
        "Evergraph, `dslr+`": "evergraph, dslr+",
        "Evergraph, `dslr`": "evergraph, dslr",
    }
    rows = table(README, first="| | seconds |")
    assert set(names.values()) == set(measured)
    for row, name in names.items():
        found = measured[name]
        seconds, kept, accuracy = rows[row][:3]
        assert float(seconds) == pytest.approx(found["seconds"], abs=0.07)
        size = {"kB": 1e3, "MB": 1e6}.get(kept.partition(" ")[2], 1)
        assert float(kept.split()[0]) * size == pytest.approx(found["bytes"], rel=0.03)
        assert accuracy == f"{found['pm']:.0f} %"
    shown = float(re.search(r"│ PM ↑ +│ +([\d.]+) │", README)[1])  # of two threads, not one
    assert shown == pytest.approx(measured["evergraph, dslr"]["pm"], abs=0.5)
    assert rows["BeGin, CGLB, scripts of papers"][:3] == ["–"] * 3


def test_results_are_those_of_ten_seeds():
    everything = read_results(ROOT / "docs" / "results")
    rows = table(README, first="| | Cora | Citeseer |")
    places = {
        "DSLR, as printed": ("main", "as_printed", "dslr"),
        "DSLR, our settings": ("main", "ours", "dslr"),
        "`replay` of random nodes": ("frontier", "ours", "replay"),
        "EWC, which keeps no node": ("main", "ours", "ewc"),
        "`joint`, a GAT trained on all labels": ("bounds", "ours", "joint"),
        "`analytic`, a closed form": ("bounds", "ours", "analytic"),
    }
    field = {row.place: row for row in read_field(ROOT / "docs" / "results" / "field").values()}
    assert set(rows) == {*places, "DSLR, the paper", PLUS}
    for graph, cell in zip(GRAPHS, rows[PLUS], strict=True):  # of what the presets are now
        found = field[graph, "class", "dslr+"]
        assert (
            found.variant_hash
            == resolve(Variant.parse_dataset(graph), Variant.parse("dslr+"), 0).variant_hash
        )
        assert len(found.seeds) == 10
        assert cell == spread(mean_std(found.pm))
    for graph, cell in zip(GRAPHS, rows["DSLR, the paper"], strict=True):
        assert cell == spread(claims(graph, "dslr", {})["pm"])
    for name, (experiment, kind, row) in places.items():
        entries = everything[experiment][kind]["entries"]
        for graph, cell in zip(GRAPHS, rows[name], strict=True):
            place = (graph, row, "pm")
            (found,) = [e for e in entries if (e["dataset"], e["row"], e["metric"]) == place]
            assert len(found["seeds"]) == 10
            assert cell == spread(found), place
    means = {name: [float(cell.split()[0]) for cell in cells] for name, cells in rows.items()}
    better, plain = (means[name] for name in (PLUS, DSLR))
    gains = [round(a - b) for a, b in zip(better, plain, strict=True)]
    assert f"is {min(gains)} to {max(gains)} points above it" in " ".join(README.split())


def test_picture_and_words_are_those_of_the_packages():
    packages = (ROOT / "docs" / "packages.md").read_text(encoding="utf-8")
    rows = table(packages, first="| | xenial |")
    falls = [round(float(rows["frozen"][at])) for at in (0, 7)]
    assert f"falls from {falls[0]} to {falls[1]} %" in README
    assert f"Evergraph stays at {float(rows['analytic'][7]):.0f} %" in README
    assert f"would reach {float(rows['`joint:learner=analytic`'][8].split()[0]):.0f} %" in README
    nodes = table(packages, first="| | |")["nodes"][0].split()[0]
    assert f"{nodes} packages" in README
    assert nodes in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert len(rows["frozen"]) == 8 + 2  # eight releases, all packages and AAUC
    growth = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    line = next(line for line in growth.splitlines() if line.startswith("| | 10⁶ |"))
    cells = [cell.strip() for cell in line.split("|")]
    assert f"takes `analytic` {cells[3]} s" in README
    assert f"anew {cells[6]} s" in README
