"""The catalogue: every experiment is small, reaches the paper's numbers and writes its files."""

from __future__ import annotations

import csv
import importlib
import json
import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from evergraph.config import RunConfig
from evergraph.lab.api import merge_runs, runs_by_hash
from evergraph.lab.folder import Run, make_runs
from evergraph.lab.paper.contrasts import Table, contrast
from evergraph.lab.paper.experiments import (
    EXPERIMENTS,
    HEADLINES,
    Experiment,
    Facts,
    Row,
    find_experiments,
)
from evergraph.lab.paper.reproduce import (
    Request,
    find_facts,
    measure,
    needed_runs,
    plan,
    why_no_times,
)
from evergraph.lab.report.figures import FORMATS, write_figure
from evergraph.lab.runs import execute
from evergraph.lab.tables import paper_numbers
from evergraph.stream import Graph
from evergraph.stream.datasets import DATASETS, write_plain
from support import Command

IDS = [
    "main",
    "buffer-homophily",
    "homophily-forgetting",
    "buffer-size",
    "diversity-effect",
    "diversity",
    "structure-effect",
    "structure-heatmap",
    "candidates",
    "text-and-code",
    "ablation",
    "homophily-variants",
    "training-time",
    "sensitivity",
    "beta",
    "cm-vs-cd",
    "deletion-addition",
    "selector-time",
    "link-predictor-time",
    "selector-quality",
    "radius",
    "homophily-structure",
    "embedding",
    "datasets",
    "hyperparameters",
    "frontier",
    "bounds",
    "dslr-plus",
    "blurry",
    "leaks",
    "field",
]
FACTS = Facts("cora", 1770, 3, 6, 2)
TINY = ["epochs=1", "link_epochs=1", "channels=4", "heads=2", "buffer_size=8"]
FILES = ("json", "csv", "md", "tex", "svg")
#: One of each kind of figure is written in all formats; for the others one format saves time.
ALL_FORMATS = ("cm-vs-cd", "buffer-homophily", "radius", "structure-heatmap", "embedding")

each = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda e: e.id)


def test_catalogue_has_every_experiment():
    assert list(EXPERIMENTS) == IDS
    assert [e.id for e in find_experiments("all")] == [name for name in IDS if name != "field"]
    assert find_experiments("beta") == [EXPERIMENTS["beta"]]


@each
def test_experiment_has_distinct_rows_and_metrics(experiment: Experiment):
    names = [row.name for row in experiment.rows(FACTS)]
    keys = [metric.key for metric in experiment.metrics]
    assert len(names) == len(set(names)) > 0
    assert len(keys) == len(set(keys)) > 0
    assert set(experiment.figure["metrics"]) <= set(keys)
    assert set(experiment.quick or ()) <= set(names)
    assert set(experiment.datasets) <= set(DATASETS)


@each
def test_experiment_measures_every_statement(experiment: Experiment):
    rows = experiment.rows(FACTS)
    draw = random.Random(0).random
    values = {
        (row.name, metric.key): np.array([draw() for _ in range(3)])
        for row in rows
        for metric in experiment.metrics
    }
    table = Table(
        "cora", rows, range(3), values, {metric.key: metric.better for metric in experiment.metrics}
    )
    for statement in experiment.statements:
        assert not np.isnan(contrast(statement.contrast, table)).any(), statement.text
        assert set(statement.graphs) <= set(DATASETS)


def test_headlines_are_ten_or_so_and_each_is_tested_where_the_paper_makes_it():
    assert 10 <= len(HEADLINES) <= 12
    for headline in HEADLINES:
        for name, text in headline.made_of:
            (said,) = [one for one in EXPERIMENTS[name].statements if one.text == text]
            assert said.graphs, text
            assert said.by_construction is None, text


@each
def test_experiment_reaches_every_printed_number(experiment: Experiment):
    if experiment.id in ("datasets", "hyperparameters"):
        names = None
    else:
        names = {row.name for row in experiment.rows(FACTS)}
    keys = {metric.key for metric in experiment.metrics}
    for table in experiment.tables:
        for rows in paper_numbers().get(table, {}).values():
            for name, entry in rows.items():
                assert names is None or name in names
                assert entry == "oom" or set(entry) <= keys


