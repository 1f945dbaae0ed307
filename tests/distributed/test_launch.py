"""Commands on several workers: what they give, what is lost with a worker, and who remains."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_parts import arrays

from evergraph import ContinualNodeClassifier
from evergraph.errors import InputError
from evergraph.lab import api
from support import Command

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
#: A run that takes longer than tests wait before they kill, most of it gradient descent.
LONG = ("--dataset", "synthetic:nodes=2000,classes=4", "--method", "finetune")
LONG += ("--batch-size", "64", "--set", "epochs=15", "--set", "channels=4", "--set", "heads=1")


@pytest.fixture
def folder(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a graph in two parts and in one; nobody may be at work on it in the end."""
    monkeypatch.chdir(tmp_path)
    Path("graph").mkdir()
    for name in ("x", "edges", "y"):
        np.save(Path("graph", f"{name}.npy"), arrays()[name])
    for parts in ("1", "2"):
        words = ("--parts", parts, "--order", "arrival", "-o", f"parts-{parts}")
        assert command("partition", "graph", *words).code == 0
    yield tmp_path
    assert soon(lambda: not workers(tmp_path)), "a process was left behind"


def evergraph(*words: str, host: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Starts a command, by ``torchrun`` on a host if there is one."""
    launcher = ("-m", "torch.distributed.run", *host) if host else ()
    line = [sys.executable, *launcher, "-m", "evergraph", *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, env=ENVIRONMENT, **pipes)


def done(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def workers(folder: Path) -> list[int]:
    """Finds processes that work in a folder, the test itself not counted."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                words = (entry / "cmdline").read_bytes()
                if int(entry.name) != os.getpid() and words:
                    found.append(int(entry.name))
        except OSError:
            continue
    return sorted(found)


def soon(holds: Callable[[], Any], seconds: float = 20) -> Any:
    """Waits until something holds; returns it, or what it was at last."""
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def predictions(out: str) -> dict[str, tuple[str, float]]:
    table = pytest.importorskip("pyarrow.parquet").read_table(out).to_pydict()
    return {
        name: (label, round(p, 4))
        for name, label, p in zip(table["id"], table["label"], table["probability"], strict=True)
    }


def test_two_workers_give_what_one_gives(folder: Path, command: Command):
    assert command("learn", "parts-1").code == 0
    assert command("predict", "parts-1", "-o", "out-1").code == 0
    code, out, err = done(evergraph("learn", "parts-2", "--workers", "2", "--json"))
    assert code == 0, err
    assert json.loads(out)["nodes"] == 120  # one answer, not one of each
    code, _, err = done(evergraph("predict", "parts-2", "--workers", "2", "-o", "out-2"))
    assert code == 0, err
    assert predictions("out-2") == predictions("out-1")


def write_tables(first: int, last: int) -> tuple[str, ...]:
    """Writes some nodes of the graph, and their edges to these and earlier ones, as tables."""
    made, stem = arrays(), f"{first}-{last}"
    lines = ["id,label,a,b,c,d,e"]
    for node in range(first, last):
        label = "" if made["y"][node] < 0 else f"class {made['y'][node]}"
        lines.append(f"n{node},{label}," + ",".join(map(str, made["x"][node])))
    Path(f"nodes-{stem}.csv").write_text("\n".join(lines), "utf-8")
    new = [p for p in made["edges"].tolist() if first <= max(p) < last and p[0] != p[1]]
    rows = [f"n{one},n{other}" for one, other in new]
    Path(f"edges-{stem}.csv").write_text("\n".join(["source,target", *rows]), "utf-8")
    return ("--nodes", f"nodes-{stem}.csv", "--edges", f"edges-{stem}.csv")


def test_state_is_learned_and_predicted_by_two_workers(folder: Path, command: Command):
    first, second = write_tables(0, 60), write_tables(60, 120)
    together = ("--workers", "2", "--device", "cpu")
    for words in (("--method", "analytic", *first), second):
        assert command("learn", "alone", *words).code == 0
        code, out, err = done(evergraph("learn", "state", *words, *together, "--json"))
        assert code == 0, err
        assert json.loads(out)["num_nodes"] in {60, 120}  # one answer, not one of each
    assert command("predict", "alone", "-o", "alone.parquet").code == 0
    code, _, err = done(evergraph("predict", "state", *together, "-o", "both.parquet"))
    assert code == 0, err
    assert predictions("both.parquet") == predictions("alone.parquet")
    before = Path("state/state.sqlite").read_bytes()
    code, _, err = done(evergraph("learn", "state", *second, *together))
    assert (code, err.count("\n")) == (2, 1)
    assert "Expected 'ids' of new nodes (got 'n60' in row 1, which is known)" in err
    assert Path("state/state.sqlite").read_bytes() == before


def test_python_has_workers_too(folder: Path):
    small = "synthetic:nodes=60,classes=4,feature_dim=8"
    alone, both = (api.run(small, "analytic", workers=count) for count in (1, 2))
    assert both["accuracy_matrix"] == alone["accuracy_matrix"]
    made = arrays()
    labels = {node: int(y) for node, y in enumerate(made["y"]) if y >= 0}
    found = []
    for count in (1, 2):
        clf = ContinualNodeClassifier("analytic", device="cpu", workers=count)
        clf.learn(range(60), made["x"][:60], [], {k: v for k, v in labels.items() if k < 60})
        clf.save(f"saved-{count}").learn(range(60, 120), made["x"][60:], made["edges"], labels)
        found.append(clf.save(f"saved-{count}").predict_proba())
    assert np.abs(found[0] - found[1]).max() < 1e-5
    again = ContinualNodeClassifier.load("saved-2", device="cpu").predict_proba()
    assert np.abs(again - found[1]).max() < 1e-6
    with pytest.raises(InputError, match="'workers' as a number, or a mapping with address"):
        api.run(small, "analytic", workers={"workers": 2, "motor": "ray"})
    with pytest.raises(InputError, match="no 'on_event', with several workers"):
        api.run(small, "analytic", workers=2, on_event=print)


def test_change_of_a_state_survives_its_workers(folder: Path):
    few = ("--set", "epochs=400", "--set", "batch_size=16", "--set", "channels=4")
    words = ("learn", "state", "--method", "replay", *few, *write_tables(0, 120))
    learning = evergraph(*words, "--workers", "2", "--device", "cpu", "--json")
    assert soon(lambda: len(workers(folder)) > 2, 60)
    time.sleep(4)
    os.kill(workers(folder)[-1], signal.SIGKILL)
    code, out, err = done(learning)
    assert (code, err.count("A worker was lost")) == (0, 1), err
    assert json.loads(out)["num_nodes"] == 120
    assert not Path("state/descent.safetensors").exists()


def test_two_terminals_are_two_hosts(folder: Path, command: Command):
    """Each has only its own part, as if the other's disk were elsewhere."""
    command("learn", "parts-1")
    command("predict", "parts-1", "-o", "out-1")
    for host in (0, 1):
        there = Path(f"host-{host}")
        subprocess.run(["cp", "-r", "parts-2", there], check=True)
        subprocess.run(["rm", "-r", there / f"part-{1 - host:04d}"], check=True)

    def on_both(*words: str) -> list[tuple[int, str, str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        where = ("--nnodes", "2", "--nproc-per-node", "1")
        where += ("--master-addr", "127.0.0.1", "--master-port", port)
        agents = [
            evergraph(
                *words[:1], f"host-{host}", *words[1:], host=(*where, "--node-rank", str(host))
            )
            for host in (0, 1)
        ]
        return [done(agent) for agent in agents]

    answers = on_both("learn", "--json")
    assert [code for code, _, _ in answers] == [0, 0], answers[0][2]
    assert json.loads(answers[0][1])["nodes"] == 120
    assert answers[1][1] == ""  # the first host speaks for both
    assert [code for code, _, _ in on_both("predict", "-o", "out-2")] == [0, 0]
    assert predictions("out-2") == predictions("out-1")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("learn", "parts-2", "--workers", "3"), "set --workers 2 or cut the graph again"),
        (("learn", "parts-2", "--workers", "0"), "'--workers' of at least 1 (got 0)"),
        (("learn", "parts-1", "--engine", "rai"), "did you mean 'ray'"),
        (("learn", "parts-1", "--address", "a:1"), "'--address' only with a Ray cluster"),
        (("run", "--method", "gem", "--workers", "2"), "Expected one worker for GEM"),
        (
            ("learn", "new", "--method", "lwf", "--nodes", "n.csv", "--workers", "2"),
            "Expected one worker for LwF",
        ),
        (("run", "--method", "replay", "--workers", "2"), "'batch_size' that 2 workers can share"),
    ],
)
def test_refused_commands_say_one_sentence(folder: Path, words: tuple[str, ...], sentence: str):
    Path("n.csv").write_text("id,label,x\na,k,1\nb,l,2\n", "utf-8")
    code, out, err = done(evergraph(*words))
    assert (code, out, Path("new").exists()) == (2, "", False)
    assert sentence in err
    assert err.count("\n") == 1


