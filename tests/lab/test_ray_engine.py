"""The Ray engine: the same grid as worker processes give, and nothing lost to kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from evergraph.errors import InputError
from evergraph.lab.engines import ray_cluster
from support import Command

pytest.importorskip("ray")
TIMEOUT = 90


def words(output: str, *extra: str, epochs: int = 20) -> list[str]:
    """A grid of six cells on a tiny graph."""
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
    """Lists finished cells with the time they were written."""
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
    """Finds the cluster's processes that are at a cell."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if "evergraph cell" in " ".join(process.cmdline()):
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


def test_ray_gives_the_same_summary_and_survives_kills(work: Path, command: Command):
    assert command(*words("local", epochs=250)).code == 0

    # A worker is killed at its cell, then the driver with everything it started.
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


def test_run_remotely_answers_in_words(work: Path):
    from evergraph.config import Variant, resolve

    config = resolve(Variant.parse("graph.npz"), Variant.parse("finetune"), 0, {"epochs": 1})
    how = json.dumps(["cpu", None, None, 1, str(work)])
    answer = json.loads(ray_cluster.run_remotely(config.to_yaml(), str(work / "a"), how))
    assert answer["results"] == json.loads((work / "a" / "results.json").read_text())
    gone = config.model_copy(update={"dataset": "nowhere.npz"}).to_yaml()
    answer = json.loads(ray_cluster.run_remotely(gone, str(work / "b"), how))
    assert answer["wrong_input"] is True

    class Lost:
        class exceptions:
            RayError = OSError

        @staticmethod
        def get(reference: object) -> str:
            if reference == "lost":
                raise OSError
            return json.dumps(answer)

    assert ray_cluster._answer(Lost, "lost")[1] == "its worker was lost 4 times, perhaps for memory"
    with pytest.raises(InputError, match=r"nowhere\.npz"):
        ray_cluster._answer(Lost, "wrong")
