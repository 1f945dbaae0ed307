"""``evergraph tune`` through the real command: what it writes, and that a kill costs nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from evergraph.config import Variant
from evergraph.lab.runs import execute
from evergraph.lab.trials import SeedRow, TrialRow, read_rows, write_rows
from evergraph.lab.tuning import Search, search_rounds
from support import QUICK, Command

TIMEOUT = 120


def words(*extra: object, output: str = "out") -> list[str]:
    """A search of two methods on a generated graph, two trials each."""
    graph = ("--dataset", "synthetic:nodes=60,classes=4", "--device", "cpu")
    effort = ("--trials", 2, "--seeds", 1, "--finalists", 1, "--jobs", 1)
    every = ("tune", *graph, "--method", "lwf", *effort, *QUICK[:2], *QUICK[4:], *extra)
    return [*map(str, every), "--output", output]


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Reads finished runs, without times, by their folder."""
    found = {}
    for path in folder.glob("runs/**/results.json"):
        content = json.loads(path.read_text())
        found[str(path.parent.relative_to(folder))] = content | {"seconds": None}
    return found


def test_tune_writes_trials_best_and_runs_judged_on_validation_nodes(work: Path, command: Command):
    answer = command(*words("--method", "finetune"))
    assert answer.code == 0, answer.err
    rows = read_rows(work / "out" / "trials.csv", TrialRow)
    assert [(row.method, row.trial, row.seeds) for row in rows if row.seeds == 2] == [
        ("lwf", best(rows).trial, 2),
        ("finetune", 0, 2),
    ]
    assert [row.method for row in rows] == ["lwf", "lwf", "finetune"]
    assert rows[0].settings == "lam=1 temperature=2"  # the defaults
    assert rows[2].settings == ""
    runs = results(work / "out")
    assert len(runs) == 2 + 1 + 1 + 1
    assert {run["evaluated_on"] for run in runs.values()} == {"validation"}
    for config in (work / "out").glob("runs/**/config.yaml"):
        protocol = yaml.safe_load(config.read_text())["protocol"]
        assert (protocol["evaluate"], protocol["validation_fraction"]) == ("validation", 0.1)
    # The scores of the log are those of its runs.
    for row in rows:
        mine = [
            run
            for run in runs.values()
            if run["method"] == row.method
            and " ".join(run["label"].partition(":")[2].split(",")) == row.settings
        ]
        assert len(mine) == row.seeds
        assert row.pm == pytest.approx(sum(run["pm"] for run in mine) / len(mine), abs=0.005)
    chosen = yaml.safe_load((work / "out" / "best.yaml").read_text())
    assert chosen == {
        "synthetic:classes=4,nodes=60": {
            "lwf": {k: yaml.safe_load(v) for k, v in pairs(best(rows).settings)},
            "finetune": {},
        }
    }
    assert "validation nodes" in answer.out
    assert "lwf" in answer.out


def best(rows):
    """The LwF trial that had more seeds."""
    return max((row for row in rows if row.method == "lwf"), key=lambda row: row.seeds)


def pairs(text: str) -> list[list[str]]:
    return [pair.split("=") for pair in text.split()]


