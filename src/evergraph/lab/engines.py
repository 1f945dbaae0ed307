"""What the jobs of a grid run on, and the engine of one machine: worker processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from evergraph.errors import InputError, unknown_name
from evergraph.events import Epoch, Event, TaskDone
from evergraph.lab.jobs import Job
from evergraph.lab.runs import execute
from evergraph.lab.trackers import check_tracker, tracked
from evergraph.nn.device import pick_device
from evergraph.stream import Graph
from evergraph.stream.datasets import load_graph

#: Least seconds between two progress messages of a worker.
MESSAGE_INTERVAL = 0.2


@dataclass(frozen=True)
class Message:
    """What a worker tells about the job it is at: part done in [0, 1]."""

    worker: int
    job: str
    part: float
    text: str


OnMessage = Callable[[Message], None]
OnDone = Callable[[Job, dict[str, Any] | None, str | None], None]


@dataclass(frozen=True)
class Resources:
    """What the jobs of a grid run on; wrong options are refused when it is made.

    Attributes:
        jobs: How many run at a time; None takes one per core, or one on a GPU.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where graphs are.
        engine: ``local``, worker processes on this machine, or ``ray``.
        address: The Ray cluster's address; None makes a cluster on this machine.
        gpus: Part of a GPU that each job asks for on a Ray cluster.
        track: ``tensorboard`` or ``mlflow`` to follow every run there too.
    """

    jobs: int | None = None
    device: str = "auto"
    data_root: Path | None = None
    engine: str = "local"
    address: str | None = None
    gpus: float = 0.0
    track: str | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"Expected '--jobs' of at least 1 (got {self.jobs}); raise it.")
        if self.engine not in {"local", "ray"}:
            raise unknown_name("engine", self.engine, {"local", "ray"})
        if self.engine == "local" and (self.address is not None or self.gpus):
            option = "--address" if self.address is not None else "--gpus"
            raise InputError(
                f"Expected '{option}' only with a Ray cluster (got '--engine local'); add "
                "--engine ray."
            )
        if self.gpus < 0:
            raise InputError(f"Expected '--gpus' of at least 0 (got {self.gpus}); raise it.")
        check_tracker(self.track)
        pick_device(self.device)
        if self.engine == "ray":
            import_ray()

    @property
    def num_workers(self) -> int:
        """Counts the jobs at a time.

        One on a GPU: recorded steps of several processes take turns there, and fifteen
        processes got a quarter of the work of one done (decision 0010).
        """
        on_gpu = pick_device(self.device).type == "cuda"
        return self.jobs or (1 if on_gpu else os.cpu_count() or 1)

    @property
    def threads(self) -> int:
        """Shares the cores of this machine among workers; a given cluster has its own size."""
        return 1 if self.address else max(1, (os.cpu_count() or 1) // self.num_workers)


def import_ray() -> Any:
    """Imports Ray, or says how to get it."""
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError(
            "Expected Ray for '--engine ray' (it is not installed); install the extra with "
            "pip install 'evergraph[ray]'."
        ) from None
    return ray


def run_job(
    job: Job, resources: Resources, on_event: Callable[[Event], None] | None = None
) -> dict[str, Any]:
    """Runs one job in this process, or continues it after its last finished task."""
    options = json.dumps(job.config.dataset_options)
    return execute(
        job.config,
        job.path,
        device=resources.device,
        data_root=resources.data_root,
        on_event=tracked(resources.track, job.config, job.path, on_event),
        graph=_graph(job.config.dataset, options, resources.data_root),
    )


@lru_cache(maxsize=1)
def _graph(dataset: str, options: str, data_root: Path | None) -> Graph:
    """Keeps the last graph: a worker's jobs mostly share it."""
    return load_graph(dataset, data_root, json.loads(options) or None)


def run_locally(
    jobs: Sequence[Job], resources: Resources, on_message: OnMessage, on_done: OnDone
) -> list[str]:
    """Runs jobs in worker processes on this machine; returns the names of those that failed."""
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    with ProcessPoolExecutor(
        resources.num_workers,
        mp_context=context,
        initializer=_start_worker,
        initargs=(messages, resources.threads),
    ) as executor:
        with _interrupts_held():
            futures = {executor.submit(_run_in_worker, job, resources): job for job in jobs}
        try:
            return _follow(futures, messages, on_message, on_done)
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()
            executor.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delays Ctrl-C while workers start, which then inherit that it is not for them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(
    futures: dict[Future[dict[str, Any]], Job],
    messages: Any,
    on_message: OnMessage,
    on_done: OnDone,
) -> list[str]:
    """Passes progress on until every job is done."""
    failed = []
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=MESSAGE_INTERVAL, return_when=FIRST_COMPLETED)
        while True:
            try:
                on_message(messages.get_nowait())
            except queue.Empty:
                break
        for future in done:
            job = futures[future]
            try:
                on_done(job, future.result(), None)
            except (InputError, KeyboardInterrupt):
                raise
            except BrokenProcessPool:
                raise InputError(
                    f"Expected the worker of '{job.name}' to finish (it was killed, perhaps for "
                    "memory); run the same command again to continue, with fewer --jobs."
                ) from None
            except Exception as error:
                failed.append(job.name)
                on_done(job, None, f"{type(error).__name__}: {error}")
    return failed


_messages: Any = None


def _start_worker(messages: Any, threads: int) -> None:
    global _messages  # noqa: PLW0603 - a worker process has one queue for its whole life
    _messages = messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(threads)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """Ends this worker when its parent is gone; run folders stay resumable."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_worker(job: Job, resources: Resources) -> dict[str, Any]:
    describe = ProgressText()
    last = 0.0

    def tell(event: Event) -> None:
        nonlocal last
        part, text = describe(event)
        now = time.monotonic()
        if now - last >= MESSAGE_INTERVAL:
            last = now
            _messages.put(Message(os.getpid(), job.name, part, text))

    return run_job(job, resources, tell)


class ProgressText:
    """Turns events into a part done and a line of text."""

    def __init__(self) -> None:
        self.num_tasks = 1
        self.accuracy = ""

    def __call__(self, event: Event) -> tuple[float, str]:
        """Returns how far the run is and what it is at."""
        if isinstance(event, TaskDone):
            self.accuracy = f" · accuracy {sum(event.row) / len(event.row):.1f} %"
            return (event.task + 1) / self.num_tasks, f"task {event.task + 1} done{self.accuracy}"
        if isinstance(event, Epoch):
            done = event.epoch / event.num_epochs if event.stage == "classify" else 0.0
            text = f"task {event.task + 1}/{self.num_tasks} {event.stage}"
            return (event.task + done) / self.num_tasks, text + self.accuracy
        self.num_tasks = event.num_tasks
        return event.task / self.num_tasks, f"task {event.task + 1}/{self.num_tasks}{self.accuracy}"
