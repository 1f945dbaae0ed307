"""The estimator through the command: learn, predict, inspect, resume, and signals."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batches import contents
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.store import Store
from support import Command

pytest.importorskip("pyarrow")

NODES = "id,f,g,label\n" + "".join(
    f"n{at},{at % 2},1,{('u', 'v')[at % 2] if at < 6 else ''}\n" for at in range(8)
)
EDGES = "source,target\n" + "".join(f"n{at},n{at + 1}\n" for at in range(7))
SETS = ("--set", "epochs=2", "--set", "channels=2", "--set", "heads=1")
OPTIONS = ("--method", "replay", "--buffer-size", "4", *SETS, "--device", "cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    return tmp_path


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_learn_says_which_settings_change_nothing(folder: Path, command: Command):
    words = ("learn", "state", "--nodes", "nodes.csv", "--edges", "edges.csv", *OPTIONS)
    answer = command(*words, "--method", "analytic")
    assert answer.code == 0
    expected = "Settings 'buffer_size', 'channels', 'epochs' and 'heads' have no effect"
    assert expected in answer.err


def test_learn_warns_once_of_words_for_missing_labels(folder: Path, command: Command):
    (folder / "nodes.csv").write_text(f"{NODES}n8,1,1,NA\n")
    with pytest.warns(UserWarning, match="'NA' count as unlabelled") as warned:
        assert command("learn", "state", "--nodes", "nodes.csv", *OPTIONS).code == 0
    assert len([one for one in warned if "NA" in str(one.message)]) == 1


def test_learn_predict_inspect_from_files(folder: Path, command: Command):
    answer = command("learn", "state", "--nodes", "nodes.csv", "--edges", "edges.csv", *OPTIONS)
    assert answer.code == 0
    assert "8 nodes, 7 edges, 2 classes (new: u, v)" in answer.out
    (folder / "labels.csv").write_text("id,label\nn6,u\nn7,w\n")
    (folder / "changed.csv").write_text("g,id,f\n3,n0,5\n")  # another order of columns
    (folder / "gone.txt").write_text("n3\n")
    (folder / "cut.csv").write_text("source,target\nn1,n0\n")
    words = ("--labels", "labels.csv", "--update", "changed.csv", "--remove-nodes", "gone.txt")
    with pytest.warns(UserWarning, match="refit"):  # n3 was learned
        answer = command("learn", "state", *words, "--remove-edges", "cut.csv", "--json")
    assert answer.code == 0
    entry = json.loads(answer.out)
    assert (entry["num_nodes"], entry["num_edges"], entry["new_classes"]) == (7, 4, ["w"])
    clf = ContinualNodeClassifier.load("state")
    first, *others = clf._now().graph.features.tolist()  # scaled, each column by itself
    assert all(first[0] > row[0] and first[1] > row[1] for row in others)

    answer = command("predict", "state", "-o", "all.csv")
    assert (answer.code, answer.out, answer.err) == (0, "", "7 nodes · all.csv\n")
    found = rows(folder / "all.csv")
    assert [row["id"] for row in found] == clf.ids_
    assert [row["label"] for row in found] == clf.predict().tolist()
    best = clf.predict_proba().max(axis=1)
    assert [float(row["probability"]) for row in found] == pytest.approx(best.tolist())
    answer = command("predict", "state", "-o", "-")
    assert answer.out == (folder / "all.csv").read_text()  # and nothing else
    (folder / "ids.txt").write_text("n7\nn0\n")
    assert command("predict", "state", "--ids", "ids.txt", "-o", "two.parquet").code == 0
    from pyarrow import parquet

    assert parquet.read_table("two.parquet")["id"].to_pylist() == ["n7", "n0"]

    about = json.loads(command("inspect", "state", "--json").out)
    assert about["version"] == 2
    assert [entry["name"] for entry in about["classes"]] == ["u", "v", "w"]
    assert len(about["history"]) == 2
    text = command("inspect", "state").out
    for word in ("in buffer", "held-out", "replay", "version 2", "warning: Class 'w'"):
        assert word in text
    assert json.loads(command("inspect", "state", "--version", 1, "--json").out)["nodes"] == 8


def test_states_of_the_library_with_numbers_as_names_work_with_files(
    folder: Path, command: Command
):
    settings = {"epochs": 1, "channels": 2, "heads": 1}
    clf = ContinualNodeClassifier("finetune", settings=settings, device="cpu")
    clf.learn([1, 2, 3], [[1.0], [2.0], [3.0]], labels=[10, 20, 10]).save("state")
    (folder / "labels.csv").write_text("id,label\n3,20\n")
    assert command("learn", "state", "--labels", "labels.csv").code == 0
    assert ContinualNodeClassifier.load("state").classes_.tolist() == [10, 20]
    for odd in ("three", "--3", "²", "1_0", "٣", "9" * 30, "+3"):  # what int() reads, or not
        (folder / "ids.txt").write_text(f"3\n{odd}\n")
        answer = command("predict", "state", "--ids", "ids.txt", "-o", "out.csv")
        assert answer.code == 2
        assert f"'{odd}' in row 2" in answer.err


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no file": (("learn", "state"), "--nodes"),
    "no state": (("predict", "none", "-o", "p.csv"), "'none'"),
    "not a state": (("inspect", "."), "hold the state"),
    "unknown end": (("learn", "state", "--edges", "bad.csv"), "'zz' in row 2"),
    "wrong number": (("learn", "state", "--nodes", "word.csv"), "'x' in row 1"),
    "column missing": (("learn", "state", "--edges", "nodes.csv"), "'source'"),
    "other features": (("learn", "state", "--nodes", "other.csv"), "'h'"),
    "other method": (("learn", "state", "--edges", "edges.csv", "--method", "gem"), "method"),
    "too many classes": (("learn", "state", "--labels", "many.csv"), "at least 5"),
    "output below a file": (("predict", "state", "-o", "nodes.csv/p.csv"), "p.csv"),
    "output": (("predict", "state", "-o", "p.txt"), "'p.txt'"),
    "setting": (("learn", "new", "--nodes", "nodes.csv", "--set", "epoch=1"), "'epochs'"),
    "a known node": (("learn", "state", "--nodes", "nodes.csv"), "use update"),
    "semicolons": (("learn", "state", "--nodes", "semi.csv"), "separated by commas (got semicolon"),
    "tabs": (("learn", "state", "--nodes", "tabs.csv"), "separated by commas (got tabs)"),
    "UTF-16": (("learn", "state", "--nodes", "wide.csv"), "got UTF-16"),
    "a decimal comma": (("learn", "state", "--nodes", "comma.csv"), "'1,5' in row 1"),
    "a gap in the features": (("learn", "state", "--nodes", "gap.csv"), "got none in row 1"),
    "a node twice": (("learn", "state", "--nodes", "twice.csv"), "'a' again in row 2"),
    "a folder as a table": (("learn", "state", "--nodes", "state"), "'state'"),
    "columns in capitals": (("learn", "state", "--nodes", "caps.csv"), "a column 'id' in"),
    "a row cut short": (("learn", "state", "--nodes", "short.csv"), "Expected 3 columns, got 2"),
    "bytes that are no text": (("learn", "state", "--nodes", "latin.csv"), "invalid UTF8"),
    "a column twice": (("learn", "state", "--nodes", "double.csv"), "'id' twice"),
    "no name of a node": (("learn", "state", "--nodes", "nameless.csv"), "got none in row 1"),
    "no number": (("learn", "state", "--nodes", "nan.csv"), "a finite number in column 'f'"),
    "known and new nodes": (
        ("predict", "state", "-o", "-", "--ids", "ids.txt", "--nodes", "twice.csv"),
        "got a mixture",
    ),
    "more than all refused": (("predict", "state", "-o", "-", "--reject", "2"), "between 0 and 1"),
    "novel nodes as text": (("inspect", "state", "--novel", "n.txt"), "a .csv or .parquet file"),
    "an unknown node": (("explain", "state", "zz"), "'zz' in row 1"),
    "a version not there": (("inspect", "state", "--version", "99"), "99"),
    "a table as a state": (("inspect", "nodes.csv"), "'nodes.csv'"),
    "figures of a state": (("report", "state", "--figures", "f"), "'--figures' with runs"),
    "runs into a state": (("compare", "--output", "state"), "an estimator's state"),
    "a run into a state": (("run", "--output", "state"), "an estimator's state"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_exits_2_with_a_sentence_and_changes_nothing(
    folder: Path, command: Command, case: str
):
    command("learn", "state", "--nodes", "nodes.csv", "--edges", "edges.csv", *OPTIONS)
    (folder / "bad.csv").write_text("source,target\nn0,n4\nn0,zz\n")
    (folder / "word.csv").write_text("id,f,g\na,x,1\n")
    (folder / "other.csv").write_text("id,f,h\na,1,1\n")
    (folder / "many.csv").write_text("id,label\nn0,a\nn1,b\nn2,c\n")
    (folder / "caps.csv").write_text("ID,F,G\na,1,1\n")
    (folder / "short.csv").write_text("id,f,g\na,1\n")
    (folder / "latin.csv").write_bytes(b"id,f,g\n\xe9,1,1\n")
    (folder / "double.csv").write_text("id,id,f,g\na,a,1,1\n")
    (folder / "nameless.csv").write_text("id,f,g\n,1,1\n")
    (folder / "nan.csv").write_text("id,f,g\na,nan,1\n")
    (folder / "ids.txt").write_text("n0\n")
    (folder / "semi.csv").write_text("id;f;g\na;1;1\n")
    (folder / "tabs.csv").write_text("id\tf\tg\na\t1\t1\n")
    (folder / "wide.csv").write_text("id,f,g\na,1,1\n", encoding="utf-16")
    (folder / "comma.csv").write_text('id,f,g\na,"1,5",1\n')
    (folder / "gap.csv").write_text("id,f,g\na,1,\n")
    (folder / "twice.csv").write_text("id,f,g\na,1,1\na,2,1\n")
    before, there = contents(folder / "state"), sorted(path.name for path in folder.iterdir())
    words, mention = REFUSED[case]
    answer = command(*words)
    assert answer.code == 2, answer
    assert answer.err.count("\n") == 1
    assert mention in answer.err
    assert contents(folder / "state") == before
    assert sorted(path.name for path in folder.iterdir()) == there


def test_report_makes_a_page_of_a_state_and_leaves_it_as_it_was(folder: Path, command: Command):
    command("learn", "state", "--nodes", "nodes.csv", "--edges", "edges.csv", *OPTIONS)
    before = contents(folder / "state")
    answer = command("report", "state", "-o", "page.html")
    assert answer.code == 0, answer
    assert "version 1 · page.html" in answer.out
    assert contents(folder / "state") == before
    page = (folder / "page.html").read_text()
    assert "<h1>state</h1>" in page
    assert command("report", "state").code == 0  # into the folder, where it is in nobody's way
    assert command("learn", "state", "--edges", "edges.csv").code == 0
    (folder / "bare.csv").write_text("id,f\na,1\n")
    assert command("learn", "bare", "--nodes", "bare.csv").code == 0
    assert command("report", "bare").code == 0  # without any label


def test_second_writer_exits_2_and_names_the_first(folder: Path, command: Command):
    command("learn", "state", "--nodes", "nodes.csv", "--edges", "edges.csv", *OPTIONS)
    with Store(folder / "state").writing():
        answer = command("learn", "state", "--edges", "edges.csv")
        assert answer.code == 2
        assert f"process {os.getpid()}" in answer.err
        assert command("predict", "state", "-o", "all.csv").code == 0


def test_resume_says_when_there_is_nothing_to_do(folder: Path, command: Command):
    command("learn", "state", "--nodes", "nodes.csv", *OPTIONS)
    answer = command("resume", "state")
    assert answer.code == 0
    assert "Nothing was unfinished" in answer.err


def test_names_cannot_write_to_the_terminal(folder: Path, command: Command):
    (folder / "nodes.csv").write_text(NODES.replace(",u\n", ",\x1b[31mu\n"))
    words = ("learn", "state", "--nodes", "nodes.csv", *OPTIONS)
    told = [command(*words), command("inspect", "state")]
    assert all(answer.code == 0 for answer in told)
    assert not any("\x1b[31m" in answer.out + answer.err for answer in told)
    assert "\\x1b[31mu" in told[0].out


def test_header_alone_and_upper_case_suffix_are_accepted(folder: Path, command: Command):
    (folder / "nodes.csv").rename(folder / "NODES.CSV")
    (folder / "edges.csv").write_text("source,target\n")
    words = ("--nodes", "NODES.CSV", "--edges", "edges.csv")
    assert "8 nodes, 0 edges" in command("learn", "state", *words, *OPTIONS).out
    (folder / "more.csv").write_text("id,f,g,label\n")
    assert "8 nodes, 0 edges" in command("learn", "state", "--nodes", "more.csv").out


def test_convert_brings_an_old_state_up(folder: Path, command: Command):
    old = Path(__file__).parents[2] / "data" / "v0.1.0" / "states" / "dslr-pending"
    answer = command("convert", str(old), "new")
    assert answer.code == 0
    assert "evergraph resume new" in " ".join(answer.out.split())
    assert "The unfinished change is learned" in command("resume", "new", "--device", "cpu").err
    assert "Expected a state of 0.1.0" in command("convert", "new").err


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.parametrize("names", [["a", "b", "c", "é"], [3, -1, 2**40, 7]])
def test_predictions_are_read_without_pytorch(folder: Path, command: Command, names: list[Any]):
    clf = ContinualNodeClassifier("analytic", validation_fraction=0, device="cpu")
    clf.learn(names, [[0.0, 1], [1, 0], [0, 1], [1, 0]], [names[:2]], ["u", "v", "u", None])
    clf.save("state")
    code = (
        "import sys; from evergraph.lab.cli import main; import atexit\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        "sys.argv = ['evergraph', 'predict', 'state', '-o', 'quick.csv']; main()"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout) == (0, "False\n"), answer.stderr
    assert command("predict", "state", "-o", "computed.csv", "--device", "cpu").code == 0
    assert (folder / "quick.csv").read_bytes() == (folder / "computed.csv").read_bytes()


@pytest.mark.parametrize("change", ["labels", "probability", "missing", "class"])
def test_forged_predictions_are_computed_anew(folder: Path, command: Command, change: str):
    clf = ContinualNodeClassifier("analytic", validation_fraction=0, device="cpu")
    clf.learn(["a", "b"], [[0.0, 1], [1, 0]], [], ["u", "v"]).save("state")
    number, content, stored = Store(folder / "state").read()
    if change == "missing":
        del content["predicted"]
    elif change == "class":
        content["predicted"]["labels"][0] = 7
    else:
        content["predicted"][change] = content["predicted"][change][:1]
    with Store(folder / "state").writing():
        Store(folder / "state").commit(number + 1, content, before=stored)
    assert command("predict", "state", "-o", "out.csv").code == 0
    assert [row["label"] for row in rows(folder / "out.csv")] == ["u", "v"]


@pytest.fixture
def started() -> Iterator[Start]:
    """Starts commands, and ends those that a failing test leaves behind."""
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "evergraph", *words]
        pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        # Whoever starts the tests in the background lets them, and this, ignore SIGINT.
        listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen(command, text=True, preexec_fn=listen, **pipes)  # noqa: PLW1509
        processes.append(process)
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_for(done: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits for what a command does: a busy machine may take a minute to start it."""
    deadline = time.monotonic() + 180
    while not done() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