def test_tune_killed_in_the_middle_continues_to_the_same_log(work: Path, command: Command):
    longer = words("--set", "epochs=60", "--trials", 4, "--jobs", 2)
    process = subprocess.Popen(
        [sys.executable, "-m", "evergraph", *longer],
        cwd=work,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + TIMEOUT
    while not results(work / "out") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    files = [work / "out" / name / "results.json" for name in results(work / "out")]
    times = [file.stat().st_mtime_ns for file in files]
    assert 1 <= len(files) < 5
    assert not (work / "out" / "trials.csv").exists()

    assert command(*longer).code == 0
    assert [file.stat().st_mtime_ns for file in files] == times  # none is run again
    assert len(results(work / "out")) == 5

    # The reference: the same search in this process, without workers and without a kill.
    graph = Variant.parse_dataset("synthetic:nodes=60,classes=4")
    shared = {"epochs": 60, "channels": 4, "heads": 2}
    search = Search(graph, Variant.parse("lwf"), shared)
    for given in search_rounds([search], work / "whole", trials=4, seeds=1, finalists=1):
        for run in given:
            execute(run)
    assert results(work / "whole") == results(work / "out")
    assert (work / "out" / "trials.csv").read_bytes() == write_rows(search.rows(), TrialRow)


def test_tune_per_seed_writes_every_run_and_continues(work: Path, command: Command):
    graph = ("--dataset", "synthetic:nodes=60,classes=4", "--device", "cpu", "--jobs", 2)
    every = ("tune", "--per-seed", *graph, "--method", "lwf", "--method", "finetune")
    every = (*every, "--trials", 3, "--seeds", 2, *QUICK[:2], *QUICK[4:], "--output", "out")
    answer = command(*every, "--json")
    assert answer.code == 0, answer.err
    lwf, finetune = json.loads(answer.out)
    assert (lwf["trials"], finetune["trials"], lwf["seeds"]) == (3, 1, [0, 1])
    assert json.loads((work / "out" / "choices.json").read_text()) == [lwf, finetune]
    trials = read_rows(work / "out" / "trials.csv", TrialRow)
    assert [(row.method, row.trial, row.seeds) for row in trials] == [
        *(("lwf", trial, 2) for trial in range(3)),
        ("finetune", 0, 2),
    ]
    rows = read_rows(work / "out" / "seeds.csv", SeedRow)
    tried = [row for row in rows if row.nodes == "validation"]
    assert len(tried) == 4 * 2
    judged = [row for row in rows if row.nodes == "test" and row.method == "lwf"]
    for seed, chosen in enumerate(lwf["per_seed"]["chosen"]):
        mine = [row for row in tried if row.method == "lwf" and row.seed == seed]
        assert chosen == max(mine, key=lambda row: (row.pm, -row.trial)).trial
    for way in ("preset", "one", "per_seed"):
        pairs = set(zip(lwf[way]["chosen"], lwf["seeds"], strict=True))
        mine = [row.pm for row in judged if (row.trial, row.seed) in pairs]
        assert lwf[way]["pm"]["mean"] == pytest.approx(sum(mine) / 2, abs=0.01)
    found = results(work / "out")
    assert {run["evaluated_on"] for run in found.values()} == {"validation"}
    assert not any(run["diagnostics"] for run in found.values())  # trials are brief
    final = results(work / "out" / "test")
    assert {run["evaluated_on"] for run in final.values()} == {"test"}
    assert all(run["diagnostics"] for run in final.values())
    files = list((work / "out").glob("**/results.json"))
    times = [file.stat().st_mtime_ns for file in files]
    again = command(*every)
    assert "a choice per seed" in again.out
    assert again.err.count("finished before") == len(files)
    assert [file.stat().st_mtime_ns for file in files] == times


def test_tune_refuses_wrong_words_in_one_sentence(work: Path, command: Command):
    (work / "file").write_text("")
    for extra, mentions in (
        (("--trials", 0), ("'--trials'", "0")),
        (("--seeds", 0), ("'--seeds'", "0")),
        (("--jobs", 0), ("'--jobs'", "0")),
        (("--finalists", -1), ("'--finalists'", "-1")),
        (("--per-seed",), ("'--finalists'", "'--per-seed'", "1")),
        (("--set", "evaluate=test"), ("'evaluate'", "validation", "'test'")),
        (("--set", "lm=1"), ("'lm'", "did you mean 'lam'?")),
        (("--method", "lfw"), ("'lfw'", "did you mean 'lwf'?")),
        (("--output", "file"), ("'--output'", "'file'")),
        (("--method", "lwf"), ("'lwf", "twice", "@label")),
    ):
        answer = command(*words(), *extra)
        assert answer.code == 2, (extra, answer)
        assert len(answer.err.splitlines()) == 1, answer.err
        assert all(word in answer.err for word in mentions), answer.err
        assert not (work / "out").exists()


def test_log_keeps_rows_of_other_searches_in_the_same_folder(work: Path, command: Command):
    other = TrialRow("cora", "ewc", 0, 2, 50.0, 40.0, 90.0, "lam=1000")
    old = replace(other, dataset="synthetic:classes=4,nodes=60", method="lwf", settings="lam=7")
    (work / "out").mkdir()
    (work / "out" / "trials.csv").write_bytes(write_rows([other, old], TrialRow))
    effort = ("--trials", 1, "--finalists", 0)
    for _ in range(2):  # the second finds every run finished
        assert command(*words(*effort)).code == 0
        kept, new = read_rows(work / "out" / "trials.csv", TrialRow)
        assert kept == other
        assert (new.dataset, new.method, new.trial, new.seeds) == (old.dataset, "lwf", 0, 1)
        chosen = {
            "cora": {"ewc": {"lam": 1000}},
            old.dataset: {"lwf": {"lam": 1, "temperature": 2}},
        }
        assert yaml.safe_load((work / "out" / "best.yaml").read_text()) == chosen


def test_tune_refuses_a_folder_with_another_log(work: Path, command: Command):
    (work / "out").mkdir()
    (work / "out" / "trials.csv").write_text("a,b\n")
    answer = command(*words())
    assert answer.code == 2
    assert "trials.csv" in answer.err
    assert not (work / "out" / "runs").exists()