def test_lost_worker_is_started_again_to_the_same_bits(folder: Path):
    results = []
    for name, kills in (("whole", 0), ("killed", 2)):
        run = evergraph("run", *LONG, "--workers", "2", "--output", name)
        for _ in range(kills):
            assert soon(lambda: len(workers(folder)) > 2, 60)
            time.sleep(3)
            os.kill(workers(folder)[-1], signal.SIGKILL)
            time.sleep(1)
        code, _, err = done(run, 240)
        assert code == 0, err
        assert err.count("A worker was lost") == kills
        found = json.loads(Path(name, "results.json").read_text("utf-8"))
        results.append((found["accuracy_matrix"], found["probability"]["log_loss"]))
        assert not Path(name, "descent.safetensors").exists()
    assert results[0] == results[1]


def test_workers_end_with_whoever_started_them(folder: Path):
    run = evergraph("run", *LONG, "--workers", "2", "--output", "run")
    assert soon(lambda: len(workers(folder)) > 2, 60)
    time.sleep(2)
    run.kill()
    run.communicate()
    assert soon(lambda: not workers(folder))


def test_two_workers_on_ray_one_of_them_killed(folder: Path, command: Command):
    pytest.importorskip("ray")
    command("learn", "parts-1")
    command("predict", "parts-1", "-o", "out-1")
    learning = evergraph("learn", "parts-2", "--workers", "2", "--engine", "ray", "--json")
    assert soon(ray_workers, 60)
    os.kill(ray_workers()[-1], signal.SIGKILL)
    code, out, err = done(learning)
    assert code == 0, err
    assert json.loads(out)["nodes"] == 120
    code, _, err = done(evergraph("predict", "parts-2", "--workers", "2", "-o", "out-2"))
    assert code == 0, err
    assert predictions("out-2") == predictions("out-1")
    assert soon(lambda: not ray_workers())


def ray_workers() -> list[int]:
    """Finds Ray's workers that are at work for us."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"ray::_Worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_address_without_a_cluster_gets_a_sentence_at_once(folder: Path):
    pytest.importorskip("ray")
    words = ("learn", "parts-2", "--workers", "2", "--engine", "ray", "--address", "127.0.0.1:9")
    code, _, err = done(evergraph(*words))
    assert code == 2
    assert "Expected '--address' to name a running Ray cluster (got '127.0.0.1:9')" in err
