"""Launching: the words of a command, run by several workers that form a team.

On one machine PyTorch's elastic agent starts the workers, the one behind ``torchrun``; on a cluster
Ray does. Either starts all of them again when one was lost: what a command had finished is kept, so
that it goes on from there. A command that was refused is not tried again: the worker that refused
it leaves its verdict.
"""

from __future__ import annotations

import json
import logging
import os
import re
import runpy
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evergraph.errors import InputError, import_extra

#: How often lost workers are started again.
RESTARTS = 3
#: Where a worker leaves why it refused a command, and who started it.
VERDICT, PARENT = "EVERGRAPH_VERDICT", "EVERGRAPH_PARENT"
#: How often workers have been started again, as ``torchrun`` tells them.
RESTART = "TORCHELASTIC_RESTART_COUNT"
#: The loopback interface, by which workers of one machine meet: nobody outside can reach it.
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
RAY = ("ray", "ray", "Ray for '--engine ray'")
#: Bytes that a Ray cluster of our own keeps for what jobs return.
OBJECT_STORE = 100 * 2**20


def launch(
    words: Sequence[str],
    workers: int,
    *,
    engine: str = "local",
    address: str | None = None,
    gpus_per_worker: float = 0.0,
    quiet: bool = False,
) -> None:
    """Runs a command in so many workers; returns once it is done, raises if it is refused.

    Args:
        words: The command's words, without its name.
        workers: How many share it.
        engine: ``local``, this machine, or ``ray``.
        address: Of a Ray cluster; None starts one on this machine.
        gpus_per_worker: What each requests of a Ray cluster.
        quiet: Whether what the command prints is left out; progress is shown.
    """
    if engine == "ray":
        with redirect_stdout(sys.stderr):  # Ray itself has something to say there
            said = _on_ray(list(words), workers, address, gpus_per_worker)
        print("" if quiet else said, end="")
    else:
        _on_this_machine(list(words), workers, quiet)


def check_workers(given: int | Mapping[str, Any]) -> dict[str, Any]:
    """Reads how a call in Python names its workers: their number, or what :func:`launch` takes."""
    found = dict(given) if isinstance(given, Mapping) else {"workers": given}
    known = {"workers", "engine", "address", "gpus_per_worker"}
    count = found.get("workers")
    if found.keys() - known or not isinstance(count, int) or count < 1:
        raise InputError(
            f"Expected 'workers' as a number, or a mapping with {', '.join(sorted(known))} (got "
            f"{given!r}); correct it."
        )
    return found


def _on_this_machine(words: list[str], workers: int, quiet: bool) -> None:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    usual = {"OMP_NUM_THREADS": threads, "GLOO_SOCKET_IFNAME": LOOPBACK}
    with TemporaryDirectory(prefix="evergraph-") as folder:
        verdict = Path(folder, "verdict.json")
        told = {VERDICT: str(verdict), PARENT: str(os.getpid())}
        apart = dict.fromkeys(range(1, workers), Std.ALL) | ({0: Std.OUT} if quiet else {})
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=workers,
            run_id="evergraph",
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            local_addr="127.0.0.1",
            max_restarts=RESTARTS,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=folder, redirects=apart),
        )
        try:
            with _environment(usual | os.environ | told):  # which the workers inherit
                elastic_launch(config, sys.executable)("-m", "evergraph", *words)
        except ChildFailedError as error:
            if verdict.exists():
                raise InputError(json.loads(verdict.read_text("utf-8"))) from None
            rank, failure = error.get_first_failure()
            how = f"signal {-failure.exitcode}" if failure.exitcode < 0 else "an error"
            raise _lost(f"worker {rank} by {how}") from None


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of this process for a while."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def as_worker() -> Iterator[None]:
    """Makes this process a good worker: silent but the first, ending with the others."""
    verdict, parent = os.environ.get(VERDICT), os.environ.get(PARENT)
    if verdict is not None and Path(verdict).exists():
        os._exit(2)  # refused before
    if int(os.environ["RANK"]) == 0:
        again = os.environ.get(RESTART, "0")
        if again != "0":
            told = f"A worker was lost: all are started again ({again} of {RESTARTS})."
            print(told, file=sys.stderr)
    else:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    if parent is not None:
        threading.Thread(target=_leave_with, args=(int(parent),), daemon=True).start()
    try:
        yield
    except InputError as error:
        if verdict is None:
            raise
        with suppress(OSError), open(verdict, "x", encoding="utf-8") as file:  # the first counts
            json.dump(str(error), file)
        if parent is not None:
            os._exit(2)  # others may wait for this worker
        raise SystemExit(2) from None  # who started the workers says it
    except RuntimeError as error:
        if "gloo" not in str(error).lower():
            raise
        raise SystemExit("Expected all workers to go on (got one lost).") from None