def test_every_table_of_numbers_belongs_to_an_experiment():
    used = {table for e in EXPERIMENTS.values() for table in e.tables}
    spare = {"contradictions", "continual-gnn-selection"}
    assert set(paper_numbers()) <= used | spare


def test_plan_shares_runs_between_experiments():
    parts = plan(find_experiments("all"), Request(quick=True))
    runs = needed_runs(parts)
    assert len({config.hash for config in runs}) == len(runs)
    assert len(runs) < sum(len(part.needs) for part in parts)
    beta = {c.hash for c in needed_runs(plan(find_experiments("beta"), Request(quick=True)))}
    assert beta <= {config.hash for config in runs}
    make_runs(runs, Path("out"))  # no two of them want one folder


def test_plan_of_equal_rows_is_one_run():
    parts = plan(find_experiments("radius"), Request(dataset=["cora"], seeds=1))
    (main,) = plan(find_experiments("main"), Request(dataset=["cora"], seeds=1))
    # Cora's preset has r = 0.2, so that this row is DSLR itself.
    assert parts[0].needs["0.2", 0].key == main.needs["dslr", 0].key


def test_request_leaves_settings_to_methods_that_have_them():
    request = Request(quick=True, sets=["epochs=3", "buffer_size=9"])
    mas, finetune, dslr = (
        request.config("cora", Row(name, name), 0) for name in ("mas", "finetune", "dslr")
    )
    assert mas.settings["num_nodes"] == 32
    assert (finetune.training.epochs, "buffer_size" in finetune.settings) == (3, False)
    assert dslr.settings["buffer_size"] == 9
    assert list(request.all_seeds) == [0, 1]
    assert list(Request().all_seeds) == list(range(10))
    assert list(Request(seeds=4, first_seed=10).all_seeds) == [10, 11, 12, 13]


def test_find_facts_counts_the_stream():
    # 2,708 papers without Rule_Learning's 180, 70 % of them for training.
    assert find_facts("cora", None) == Facts("cora", 1770, 3, 6, 2, "class", 2708, 5278, 1433)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory, make_graph: Callable[..., Graph]) -> Path:
    """All runs that the quick version of every experiment needs, on a tiny graph."""
    folder = tmp_path_factory.mktemp("reproduced")
    path = folder / "graph.npz"
    write_plain(make_graph(num_nodes=60, num_classes=6), path)
    request = Request(quick=True, dataset=[str(path)], seeds=2, sets=TINY)
    for config in needed_runs(plan(EXPERIMENTS.values(), request)):
        (job,) = make_runs([config], folder / "out")
        execute(job)
    return folder


def words(folder: Path, name: str) -> list[object]:
    sets = [part for pair in TINY for part in ("--set", pair)]
    where = ["--dataset", folder / "graph.npz", "--output", folder / "out", "--device", "cpu"]
    return ["reproduce", name, "--quick", "--seeds", 2, *where, *sets]


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("a run was not shared")


def without_first_checkpoints(folder: str, names: list[str]) -> list[str]:
    """Leaves out the checkpoints of seed 0."""
    return [name for name in names if name == "checkpoint" and folder.endswith("seed-0")]


def draw_nothing(spec: object, folder: Path, name: str, formats: Any = FORMATS, **_: Any) -> None:
    """Stands for drawing, which takes a second each."""
    for suffix in formats:
        (folder / f"{name}.{suffix}").touch()


@pytest.mark.parametrize("name", IDS)
def test_reproduce_writes_every_file(
    name: str, reproduced: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.import_module("evergraph.lab.cli.reproduce"), "run_jobs", refuse)
    formats = ("png", "svg", "pdf") if name in ALL_FORMATS else ("svg",)
    monkeypatch.setattr(
        "evergraph.lab.report.document.write_figure", partial(write_figure, formats=formats)
    )
    answer = command(*words(reproduced, name))
    assert answer.code == 0, answer.err
    folder = reproduced / "out" / name
    for suffix in (*FILES, *formats):
        assert (folder / f"{name}.{suffix}").stat().st_size > 0, suffix
    outcome = json.loads((folder / f"{name}.json").read_text())
    experiment = EXPERIMENTS[name]
    assert outcome["missing"] == {}
    measured = {entry["metric"] for entry in outcome["entries"]}
    present = {m.key for m in experiment.metrics if not m.key.startswith(("class ", "bytes_"))}
    assert present <= measured
    seeds = [0] if experiment.looked_up else [0, 1]
    assert all(entry["seeds"] in (seeds, seeds[:1], seeds[1:]) for entry in outcome["entries"])
    assert [entry["text"] for entry in outcome["statements"]] == [
        statement.text for statement in experiment.statements
    ]
    lines = list(csv.DictReader((folder / f"{name}.csv").open()))
    assert len(lines) >= len(outcome["entries"])
    for told in ((folder / f"{name}.md").read_text(), answer.out):
        assert "proves nothing" in told
        titles = " ".join(told.split())
        assert "(quick: proves nothing)" in titles  # above every table
        assert "(with epochs=1, link_epochs=1," in titles  # beside the paper's numbers
    assert f"{name}/" in answer.out.splitlines()[-1]  # where its files are


