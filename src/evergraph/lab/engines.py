"""What the jobs of a grid run on: worker processes of this machine, or a Ray cluster.

On a cluster (the extra ``ray``) every job runs in its own folder, which all machines must share. A
task whose worker is lost is given out again and continues after its last finished task, to the same
bits; what the driver finds finished when it is started again is not run again.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch

from evergraph.device import pick_device
from evergraph.errors import InputError, import_extra, unknown_name
from evergraph.events import Epoch, Event, Stage, TaskDone, TaskStarted
from evergraph.lab.folder import Run
from evergraph.lab.runs import Place, execute, graph_of
from evergraph.launch import RAY, connect

#: Least seconds between two progress messages of a worker.
MESSAGE_INTERVAL = 0.2
#: How often a job is given out again after its worker in a Ray cluster was lost.
RETRIES = 3


#: Takes what a worker tells: its number, the name of its job, part done in [0, 1], and a text.
OnMessage = Callable[[int, str, float, str], None]
OnDone = Callable[[Run, dict[str, Any] | None, str | None], None]


def check_at_least(least: int, **counts: float | None) -> None:
    """Refuses an option below what it must be at least."""
    for name, count in counts.items():
        if count is not None and count < least:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"Expected '{option}' of at least {least} (got {count}); raise it.")


@dataclass(frozen=True)
class Resources(Place):
    """What the jobs of a grid run on; its fields are options too."""

    jobs: Annotated[int | None, "Worker processes. [one per core; one on a GPU]"] = None
    engine: Annotated[str, "Where jobs run: local or ray."] = "local"
    address: Annotated[str | None, "Address of a Ray cluster. [started on this machine]"] = None
    gpus: Annotated[float, "Share of a GPU that each job requests on a Ray cluster."] = 0.0

    def __post_init__(self) -> None:
        check_at_least(1, jobs=self.jobs)
        check_at_least(0, gpus=self.gpus)
        if self.engine not in {"local", "ray"}:
            raise unknown_name("engine", self.engine, {"local", "ray"})
        if self.engine == "local" and (self.address is not None or self.gpus):
            option = "--address" if self.address is not None else "--gpus"
            raise InputError(
                f"Expected '{option}' only with a Ray cluster (got '--engine local'); add "
                "--engine ray."
            )
        super().__post_init__()
        if self.engine == "ray":
            import_extra(*RAY)

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


def run_locally(
    jobs: Sequence[Run], resources: Resources, on_message: OnMessage, on_done: OnDone
) -> dict[str, str]:
    """Runs jobs in worker processes on this machine; returns why some failed, by their names."""
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()

    def pass_on() -> None:
        with suppress(queue.Empty):
            while True:
                on_message(*messages.get_nowait())

    with ProcessPoolExecutor(
        resources.num_workers,
        mp_context=context,
        initializer=_start_worker,
        initargs=(messages, resources.threads),
    ) as executor:
        with _interrupts_held():
            futures = {executor.submit(_run_in_worker, job, resources): job for job in jobs}
        try:
            return _follow(futures, on_done, pass_on)
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
    futures: Mapping[Future[dict[str, Any]], Run],
    on_done: OnDone,
    between: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Waits until every job is done; returns why some failed, by their names.

    What ends the whole grid is raised.
    """
    failed, pending = dict[str, str](), set(futures)
    while pending:
        done, pending = wait(pending, timeout=MESSAGE_INTERVAL, return_when=FIRST_COMPLETED)
        between()
        for future in done:
            job, error = futures[future], future.exception()
            if error is None:
                on_done(job, future.result(), None)
                continue
            if isinstance(error, BrokenProcessPool):
                raise InputError(
                    f"Expected the worker of '{job.name}' to finish (it was killed, perhaps for "
                    "memory); run the same command again to continue, with fewer --jobs."
                ) from None
            reason = f"its worker was lost {RETRIES + 1} times, perhaps for memory"
            ray = sys.modules.get("ray")  # which wraps what a job raised, if it raised anything
            if ray is not None and isinstance(error, ray.exceptions.RayError):
                error = getattr(error, "cause", None)
            if isinstance(error, InputError | KeyboardInterrupt):
                raise error from None
            if error is not None:
                reason = f"{type(error).__name__}: {error}"
            failed[job.name] = reason
            on_done(job, None, reason)
    return failed


_messages: Any = None


def _start_worker(messages: Any, threads: int) -> None:
    global _messages  # noqa: PLW0603 - a worker process has one queue for its whole life
    _messages = messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(threads)

    def leave_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)  # run folders stay resumable

    threading.Thread(target=leave_with_parent, daemon=True).start()


def _run_in_worker(job: Run, resources: Resources) -> dict[str, Any]:
    describe, last = ProgressText(), 0.0

    def tell(event: Event) -> None:
        nonlocal last
        part, text = describe(event)
        if (now := time.monotonic()) - last >= MESSAGE_INTERVAL:
            last = now
            _messages.put((os.getpid(), job.name, part, text))

    graph = graph_of(job.config.dataset, resources.data_root, **job.config.dataset_options)
    return execute(job, resources, tell, graph)


def run_on_ray(
    jobs: Sequence[Run], resources: Resources, on_message: OnMessage, on_done: OnDone
) -> dict[str, str]:
    """Runs jobs as tasks of a Ray cluster; returns why some failed, by their names."""
    ray = connect(resources.address, resources.num_workers)
    try:
        root = resources.data_root
        there = replace(resources, data_root=None if root is None else root.resolve())
        task = ray.remote(num_cpus=1, num_gpus=resources.gpus, max_retries=RETRIES)(_run_remotely)
        task = task.options(name="evergraph job")
        futures = {}
        for job in jobs:
            lasting = Run(job.path.resolve(), job.config, trial=job.trial)
            futures[task.remote(lasting, there, os.getcwd()).future()] = job
        return _follow(futures, on_done)
    finally:
        ray.shutdown()


def _run_remotely(job: Run, resources: Resources, home: str) -> dict[str, Any]:
    """Runs one job in a worker of the cluster."""
    torch.set_num_threads(resources.threads)
    if Path(home).is_dir():
        os.chdir(home)  # paths of graphs may be relative
    graph = graph_of(job.config.dataset, resources.data_root, **job.config.dataset_options)
    return execute(job, resources, graph=graph)


class ProgressText:
    """Turns events into a part done and a line of text."""

    def __init__(self) -> None:
        self.num_tasks = 1
        self.accuracy = ""

    def __call__(self, event: Event) -> tuple[float, str]:
        """Returns how far the run is and what it is at."""
        if isinstance(event, TaskStarted):
            self.num_tasks = event.num_tasks
        done, text = 0.0, f"task {event.task + 1}/{self.num_tasks}"
        if isinstance(event, TaskDone):
            self.accuracy = f" · accuracy {sum(event.row) / len(event.row):.1f} %"
            done, text = 1.0, f"task {event.task + 1} done"
        elif isinstance(event, Stage):
            done, text = event.done / event.total, f"{text} {event.stage}"
        elif isinstance(event, Epoch):
            done = event.epoch / event.num_epochs if event.stage == "classify" else 0.0
            text = f"{text} {event.stage}"
        return (event.task + done) / self.num_tasks, text + self.accuracy
