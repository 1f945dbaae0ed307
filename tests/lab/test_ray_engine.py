"""The Ray engine: the same grid as worker processes give, and nothing lost to kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from evergraph.config import Variant, resolve
from evergraph.errors import InputError
from evergraph.lab.api import run_grid
from evergraph.lab.engines import Resources
from evergraph.lab.folder import Run, make_runs
from support import Command

TIMEOUT = 90


def words(output: str, *extra: str, epochs: int = 20) -> list[str]:
    """A grid of six jobs on a tiny graph."""
    chosen = ["compare", "--dataset", "graph.npz", "--method", "finetune", "--method", "dslr"]
    tiny = {"epochs": epochs, "link_epochs": 2, "channels": 4, "heads": 2, "buffer_size": 8}
    for key, value in tiny.items():
        chosen += ["--set", f"{key}={value}"]
    how = ["--seeds", "3", "--jobs", "2", "--device", "cpu", "--output", output]
    return [*chosen, *how, *extra]


def summary(folder: Path) -> list[dict[str, Any]]:
    """Reads the summary without its times."""
    entries = json.loads((folder / "summary.json").read_text())
    return [{**entry, "seconds": None} for entry in entries]


def finished(folder: Path) -> dict[str, int]:
    """Lists finished jobs with the time they were written."""
    files = folder.glob("runs/*/*/*/results.json")
    return {str(path.parent.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def wait_for(condition: Callable[[], Any]) -> bool:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def start(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "evergraph", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def workers_at_work(driver: int) -> list[psutil.Process]:
    """Finds the cluster's processes that are at a job."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if "evergraph job" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def end(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(processes, timeout=10)


@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")
def test_ray_gives_the_same_summary_and_survives_kills(work: Path, command: Command):
    assert command(*words("local", epochs=250)).code == 0

    # A worker is killed at its job, then the driver with everything it started.
    driver = start(work, words("ray", "--engine", "ray", epochs=250))
    cluster: list[psutil.Process] = []
    try:
        assert wait_for(lambda: finished(work / "ray") and workers_at_work(driver.pid))
        victim = workers_at_work(driver.pid)[0]
        before = set(finished(work / "ray"))
        victim.kill()
        assert wait_for(lambda: set(finished(work / "ray")) - before)  # the grid goes on
        kept = finished(work / "ray")
        assert driver.poll() is None, "the grid ended before its driver could be killed"
    finally:
        cluster = psutil.Process(driver.pid).children(recursive=True)
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        end(cluster)
    assert 2 <= len(kept) < 6
    assert not (work / "ray" / "summary.json").exists()

    again = start(work, words("ray", "--engine", "ray", epochs=250))
    _, errors = again.communicate(timeout=TIMEOUT)
    assert again.returncode == 0, errors.decode()
    after = finished(work / "ray")
    assert len(after) == 6
    assert {name: after[name] for name in kept} == kept  # none was run again
    assert summary(work / "ray") == summary(work / "local")
    for name in after:
        one, other = (
            json.loads((work / folder / name / "results.json").read_text())
            for folder in ("local", "ray")
        )
        assert {**one, "seconds": None} == {**other, "seconds": None}


def test_ray_missing_is_one_sentence(work: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    answer = command(*words("out", "--engine", "ray"))
    assert answer.code == 2
    assert "pip install 'evergraph[ray]'" in answer.err
    assert not (work / "out").exists()


class FakeRay:
    """Stands for a cluster that loses the workers of some jobs; tasks run when they are asked."""

    class exceptions:
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            def __init__(self, cause: Exception) -> None:
                self.cause = cause

    def __init__(self, lost: str = "") -> None:
        self.lost = lost
        self.open = False

    def init(self, address: str | None, **options: Any) -> None:
        if address is not None:
            raise ConnectionError
        self.open = True

    def shutdown(self) -> None:
        self.open = False

    def remote(self, **options: Any) -> Any:
        assert options["max_retries"] == 3
        return lambda function: types.SimpleNamespace(
            options=lambda name: types.SimpleNamespace(remote=partial(self.start, function))
        )

    def start(self, function: Callable[..., Any], job: Run, *rest: Any) -> Any:
        future: Future[Any] = Future()
        try:
            if job.config.label == self.lost:
                raise self.exceptions.RayError
            future.set_result(function(job, *rest))
        except self.exceptions.RayError as error:
            future.set_exception(error)
        except Exception as error:
            future.set_exception(self.exceptions.RayTaskError(error))
        return types.SimpleNamespace(future=lambda: future)


def grid(monkeypatch: pytest.MonkeyPatch, ray: FakeRay, *labels: str) -> Any:
    """Runs variants of fine-tuning there; returns what failed and what was told of each."""
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)  # it is this process
    tiny = {"epochs": 1, "channels": 4, "heads": 2}
    graph = Variant.parse("synthetic:nodes=60,classes=4")
    variants = [Variant(name="finetune", label=label) for label in labels]
    configs = [resolve(graph, variant, 0, tiny) for variant in variants]
    told: dict[str, str | None] = {}

    def on_done(job: Run, results: dict[str, Any] | None, note: str | None) -> None:
        told[job.config.label] = note
        assert (results is None) == (note is not None)

    resources = Resources(engine="ray", device="cpu", jobs=1)
    failed = run_grid(make_runs(configs, Path("out")), resources, on_done=on_done)
    assert not ray.open
    return failed, told


def raising(error: Exception) -> Callable[..., None]:
    def execute(*_: Any, **__: Any) -> None:
        raise error

    return execute


def test_ray_reports_lost_workers_and_failures(work: Path, monkeypatch: pytest.MonkeyPatch):
    failed, told = grid(monkeypatch, FakeRay(lost="b"), "a", "b")
    assert [name.split(" · ")[1] for name in failed] == ["b"]
    assert told == {"a": None, "b": "its worker was lost 4 times, perhaps for memory"}

    monkeypatch.setattr("evergraph.lab.engines.execute", raising(ZeroDivisionError("no")))
    assert grid(monkeypatch, FakeRay(), "c")[1] == {"c": "ZeroDivisionError: no"}


def test_ray_passes_wrong_input_on(work: Path, monkeypatch: pytest.MonkeyPatch):
    ray = FakeRay()
    monkeypatch.setattr("evergraph.lab.engines.execute", raising(InputError("Expected …")))
    with pytest.raises(InputError, match="Expected …"):
        grid(monkeypatch, ray, "a")
    assert not ray.open


def test_ray_address_without_a_cluster_is_one_sentence(
    work: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    answer = command(*words("out", "--engine", "ray", "--address", "10.0.0.1:1"))
    assert answer.code == 2
    assert "'10.0.0.1:1'" in answer.err
    assert "ray start --head" in answer.err