def test_reproduce_draws_the_plane_of_the_first_task(
    reproduced: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evergraph.lab.report.document.write_figure", draw_nothing)
    assert command(*words(reproduced, "embedding")).code == 0
    outcome = json.loads((reproduced / "out/embedding/embedding.json").read_text())
    (points,) = outcome["planes"]
    assert set(points["kept"]) == {"MF", "CD"}
    assert len(points["places"]) == len(points["labels"]) == len(points["kept"]["MF"])
    assert set(points["labels"]) == {0, 1}
    for kept in points["kept"].values():
        assert 0 < sum(kept) < len(kept)
    assert outcome["notes"][-1].endswith("graph.npz, seed 0.")


def test_reproduce_says_when_there_is_no_plane_to_draw(
    reproduced: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("evergraph.lab.report.document.write_figure", draw_nothing)
    shutil.copytree(
        reproduced / "out/runs", tmp_path / "out/runs", ignore=without_first_checkpoints
    )
    where = ["--output", tmp_path / "out", "--document", tmp_path / "page.md"]
    assert command(*words(reproduced, "embedding"), *where).code == 0
    page = tmp_path / "reproduction/embedding.md"
    assert "![" in page.read_text()
    assert "seed 1." in (tmp_path / "out/embedding/embedding.md").read_text()
    for checkpoint in (tmp_path / "out/runs").rglob("checkpoint"):
        shutil.rmtree(checkpoint)
    assert command(*words(reproduced, "embedding"), *where).code == 0
    assert "![" in page.read_text()  # the one from before
    where[-1] = tmp_path / "new/page.md"
    assert command(*words(reproduced, "embedding"), *where).code == 0
    text = (tmp_path / "new/reproduction/embedding.md").read_text()
    assert "![" not in text
    assert "No picture: no finished run has its checkpoint" in text


def test_reproduce_all_gives_an_overview_and_a_document(
    reproduced: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evergraph.lab.report.document.write_figure", draw_nothing)
    page = reproduced / "reproduction.md"
    explanations = reproduced / "results" / "explanations.yaml"
    explanations.parent.mkdir(exist_ok=True)
    explanations.write_text("beta: Tested with four epochs.\n")
    answer = command(*words(reproduced, "all"), "--document", page)
    assert answer.code == 0, answer.err
    every = {name for name in IDS if name != "field"}
    assert all(name in answer.out for name in every)
    pages = {path.stem: path.read_text() for path in (reproduced / "reproduction").iterdir()}
    assert set(pages) - {"field"} == {*every, "contradictions"}
    assert "Tested with four epochs." in pages["beta"]
    assert "random on Amazon FM | Table 13: 29.33; Table 15: 23.85" in pages["contradictions"]
    links = re.findall(r"\]\((re[^)]+)\)", page.read_text())
    assert [link for link in links if not (reproduced / link).exists()] == []
    written = [page, *reproduced.glob("reproduction/*"), *reproduced.glob("results/*.json")]
    before = {path: path.read_bytes() for path in written}
    for source in ("out", "results"):  # what was published is enough
        line = ["reproduce", "--output", reproduced / source, "--document", page]
        assert command(*line).code == 0
        assert {path: path.read_bytes() for path in written} == before
    explanations.write_text("betta: A name that nothing has.\n")
    refused = command("reproduce", "--output", reproduced / "out", "--document", page)
    explanations.unlink()
    assert refused.code == 2
    assert "did you mean 'beta'?" in refused.err
    assert {path: path.read_bytes() for path in written} == before


def test_published_results_are_enough_to_write_every_file(
    reproduced: Path, command: Command, tmp_path: Path
):
    assert command(*words(reproduced, "radius")).code == 0
    first = reproduced / "out"
    assert command("reproduce", "--output", first, "--document", tmp_path / "page.md").code == 0
    published = ["--published", tmp_path / "results", "--output", tmp_path / "out"]
    answer = command("reproduce", "radius", *published)
    assert answer.code == 0, answer.err
    for suffix in ("md", "tex"):
        name = f"radius/radius.{suffix}"
        assert (tmp_path / "out" / name).read_text() == (first / name).read_text()
    for suffix in ("png", "svg", "pdf", "csv", "json"):
        assert (tmp_path / f"out/radius/radius.{suffix}").stat().st_size > 0


def test_as_printed_stands_beside_ours(
    reproduced: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evergraph.lab.report.document.write_figure", draw_nothing)
    printed, page = reproduced / "printed", reproduced / "both.md"
    again = ["--as-printed", "--jobs", 1]
    line = [printed if word == reproduced / "out" else word for word in words(reproduced, "beta")]
    assert command(*line, *again).code == 0
    config = Run(next(printed.rglob("config.yaml")).parent).config
    assert (config.model.dropout, config.training.label_smoothing) == (0.0, 0.0)
    assert command(*words(reproduced, "beta")).code == 0
    write = ["reproduce", "--output", reproduced / "out", "--document", page, "--beside"]
    assert command(*write, printed).code == 0
    assert "| our settings | as printed |" in (reproduced / "reproduction/beta.md").read_text()
    assert set(json.loads((reproduced / "results/beta.json").read_text())) == {"ours", "as_printed"}
    refused = command(*write, reproduced / "out")
    assert refused.code == 2
    assert "which has other settings" in refused.err


def test_other_seeds_stand_beside_the_first(
    reproduced: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evergraph.lab.report.document.write_figure", draw_nothing)
    page, first = tmp_path / "page.md", ["--output", tmp_path / "first"]
    other = ["--output", tmp_path / "other"]
    line = [*words(reproduced, "cm-vs-cd"), "--jobs", 1]
    assert command(*line, *first, "--merge", reproduced / "out").code == 0
    assert command(*line, *other, "--first-seed", 2).code == 0
    for place in (first, other):  # has no seeds and nothing to judge
        assert command(*words(reproduced, "datasets"), *place).code == 0
    write = ["reproduce", *first, "--document", page, "--again"]
    refused = command(*write, tmp_path / "other")
    assert "which has no outcome with our settings" in refused.err  # quick ones prove nothing
    for folder in ("first", "other"):
        path = tmp_path / folder / "cm-vs-cd/cm-vs-cd.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "quick": False}))
    assert command(*write, tmp_path / "other").code == 0
    text = page.read_text()
    section = (tmp_path / "reproduction/cm-vs-cd.md").read_text()
    assert "| our settings | other seeds |" in section
    assert set(json.loads((tmp_path / "results/cm-vs-cd.json").read_text())) == {"ours", "again"}
    assert set(json.loads((tmp_path / "results/datasets.json").read_text())) == {"ours"}
    refused = command(*write, tmp_path / "first")
    assert refused.code == 2
    assert "which has seed 0 of 'cm-vs-cd' as well" in refused.err
    assert page.read_text() == text


def test_times_of_different_machines_are_left_out(reproduced: Path, tmp_path: Path):
    request = Request(quick=True, dataset=[str(reproduced / "graph.npz")], seeds=2, sets=TINY)
    (part,) = plan(find_experiments("selector-time"), request)
    merge_runs(tmp_path, [reproduced / "out"], needed_runs([part]))
    cache = runs_by_hash(tmp_path)
    assert why_no_times(part, cache, request) is None
    assert all("selection" in row["values"] for row in measure(part, cache, request))
    there = cache[part.needs["mf", 0].key].path / "environment.json"
    there.write_text(json.dumps({**json.loads(there.read_text()), "device_name": "another"}))
    rows = measure(part, cache, request)
    assert "another with" in str(why_no_times(part, cache, request))
    assert not any("selection" in row["values"] for row in rows)


def test_times_of_runs_that_ran_together_can_be_left_out(reproduced: Path, command: Command):
    where = ["--output", reproduced / "out"]
    path = reproduced / "out/candidates/candidates.json"
    for option, shown in (("--no-times", False), ("--times", True)):
        assert command(*words(reproduced, "candidates"), *where, option).code == 0
        outcome = json.loads(path.read_text())
        assert any("inference" in row["values"] for row in outcome["rows"]) == shown
        assert bool(outcome["statements"][0]["seeds"]) == shown
        assert outcome["statements"][1]["seeds"] == [0, 1]
        assert any("are left out: --no-times" in note for note in outcome["notes"]) != shown


def test_merge_takes_runs_whatever_their_label(reproduced: Path, tmp_path: Path):
    request = Request(quick=True, dataset=[str(reproduced / "graph.npz")], seeds=1, sets=TINY)
    wanted = needed_runs(plan(find_experiments("cm-vs-cd"), request))
    source = runs_by_hash(reproduced / "out")
    foreign = tmp_path / "elsewhere" / "some" / "place"
    foreign.mkdir(parents=True)
    for number, config in enumerate(wanted):
        there = source[config.hash].path
        copy = foreign / str(number)
        copy.mkdir()
        for file in ("config.yaml", "results.json"):
            content = (there / file).read_text().replace(config.label, "renamed")
            (copy / file).write_text(content.replace(config.hash, "made-by-an-older-release"))
    here, elsewhere = tmp_path / "here", [tmp_path / "elsewhere"]
    assert merge_runs(here, elsewhere, wanted) == len(wanted) == 2
    cache = runs_by_hash(here)
    for config in wanted:
        results = json.loads((cache[config.hash].path / "results.json").read_text())
        assert (results["label"], results["config_hash"]) == (config.label, config.hash)
        written = yaml.safe_load((cache[config.hash].path / "config.yaml").read_text())
        assert RunConfig.model_validate(written) == config
    assert merge_runs(here, elsewhere, wanted) == 0


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["nothing"], "Unknown experiment 'nothing'"),
        ([], "Expected an experiment or '--document'"),
        (["beta", "--seeds", "0"], "'--seeds' of at least 1 (got 0)"),
        (["beta", "--jobs", "0"], "'--jobs' of at least 1 (got 0)"),
        (["beta", "--engine", "rai"], "Unknown engine 'rai': did you mean 'ray'?"),
        (["beta", "--address", "auto"], "'--address' only with a Ray cluster"),
        (["beta", "--gpus", "0.5"], "'--gpus' only with a Ray cluster"),
        (["beta", "--track", "tensorbord"], "did you mean 'tensorboard'?"),
        (["beta", "--set", "betta=1"], "did you mean 'beta'?"),
        (["beta", "--dataset", "corra"], "did you mean 'cora'?"),
        (["frontier", "--as-printed"], "'--as-printed' with an experiment of the paper"),
        (["datasets", "--as-printed"], "'--as-printed' with an experiment of the paper"),
        (["training-time", "--as-printed"], "not about time alone (got 'training-time')"),
        (["beta", "--beside", "other"], "'--document' with '--beside' (got 'other' alone)"),
        (["--document", "page.md", "--beside", "nowhere"], "'--beside' to be a folder of outcomes"),
        (["beta", "--again", "other"], "'--document' with '--again' (got 'other' alone)"),
        (["--document", "page.md", "--again", "nowhere"], "which has no outcome with our"),
        (["beta", "--published", "nowhere"], "'--published' to be a folder of published results"),
        (["beta", "--first-seed", "-1"], "'--first-seed' of at least 0 (got -1)"),
        (["beta", "--quick", "--merge", "nowhere"], "'--merge' to name a folder with finished"),
    ],
)
def test_reproduce_refuses_in_one_sentence(
    more: list[str], sentence: str, work: Path, command: Command
):
    answer = command("reproduce", *more, "--output", work / "out")
    assert answer.code == 2
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
    assert not (work / "out").exists()


def test_experiments_lists_all(command: Command):
    assert all(name in command("experiments").out for name in IDS)
    assert {entry["id"] for entry in json.loads(command("experiments", "--json").out)} >= set(IDS)
    parts = plan(find_experiments("all"), Request(quick=True))
    count = len({need.key for part in parts for need in part.needs.values()})
    assert count > len(needed_runs(parts))  # leaks are measured and are no runs
    told = command("reproduce", "all", "--quick", "--plan", "--output", "none").out
    assert re.search(rf"together +│ +{count} │ +{count} │", told)