#: Ctrl-C while a library runs text as code, here in place of the command.
INTERRUPTED_IN_EXEC = """
import os, signal, sys, time
from evergraph.lab import cli

signal.signal(signal.SIGINT, signal.default_int_handler)
cli.app = lambda: exec("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)")
sys.argv = ["evergraph", "run"]
cli.main()
"""


def test_ctrl_c_within_exec_has_its_exit_code(tmp_path: Path):
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IN_EXEC)
    command = [
        sys.executable,
        "-m",
        "interrupted",
    ]  # other endings than a module's are not affected
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 130, answer.stderr
    assert "the same command continues" in answer.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_a_state_that_resumes(
    folder: Path, command: Command, started: Start, number: int, code: int
):
    words = ("learn", "state", "--nodes", "nodes.csv", "--edges", "edges.csv", *OPTIONS)
    long = ("--set", "epochs=100000")
    process = started(*words, *long)
    state = Store(folder / "state")
    wait_for(lambda: state.exists and state.has_pending, process)
    second = command("learn", "state", "--edges", "edges.csv")  # while the first one learns
    assert second.code == 2
    assert f"process {process.pid} on" in second.err
    assert command("inspect", "state", "--json").code == 0  # a reader is not held up
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert errors.strip().splitlines()[-1] == (
        "evergraph: Interrupted: what was finished is kept; 'evergraph resume state' finishes the "
        "change if it was begun."
    )
    assert state.has_pending
    answer = command(*words, *long)  # another learn waits for the unfinished one
    assert answer.code == 2
    assert "evergraph resume" in answer.err
    answer = command("resume", "state", "--discard")
    assert "The unfinished change is discarded" in answer.err
    assert not state.has_pending


def test_sigterm_in_a_run_exits_143_and_the_run_resumes(
    work: Path, command: Command, started: Start
):
    words = ("run", "--dataset", "graph.npz", "--output", "out", "--set", "epochs=30")
    small = ("--set", "channels=4", "--set", "heads=2", "--method", "finetune")
    process = started(*words, *small)
    wait_for((work / "out" / "config.yaml").exists, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in {143, 0}, errors
    assert "Traceback" not in errors
    assert command("resume", "out").code == 0
    assert (work / "out" / "results.json").exists()
