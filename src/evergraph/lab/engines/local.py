"""The engine of one machine: worker processes that leave with their parent."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import torch

from evergraph.errors import InputError
from evergraph.events import Event
from evergraph.lab.engines.base import Job, run_cell
from evergraph.lab.jobs import Cell, Message, OnCell, OnMessage, ProgressTracker

#: Least seconds between two progress messages of a worker.
MESSAGE_INTERVAL = 0.2


class LocalEngine:
    """Runs cells in worker processes on this machine.

    Args:
        jobs: How many at a time; they share the cores.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def run(
        self, cells: Sequence[Cell], job: Job, on_message: OnMessage, on_cell: OnCell
    ) -> list[str]:
        """Runs every cell; see :class:`~evergraph.lab.engines.base.Engine`."""
        context = multiprocessing.get_context("spawn")
        messages = context.Queue()
        arguments = (messages, threads_per_job(self.jobs))
        failed: list[str] = []
        with ProcessPoolExecutor(
            self.jobs, mp_context=context, initializer=_start_worker, initargs=arguments
        ) as pool:
            with _interrupts_held():
                futures = {pool.submit(_run_cell, cell, job): cell for cell in cells}
            try:
                failed = _follow(futures, messages, on_message, on_cell)
            except BaseException:
                for worker in multiprocessing.active_children():
                    worker.terminate()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return failed


def threads_per_job(jobs: int) -> int:
    """Shares the cores of this machine among workers."""
    return max(1, (os.cpu_count() or 1) // jobs)


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
    futures: dict[Future[dict[str, Any]], Cell],
    messages: Any,
    on_message: OnMessage,
    on_cell: OnCell,
) -> list[str]:
    """Passes progress on until every cell is done."""
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
            cell = futures[future]
            try:
                on_cell(cell, future.result(), None)
            except (InputError, KeyboardInterrupt):
                raise
            except BrokenProcessPool:
                raise InputError(
                    f"Expected the worker of '{cell.name}' to finish (it was killed, perhaps for "
                    "memory); run the same command again to continue, with fewer --jobs."
                ) from None
            except Exception as error:
                failed.append(cell.name)
                on_cell(cell, None, f"{type(error).__name__}: {error}")
    return failed


_messages: Any = None


def _start_worker(messages: Any, threads: int) -> None:
    global _messages  # noqa: PLW0603 - a worker process has one queue for its whole life
    _messages = messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(threads)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()


def _leave_with(parent: int) -> None:
    """Ends this worker when its parent is gone; run folders stay resumable."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _run_cell(cell: Cell, job: Job) -> dict[str, Any]:
    """Runs one cell inside a worker."""
    tracker = ProgressTracker(cell.config)
    last = 0.0

    def tell(event: Event) -> None:
        nonlocal last
        part, text = tracker.update(event)
        now = time.monotonic()
        if now - last >= MESSAGE_INTERVAL:
            last = now
            _messages.put(Message(os.getpid(), cell.name, part, text))

    return run_cell(cell, job, tell)