def end_worker(code: int) -> None:
    """Ends a worker that is a process of its own, as all but those of Ray are.

    At once: while Python ends, threads of PyTorch's process groups may abort it, and work that is
    done would count as lost.
    """
    if PARENT in os.environ or VERDICT not in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _leave_with(parent: int) -> None:
    """Ends this worker once who started it is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


class LostError(InputError):
    """Workers were lost, not refused: what they had begun may go on."""


def _lost(why: str) -> LostError:
    return LostError(
        f"Expected the workers to finish (got them lost {RESTARTS + 1} times; last, {why}); see "
        "whether memory or a machine failed, then give the same command again."
    )


def connect(address: str | None, cpus: int) -> Any:
    """Connects to a Ray cluster, or starts one on this machine that nobody else can reach."""
    ray = import_extra(*RAY)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Who asks for no part of a GPU may still use the one there is.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "ignore_reinit_error": True}
    own = {
        "num_cpus": cpus,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE,
        "_node_ip_address": "127.0.0.1",
    }
    try:
        place = re.fullmatch(r"(?:ray://)?([^:/]+):([0-9]+)", address or "")
        if place:  # Ray itself would try for minutes
            socket.create_connection((place[1], int(place[2])), timeout=5).close()
        ray.init(address, **quiet, **({} if address else own))
    except (OSError, RuntimeError, ValueError):
        if address is None:
            raise
        raise InputError(
            f"Expected '--address' to name a running Ray cluster (got '{address}'); start one with "
            "'ray start --head' or leave the option out."
        ) from None
    return ray


class _Worker:
    """A worker of a Ray cluster: an actor, which is a process of its own."""

    def __init__(self) -> None:
        self.told = StringIO()

    def place(self) -> tuple[str, int]:
        """Returns an address of this worker at which the others may meet it."""
        ray = import_extra(*RAY)
        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def progress(self, known: int) -> str:
        """Returns what it told beyond so many characters."""
        return self.told.getvalue()[known:]

    def work(
        self, words: list[str], environment: dict[str, str], home: str
    ) -> tuple[str | None, str]:
        """Runs the command; returns why it was refused, if it was, and what it printed."""
        if Path(home).is_dir():
            os.chdir(home)  # paths may be relative
        with TemporaryDirectory(prefix="evergraph-") as folder:
            verdict, said = Path(folder, "verdict.json"), StringIO()
            os.environ |= {**environment, VERDICT: str(verdict)}
            sys.argv = ["evergraph", *words]
            try:
                with redirect_stdout(said), redirect_stderr(self.told):
                    runpy.run_module("evergraph", run_name="__main__")
            except SystemExit as end:
                if end.code and not verdict.exists():
                    raise
            refused = json.loads(verdict.read_text("utf-8")) if verdict.exists() else None
            return refused, said.getvalue()


def _on_ray(words: list[str], workers: int, address: str | None, gpus: float) -> str:
    """Runs a command on a Ray cluster; returns what it printed."""
    ray = connect(address, workers)
    # One thread works while another one tells how far it is.
    actor = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, max_concurrency=2)(_Worker)
    try:
        for attempt in range(RESTARTS + 1):
            actors = [actor.remote() for _ in range(workers)]
            try:
                host, port = ray.get(actors[0].place.remote())
                shared = {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
                shared |= {"WORLD_SIZE": str(workers), RESTART: str(attempt)}
                jobs = [
                    one.work.remote(words, shared | {"RANK": str(rank)}, os.getcwd())
                    for rank, one in enumerate(actors)
                ]
                said = _follow(ray, actors[0], jobs)
                break
            except ray.exceptions.RayError as error:
                why = str(error).partition("\n")[0]
            finally:
                for one in actors:
                    ray.kill(one)
        else:
            raise _lost(why)
    finally:
        ray.shutdown()
    return said


def _follow(ray: Any, first: Any, jobs: list[Any]) -> str:
    """Waits for workers and repeats what the first one tells; raises if one refuses.

    Returns what they printed.
    """
    known, printed = 0, ""
    while jobs:
        done, jobs = ray.wait(jobs, timeout=1.0)
        told = ray.get(first.progress.remote(known))
        known += len(told)
        print(told, end="", file=sys.stderr, flush=True)
        for refused, said in ray.get(done):
            if refused is not None:
                raise InputError(refused)
            printed += said
    return printed
