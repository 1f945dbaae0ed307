"""Time streams from the command: they run, continue, and show what they tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evergraph.events import TaskDone
from evergraph.lab import runs
from evergraph.lab.folder import Run
from evergraph.stream.datasets import SyntheticConfig, generate, write_plain
from support import Command

SMALL = ("--set", "epochs=2", "--set", "channels=4", "--set", "heads=2")
WORDS = ("--dataset", "dated.npz", "--stream", "time", *SMALL)


@pytest.fixture
def dated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    graph = generate(SyntheticConfig(nodes=120, classes=4, steps=3, feature_dim=8, mean_degree=4))
    write_plain(graph, tmp_path / "dated.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_in_time_shows_steps_and_transfer(dated: Path, command: Command):
    answer = command("run", *WORDS, "--method", "finetune", "--output", "out")
    assert answer.code == 0
    results = json.loads((dated / "out" / "results.json").read_text())
    stream = results["stream"]
    assert stream["steps"] == ["0", "1", "2"]
    assert stream["before"][0] is None
    assert stream["fwt"] == pytest.approx(sum(stream["before"][1:]) / 2)
    assert stream["bwt"] == -results["fm"]
    assert stream["new"] == results["current"]
    assert stream["seen"] == stream["seen_by_step"][-1]
    assert len(results["tasks"]) == len(results["accuracy_matrix"]) == 3
    for title, key in (("all seen", "seen"), ("AAUC", "aauc"), ("FWT", "fwt"), ("BWT", "bwt")):
        line = next(line for line in answer.out.splitlines() if f" {title} " in line)
        assert f"{stream[key]:.2f}" in line
    assert "stream: time" in (dated / "out" / "config.yaml").read_text()
    again = command("run", "--config", "out/config.yaml", "--output", "again", "--json")
    assert json.loads(again.out)["stream"] == stream


def test_run_in_time_continues_after_a_kill(dated: Path, command: Command):
    command("run", *WORDS, "--method", "replay", "--output", "whole")
    config = Run(dated / "whole").config

    def stop(event):
        if isinstance(event, TaskDone) and event.task == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.execute(Run(dated / "cut", config), on_event=stop)
    assert command("resume", "cut").code == 0
    whole, cut = (
        json.loads((dated / name / "results.json").read_text()) for name in ("whole", "cut")
    )
    assert {k: v for k, v in cut.items() if k != "seconds"} == {
        k: v for k, v in whole.items() if k != "seconds"
    }


@pytest.mark.parametrize("damage", [[], {}, {"steps": ["0"]}, None])
def test_damaged_stream_in_results_is_one_sentence(dated: Path, command: Command, damage):
    words = ("--method", "analytic", "--output", "out")
    command("run", "--dataset", "dated.npz", "--stream", "time", *words)
    path = dated / "out" / "results.json"
    results = json.loads(path.read_text())
    stream = damage if not damage else results["stream"] | damage
    path.write_text(json.dumps(results | {"stream": stream}))
    answer = command("report", "out", "-o", "page.html")
    assert answer.code == 2
    assert "Expected the results of a run in" in answer.err


def test_compare_in_time_adds_a_table_and_reports(dated: Path, command: Command):
    methods = ("--method", "frozen", "--method", "analytic")
    answer = command("compare", *WORDS, *methods, "--seeds", 1, "--output", "grid")
    assert answer.code == 0
    assert "Along the stream" in answer.out
    summary = json.loads((dated / "grid" / "summary.json").read_text())
    assert {entry["label"] for entry in summary} == {"frozen", "analytic"}
    assert all(0 < entry["stream"]["aauc"]["mean"] <= 100 for entry in summary)
    assert command("report", "grid", "-o", "page.html").code == 0


def test_time_stream_of_a_static_graph_is_one_sentence(work: Path, command: Command):
    answer = command("run", "--dataset", "graph.npz", "--stream", "time", *SMALL)
    assert answer.code == 2
    assert "Expected 'time' in 'graph' for a time stream" in answer.err
    answer = command("run", "--dataset", "graph.npz", "--stream", "blurry", *SMALL)
    assert answer.code == 2
    assert "Expected 'stream' class, time, blurry:P with P in [0, 1)" in answer.err
    assert "(got 'blurry')" in answer.err


def test_time_stream_of_cora_says_that_it_has_no_times(work: Path, command: Command):
    answer = command("run", "--dataset", "cora", "--stream", "time", *SMALL)
    assert answer.code == 2
    assert "Expected 'time' in 'cora' for a time stream (got none)" in answer.err
    assert "choose --stream class" in answer.err
    answer = command("run", "--dataset", "cora", "--stream", "time", "--set", "pooled=true")
    assert "Expected 'pooled' false in a time stream" in answer.err


def test_classes_per_task_in_time_is_told_to_have_no_effect(dated: Path, command: Command):
    words = (*WORDS, "--method", "finetune", "--output", "out")
    answer = command("run", *words, "--classes-per-task", 2)
    assert answer.code == 0
    assert "warning: Setting 'classes_per_task' has no effect on finetune" in answer.err
    assert "warning" not in command("run", *WORDS, "--method", "finetune").err
    grid = (*WORDS, "--method", "finetune@mine", "--seeds", 1, "--output", "grid")
    answer = command("compare", *grid, "--classes-per-task", 2)
    assert answer.code == 0
    assert "warning: Setting 'classes_per_task' has no effect on mine" in answer.err


@pytest.mark.parametrize(
    ("kind", "steps"),
    [("blurry:0.3", "0 + 1"), ("task-free:60", "batch 1"), ("domain:2", "part 1")],
)
def test_run_where_classes_come_again_shows_tasks_and_transfer(
    dated: Path, command: Command, kind, steps
):
    words = ("--dataset", "dated.npz", "--stream", kind, *SMALL, "--method", "replay")
    answer = command("run", *words, "--output", "out")
    assert answer.code == 0
    results = json.loads((dated / "out" / "results.json").read_text())
    assert results["stream"]["steps"][0] == steps
    assert results["stream"]["bwt"] == -results["fm"]
    assert "AAUC" in answer.out
    assert steps in answer.out
    assert command("report", "out", "-o", "page.html").code == 0
    again = command("run", "--config", "out/config.yaml", "--output", "again", "--json")
    assert json.loads(again.out)["stream"] == results["stream"]


def test_class_stream_says_nothing_of_time(work: Path, command: Command):
    answer = command("run", "--dataset", "graph.npz", *SMALL, "--output", "out", "--json")
    assert "stream" not in json.loads(answer.out)
    shown = json.loads(command("run", "--dataset", "graph.npz", "--explain", "--json").out)
    assert shown["protocol"]["stream"] == {"value": "class", "origin": "default"}
