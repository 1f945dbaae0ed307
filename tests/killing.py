"""Killing: a process that is warm, forks workers for one command each, and kills them.

Starting Python takes longer than the commands that the kill tests are about, so that one process
imports everything once and forks. It reads JSON lines: ``{"argv", "cwd", "after", "at", "files"}``
— words of the command, its folder, seconds before SIGKILL, or the number of the operation on files
or of the statement to SQLite at which the worker kills itself, and whether all features are large
enough for files of their own — and answers ``{"code",
"operations", "seconds"}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

#: numba's own pool of threads can be forked, OpenMP's cannot.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "NUMBA_THREADING_LAYER": "workqueue",
}
OPERATIONS = ("fsync", "replace", "rename", "unlink", "mkdir", "write", "truncate")


class Killer:
    """Runs commands, each in a fork of one warm process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD},
        )

    def __call__(
        self,
        cwd: Path,
        *argv: object,
        after: float | None = None,
        at: int | None = None,
        files: bool = False,
    ) -> dict[str, Any]:
        """Runs a command, killed after some seconds or at an operation on files, if asked."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        wish = {"argv": list(map(str, argv)), "cwd": str(cwd), "after": after, "at": at}
        wish["files"] = files
        self.process.stdin.write(json.dumps(wish) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=20)


def serve() -> None:
    """Answers wishes until there are no more."""
    import pyarrow.csv  # noqa: F401 - late in the command, early here
    import torch

    from evergraph.lab import cli

    torch.set_num_threads(1)
    warm_up(cli)
    for line in sys.stdin:
        wish = json.loads(line)
        reader, writer = os.pipe()
        begin = time.perf_counter()
        child = os.fork()
        if child == 0:
            os.close(reader)
            work(cli, wish, writer)
        os.close(writer)
        # The pipe closes when the worker ends by itself.
        after = wish["after"]
        if after is not None and not select.select([reader], [], [], after)[0]:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        told = os.read(reader, 100)
        os.close(reader)
        answer = {
            "code": os.waitstatus_to_exitcode(status),
            "operations": int(told or b"0"),
            "seconds": time.perf_counter() - begin,
        }
        print(json.dumps(answer), flush=True)


def warm_up(cli: Any) -> None:
    """Learns something once, so that forks need not import what is imported late."""
    small = ("epochs=1", "link_epochs=1", "channels=2", "heads=1", "attention=plain")
    words = ["run", "--dataset", "synthetic:nodes=60,mean_degree=3", "--device", "cpu"]
    kept = os.dup(1), os.dup(2)
    with tempfile.TemporaryDirectory() as place, open(os.devnull, "w") as nowhere:
        for channel in (1, 2):
            os.dup2(nowhere.fileno(), channel)
        sys.argv = ["evergraph", *words, "--output", f"{place}/run"]
        sys.argv += [word for setting in small for word in ("--set", setting)]
        with contextlib.suppress(SystemExit):
            cli.main()
        sys.stdout.flush()
        for channel, before in zip((1, 2), kept, strict=True):
            os.dup2(before, channel)
            os.close(before)


def work(cli: Any, wish: dict[str, Any], writer: int) -> None:
    """Runs one command in this forked process and ends it."""
    from evergraph.estimator import blocks

    os.chdir(wish["cwd"])
    quiet = os.open(os.devnull, os.O_WRONLY)
    errors = os.open("stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(quiet, 1)
    os.dup2(errors, 2)
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1
        if count - 1 == wish["at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(operation: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            tick()
            return operation(*arguments, **named)

        return call

    class Counted(sqlite3.Connection):
        execute = counted(sqlite3.Connection.execute)

    for name in OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))
    if wish["files"]:
        blocks.LARGE = 1
    sqlite3.connect = partial(sqlite3.connect, factory=Counted)
    sys.argv = ["evergraph", *wish["argv"]]
    code: Any = 1
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code
    finally:
        os.write(writer, str(count).encode())
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    serve()
