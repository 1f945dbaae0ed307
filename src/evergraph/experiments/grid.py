"""Grids: seeds × methods × datasets in worker processes; finished cells never run again."""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import re
import shutil
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

from evergraph.errors import InputError
from evergraph.events import Epoch, Event, TaskDone
from evergraph.experiments.config import RunConfig
from evergraph.experiments.files import make_folder
from evergraph.experiments.runs import RunFolder, execute
from evergraph.stream import Graph
from evergraph.stream.datasets import load_graph

#: Least seconds between two progress messages of a worker.
MESSAGE_INTERVAL = 0.2


@dataclass(frozen=True)
class Cell:
    """One run of a grid and where it lives."""

    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """What progress shows."""
        return f"{self.config.dataset_name} · {self.config.label} · seed {self.config.seed}"


@dataclass(frozen=True)
class Message:
    """What a worker tells about the run it is at: part done in [0, 1]."""

    worker: int
    cell: str
    part: float
    text: str


OnMessage = Callable[[Message], None]
OnCell = Callable[[Cell, dict[str, Any] | None, str | None], None]


def make_cells(configs: Sequence[RunConfig], output: Path) -> list[Cell]:
    """Gives every run its folder ``runs/DATASET/LABEL/seed-N``; refuses labels that clash."""
    cells: dict[Path, Cell] = {}
    for config in configs:
        path = output / "runs" / dataset_slug(config) / slug(config.label) / f"seed-{config.seed}"
        if path in cells and cells[path].config.dataset_name != config.dataset_name:
            raise InputError(
                "Expected every dataset of a grid to have its own file name (got "
                f"'{cells[path].config.dataset_name}' and '{config.dataset_name}'); rename one."
            )
        if path in cells:
            raise InputError(
                f"Expected every method of a grid to have its own label (got '{config.label}' "
                "twice); add @label to one of them."
            )
        cells[path] = Cell(config, path)
    return list(cells.values())


def slug(text: str) -> str:
    """Turns a label into a folder name."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", text).strip("-.") or "unnamed"


def dataset_slug(config: RunConfig) -> str:
    """Names a dataset's folder: generated graphs by their options, files without their path."""
    return slug(config.dataset_name if config.dataset_options else Path(config.dataset).stem)


def merge_runs(output: Path, sources: Sequence[Path]) -> int:
    """Copies finished runs made elsewhere into a grid's folder; returns how many were new."""
    finished: dict[Path, Cell] = {}
    for source in sources:  # everything is checked before anything is copied
        found = sorted(source.glob("**/results.json"))
        if not found:
            raise InputError(
                f"Expected '--merge' to name a folder with finished runs (got '{source}'); "
                "check the path."
            )
        for results in found:
            cell = make_cells([RunFolder(results.parent).config()], output)[0]
            if RunFolder(cell.path).inspect(cell.config) is None:
                finished[results.parent] = cell
    for folder, cell in finished.items():
        if cell.path.exists():
            shutil.rmtree(cell.path)  # the same run, unfinished here and finished there
        make_folder(cell.path.parent)
        beside = cell.path.with_name(f".{cell.path.name}.{os.getpid()}.new")
        shutil.copytree(folder, beside)
        beside.rename(cell.path)
    return len(finished)


def run_grid(
    cells: Sequence[Cell],
    *,
    jobs: int,
    device: str,
    data_root: Path | None,
    on_message: OnMessage,
    on_cell: OnCell,
) -> list[str]:
    """Runs every cell that is not finished, in ``jobs`` worker processes.

    Calls ``on_message`` with progress and ``on_cell`` after each cell, with its results or
    with the reason why it failed. Returns the names of the cells that failed.
    """
    todo = []
    for cell in cells:
        finished = RunFolder(cell.path).inspect(cell.config)
        if finished is None:
            todo.append(cell)
        else:
            on_cell(cell, finished, None)
    if not todo:
        return []
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    failed: list[str] = []
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_start_worker, initargs=(messages, threads)
    ) as pool:
        with _interrupts_held():
            futures = {pool.submit(_run_cell, cell, device, data_root): cell for cell in todo}
        try:
            failed = _follow(futures, messages, on_message, on_cell)
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


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


def _run_cell(cell: Cell, device: str, data_root: Path | None) -> dict[str, Any]:
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

    return execute(
        cell.config,
        cell.path,
        device=device,
        data_root=data_root,
        on_event=tell,
        graph=_graph(cell.config.dataset, json.dumps(cell.config.dataset_options), data_root),
    )


@lru_cache(maxsize=1)
def _graph(dataset: str, options: str, data_root: Path | None) -> Graph:
    """Keeps the last graph: a worker's cells mostly share it."""
    return load_graph(dataset, data_root, json.loads(options) or None)


class ProgressTracker:
    """Turns events into a part done and a line of text."""

    def __init__(self, config: RunConfig) -> None:
        self.epochs = config.training.epochs
        self.num_tasks = 1
        self.accuracy = ""

    def update(self, event: Event) -> tuple[float, str]:
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
