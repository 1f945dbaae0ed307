"""Grids: jobs and their folders, merging, and kills that cost at most the unfinished jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import golden
from evergraph.config import RunConfig, Variant, resolve
from evergraph.errors import InputError
from evergraph.events import Epoch, TaskDone, TaskStarted
from evergraph.lab import cli
from evergraph.lab.api import merge_runs, run_grid, runs_by_hash
from evergraph.lab.engines import ProgressText, Resources
from evergraph.lab.folder import Run, dataset_slug, finished_runs, make_runs, slug
from evergraph.lab.runs import execute
from evergraph.lab.summary import collect_results, summarise_grid
from evergraph.lab.trials import settings_text
from evergraph.methods import method_class
from support import Command

SHARED = {"epochs": 2, "link_epochs": 2, "channels": 4, "heads": 2}
TIMEOUT = 60


def make_config(method: str = "finetune", seed: int = 0, dataset: str = "graph.npz") -> RunConfig:
    return resolve(Variant.parse(dataset), Variant.parse(method), seed, SHARED)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def results_at(folder: Path) -> dict[str, int]:
    """Lists finished runs with the time they were written."""
    files = folder.glob("runs/*/*/*/results.json")
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


# --- jobs ----------------------------------------------------------------------------------


def test_make_jobs_names_folders_by_dataset_label_and_seed():
    methods = ("finetune", "replay:beta=0.2,selector=mf", "replay@mine")
    configs = [make_config(method, seed) for method in methods for seed in (0, 1)]
    configs.append(make_config("finetune", 0, "cora"))
    configs.append(make_config("finetune", 0, "synthetic:nodes=50,classes=2"))
    paths = [str(job.path) for job in make_runs(configs, Path("out"))]
    assert paths == [
        "out/runs/graph/finetune/seed-0",
        "out/runs/graph/finetune/seed-1",
        "out/runs/graph/replay-beta=0.2-selector=mf/seed-0",
        "out/runs/graph/replay-beta=0.2-selector=mf/seed-1",
        "out/runs/graph/mine/seed-0",
        "out/runs/graph/mine/seed-1",
        "out/runs/cora/finetune/seed-0",
        "out/runs/synthetic-classes=2-nodes=50/finetune/seed-0",
    ]


def test_make_jobs_refuses_labels_that_clash():
    for methods in (("finetune", "finetune"), ("replay@a", "dslr@a"), ("replay@a/b", "dslr@a b")):
        configs = [make_config(method) for method in methods]
        with pytest.raises(InputError, match="@label"):
            make_runs(configs, Path("out"))


def test_make_jobs_keeps_generated_graphs_apart():
    configs = [make_config(dataset=f"synthetic:seed={seed}") for seed in (0, 1)]
    assert len({job.path for job in make_runs(configs, Path("out"))}) == 2


@pytest.mark.parametrize(
    ("text", "name"),
    [("a b", "a-b"), ("../../etc", "etc"), ("β=1", "=1"), ("…", "unnamed"), ("x.y_z+1", "x.y_z+1")],
)
def test_slug_is_a_safe_folder_name(text: str, name: str):
    assert slug(text) == name
    assert dataset_slug(make_config(dataset="/data/my graph.npz")) == "my-graph"


def test_progress_text_rises_from_zero_to_one():
    describe = ProgressText()
    loss = torch.tensor(1.0)
    events = []
    for task in range(2):
        events.append(TaskStarted(task, 2, 10, 10, (0, 1), "full batch", "it fits"))
        events += [Epoch(task, "structure", epoch, 2, loss) for epoch in range(2)]
        events += [Epoch(task, "classify", epoch, 2, loss) for epoch in range(2)]
        events.append(TaskDone(task, [50.0] * (task + 1), [], [], {}, 0))
    parts, texts = zip(*(describe(event) for event in events), strict=True)
    assert list(parts) == sorted(parts)
    assert (parts[0], parts[-1]) == (0.0, 1.0)
    assert texts[0] == "task 1/2"
    assert "accuracy 50.0 %" in texts[-1]


# --- merging -------------------------------------------------------------------------------


def test_merge_runs_joins_two_folders(work: Path):
    first = make_runs([make_config(seed=seed) for seed in (0, 1)], work / "a")
    second = make_runs([make_config(seed=2), make_config("joint")], work / "b")
    for job in (*first, *second):
        execute(job)
    assert merge_runs(work / "all", [work / "a", work / "b"]) == 4
    assert set(results_at(work / "all")) == {
        "runs/graph/finetune/seed-0/results.json",
        "runs/graph/finetune/seed-1/results.json",
        "runs/graph/finetune/seed-2/results.json",
        "runs/graph/joint/seed-0/results.json",
    }
    for job in (*first, *second):
        copy = make_runs([job.config], work / "all")[0].path
        for path in job.path.rglob("*"):
            if path.is_file():
                assert (copy / path.relative_to(job.path)).read_bytes() == path.read_bytes()
    assert merge_runs(work / "all", [work / "a", work / "b"]) == 0  # nothing is new


def test_merge_runs_replaces_the_unfinished_and_refuses_others(work: Path):
    (there,) = make_runs([make_config()], work / "there")
    execute(there)
    (here,) = make_runs([make_config()], work / "here")
    execute(here)
    (here.path / "results.json").unlink()
    assert merge_runs(work / "here", [work / "there"]) == 1
    assert read(here.path / "results.json") == read(there.path / "results.json")

    (other,) = make_runs([make_config("finetune:lr=0.1@finetune")], work / "other")
    execute(other)
    before = results_at(work / "here")
    with pytest.raises(InputError, match="other settings"):
        merge_runs(work / "here", [work / "other"])
    assert results_at(work / "here") == before


def test_merge_runs_takes_single_run_folders(work: Path):
    execute(Run(work / "lone", make_config()))
    assert merge_runs(work / "all", [work / "lone"]) == 1
    assert set(results_at(work / "all")) == {"runs/graph/finetune/seed-0/results.json"}


def test_copies_that_were_cut_short_are_no_runs(work: Path):
    (job,) = make_runs([make_config()], work / "out")
    execute(job)
    cut = job.path.with_name(".seed-1.99.new")
    cut.mkdir()
    (cut / "results.json").write_bytes((job.path / "results.json").read_bytes())
    assert len(collect_results(work / "out")) == 1
    assert merge_runs(work / "all", [work / "out"]) == 1


def test_merge_alone_compares_what_is_there_and_runs_nothing(work: Path, command: Command):
    words = ("--dataset", "graph.npz", "--set", "epochs=2", "--seeds", 1)
    for label in ("ewc", "finetune"):
        assert command("compare", *words, "--method", label, "--output", label).code == 0
    merged = ("--merge", "finetune", "--merge", "ewc", "--output", "all")
    answer = command("compare", *merged)
    assert answer.code == 0
    assert "[1/" not in answer.err  # no job
    summary = json.loads((work / "all" / "summary.json").read_text())
    assert [(entry["label"], entry["seeds"]) for entry in summary] == [
        ("ewc", [0]),
        ("finetune", [0]),
    ]
    (pair,) = json.loads((work / "all" / "comparisons.json").read_text())
    assert (pair["reference"], pair["other"]) == ("ewc", "finetune")
    assert command("compare", *merged, *words, "--method", "mas").code == 0
    assert len(json.loads((work / "all" / "summary.json").read_text())) == 3


def test_merge_runs_refuses_folder_without_runs(work: Path):
    (work / "empty").mkdir()
    for name in ("empty", "nowhere"):
        with pytest.raises(InputError, match=f"'--merge' .* '.*{name}'"):
            merge_runs(work / "all", [work / name])


RECORDED = Path(__file__).parents[1] / "data" / "v0.1.0" / "grid"


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("something was run")


def test_runs_of_the_first_release_are_merged_and_not_run_again(
    work: Path, monkeypatch: pytest.MonkeyPatch
):
    configs = [run.config for run in finished_runs(RECORDED)]
    dataset = yaml.safe_load(next(RECORDED.glob("**/config.yaml")).read_text())["dataset_options"]
    words = ["compare", "--output", "out", "--merge", str(RECORDED), "--seeds", "1"]
    words += ["--dataset", f"synthetic:{settings_text(dataset, ',')}", "--device", "cpu"]
    for config in configs:
        former = {**method_class(config.method).Config.former, **golden.former(config.method)}
        settings = settings_text({**former, **config.overrides}, ",")
        words += ["--method", f"{config.method}:{settings}@{config.label}"]
    monkeypatch.setattr("evergraph.lab.engines.ProcessPoolExecutor", refuse)
    call(monkeypatch, words)
    summary = read(work / "out" / "summary.json")
    assert len(summary) == len(configs) > 10
    recorded = {results["label"]: results for results in collect_results(RECORDED)}
    for entry in summary:
        assert entry["pm"]["mean"] == recorded[entry["label"]]["pm"]
    # Read as this release reads them, they are found by their hash, here and there.
    cache = runs_by_hash(work / "out")
    assert {config.hash for config in configs} == set(cache)
    assert {results["config_hash"] for results in collect_results(work / "out")} == set(cache)


def test_compare_takes_the_papers_settings_to_the_letter(
    work: Path, monkeypatch: pytest.MonkeyPatch
):
    words = ["compare", "--as-printed", "--output", "out", "--seeds", "1", "--jobs", "1"]
    words += ["--dataset", "synthetic:nodes=60,classes=4", "--method", "replay", "--device", "cpu"]
    call(monkeypatch, [*words, "--set", "epochs=1", "--set", "channels=2"])
    (run,) = finished_runs(work / "out")
    config = run.config
    assert (config.model.dropout, config.settings["embedding"]) == (0.0, "logits")


def test_runs_of_the_first_release_serve_under_other_labels(work: Path):
    configs = [run.config for run in finished_runs(RECORDED)]
    wanted = [config.model_copy(update={"label": f"my {config.label}"}) for config in configs[:3]]
    assert merge_runs(work / "out", [RECORDED], wanted) == 3
    found = collect_results(work / "out")
    assert {results["label"] for results in found} == {config.label for config in wanted}
    assert merge_runs(work / "out", [RECORDED], wanted) == 0


def test_merge_runs_refuses_sources_that_disagree(work: Path):
    for folder, method in (("a", "finetune"), ("b", "finetune:lr=0.1@finetune")):
        execute(Run(work / folder, make_config(method)))
    with pytest.raises(InputError, match="'finetune' twice"):
        merge_runs(work / "all", [work / "a", work / "b"])
    assert not (work / "all").exists()


# --- running -------------------------------------------------------------------------------


def test_run_grid_of_finished_jobs_starts_nothing(work: Path, monkeypatch: pytest.MonkeyPatch):
    jobs = make_runs([make_config(seed=seed) for seed in (0, 1)], work / "out")
    for job in jobs:
        execute(job)

    monkeypatch.setattr("evergraph.lab.engines.ProcessPoolExecutor", refuse)
    told: list[tuple[Run, str | None]] = []

    def on_done(job: Run, results: dict[str, Any] | None, note: str | None) -> None:
        assert results == read(job.path / "results.json")
        told.append((job, note))

    assert run_grid(jobs, Resources(jobs=2, device="cpu"), refuse, on_done) == {}
    assert told == [(job, "finished before") for job in jobs]


def test_run_grid_reports_jobs_that_fail_and_runs_the_others(work: Path):
    good = make_config()
    bad = good.model_copy(update={"label": "bad", "training": None})
    jobs = make_runs([good, bad], work / "out")
    told: dict[str, tuple[bool, str | None]] = {}

    def on_done(job: Run, results: dict[str, Any] | None, note: str | None) -> None:
        told[job.config.label] = results is None, note

    assert run_grid(jobs, Resources(jobs=1, device="cpu"), on_done=on_done).keys() == {jobs[1].name}
    assert told["finetune"] == (False, None)
    assert told["bad"][0]


def compare(output: str, *extra: str, epochs: int = 30) -> list[str]:
    """Words of a grid of six jobs, each well under a second."""
    words = ["compare", "--dataset", "graph.npz", "--method", "finetune", "--method", "dslr"]
    for key, value in {**SHARED, "epochs": epochs, "buffer_size": 8}.items():
        words += ["--set", f"{key}={value}"]
    return [*words, "--seeds", "3", "--jobs", "2", "--device", "cpu", "--output", output, *extra]


def call(monkeypatch: pytest.MonkeyPatch, words: Sequence[str]) -> None:
    """Calls the command in this process; its workers are real."""
    monkeypatch.setattr(sys, "argv", ["evergraph", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0


@pytest.fixture
def start(work: Path) -> Iterator[Callable[[Sequence[str]], subprocess.Popen[bytes]]]:
    """Starts the real command in its own session; nothing of it outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(words: Sequence[str]) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "evergraph", *words],
                cwd=work,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        if running(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def running(session: int) -> list[str]:
    """Lists the processes of a session that run, from ``/proc``; zombies do not."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group, *_ = stat.read_text().rpartition(")")[2].split()
            words = (stat.parent / "cmdline").read_text().split("\0")
        except (OSError, ValueError):
            continue
        if int(group) == session and state != "Z":
            found.append(" ".join(words))
    return found


def folders_of(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("runs/*/*/*/config.yaml"))


def wait_for(condition: Callable[[], bool], seconds: float = TIMEOUT) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_grid_killed_in_the_middle_continues_to_the_same_summary(
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[Sequence[str]], subprocess.Popen[bytes]],
):
    process = start(compare("killed"))
    assert wait_for(lambda: bool(results_at(work / "killed")) or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert wait_for(lambda: not running(process.pid))
    finished = results_at(work / "killed")
    assert 1 <= len(finished) < 6
    assert not (work / "killed" / "summary.json").exists()

    call(monkeypatch, compare("killed"))
    after = results_at(work / "killed")
    assert len(after) == 6
    assert {name: after[name] for name in finished} == finished  # not run again

    # The reference: every job in this process, without workers and without a kill.
    for job in make_runs([Run(path).config for path in folders_of(work / "killed")], work):
        execute(job)
    whole = summarise_grid(collect_results(work / "runs"))
    summary = read(work / "killed" / "summary.json")
    assert [(entry["label"], entry["seeds"]) for entry in summary] == [
        ("dslr", [0, 1, 2]),
        ("finetune", [0, 1, 2]),
    ]
    drop = {"seconds": None}
    assert [{**entry, **drop} for entry in summary] == [{**entry, **drop} for entry in whole]
    for name in after:
        assert {**read(work / "killed" / name), **drop} == {**read(work / name), **drop}
    (comparison,) = read(work / "killed" / "comparisons.json")
    assert (comparison["reference"], comparison["other"]) == ("finetune", "dslr")
    assert (work / "killed" / "summary.md").exists()


def test_grid_leaves_no_workers_when_its_parent_is_killed(
    work: Path, start: Callable[[Sequence[str]], subprocess.Popen[bytes]]
):
    # One worker is at a job without end, the other has nothing left to do.
    words = ["compare", "--dataset", "graph.npz", "--method", "finetune:epochs=1@short"]
    words += ["--method", "finetune:epochs=10000000@endless", "--seeds", "1", "--jobs", "2"]
    process = start([*words, "--device", "cpu", "--output", "out"])
    assert wait_for(lambda: bool(results_at(work / "out")))
    endless = work / "out" / "runs" / "graph" / "endless" / "seed-0" / "environment.json"
    assert wait_for(endless.exists)
    time.sleep(0.3)
    assert len([line for line in running(process.pid) if "spawn_main" in line]) == 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not running(process.pid), seconds=8)
    assert running(process.pid) == []
