"""Answers: predictions of the newest version, concurrent questions joined, versions never mixed.

One thread predicts known nodes, a second one does what takes longer (new nodes, explanations), a
third one loads the next version, a fourth one looks for novel nodes. None of them waits for
another. Of a large graph a process looks for novel nodes.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from evergraph.estimator.near import CPU
from evergraph.estimator.novelty import Novelty
from evergraph.estimator.state import State
from evergraph.estimator.store import Store
from evergraph.estimator.transaction import load_state
from evergraph.serve.requests import Question
from evergraph.serve.version import SCORES, answer, answer_all, as_arrow, describe_node, predict_all
from evergraph.serve.watching import describe, find_novel
from evergraph.serve.worker import log

#: Seconds between looks for a new version.
LOOK = 0.2
#: Seconds that a node's description waits for its novelty, in a graph of so many nodes.
PATIENCE, QUICK = 2.0, 20_000
#: Looking for novel nodes takes at most one part in so many of a processor's time.
SPARING = 5
#: Seconds that it waits for changes to be learned.
MOST_WAITED = 300
#: Most questions that are joined.
MOST_JOINED = 256
T = TypeVar("T")


class Answers:
    """Keeps the newest version and answers from it."""

    def __init__(self, folder: Path, busy: Callable[[], bool] = lambda: False) -> None:
        self.folder, self.store, self.busy = folder, Store(folder), busy
        self.state = load_state(folder)[0]
        self.joined = 0  # questions that were joined with others
        self.novel: dict[str, Any] | None = None  # what was found in the last version looked at
        self._threads = {
            name: ThreadPoolExecutor(1, thread_name_prefix=name)
            for name in ("plain", "slow", "load", "look")
        }
        self._waiting: list[tuple[Question, asyncio.Future[dict[str, Any]]]] = []
        self._asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to answer, and to look for new versions."""
        self._threads["plain"].submit(predict_all, self.state)  # what is asked meanwhile waits
        self._tasks = [
            asyncio.create_task(work()) for work in (self._answer, self._follow, self._look)
        ]

    async def stop(self) -> None:
        """Ends the threads."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)

    async def predict(self, question: Question) -> dict[str, Any]:
        """Answers a question."""
        if not question.is_plain:
            state = self.state
            if question.reject is not None:
                await self._detect(state)
            return await self._run("slow", answer, state, question)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        self._asked.set()
        return await future

    async def node(self, name: str) -> dict[str, Any]:
        """Describes a node."""
        state = self.state
        if state.graph.num_nodes <= QUICK:  # otherwise it is there or comes later
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._detect(state)
        return await self._run("slow", describe_node, state, name)

    async def table(self, question: Question) -> bytes:
        """Answers a question as a stream of Arrow."""
        return await self._run("slow", as_arrow, self.state, question)

    async def about(self) -> tuple[int, dict[str, Any]]:
        """Describes the newest version."""
        state = self.state
        about = await self._run("slow", state.once, "about", lambda: describe(state))
        return state.version[0], about

    async def _run(self, thread: str, call: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], call, *given)

    async def _detect(self, state: State) -> None:
        """Waits for a version's detector of novel nodes."""
        if state.classes and "novelty" not in state.computed:
            await self._run("look", Novelty.of, state, CPU)

    async def _answer(self) -> None:
        """Takes all questions that wait, as one batch of one version."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_JOINED], self._waiting[MOST_JOINED:]
                batch = [(asked, future) for asked, future in batch if not future.done()]
                answers: list[Any]
                try:
                    asked = [question for question, _ in batch]
                    answers = await self._run("plain", answer_all, self.state, asked)
                except Exception as error:
                    answers = [error] * len(batch)
                self.joined += len(batch) if len(batch) > 1 else 0
                for (_, future), found in zip(batch, answers, strict=True):
                    if future.done():
                        continue
                    if isinstance(found, Exception):
                        future.set_exception(found)
                    else:
                        future.set_result(found)

    async def _follow(self) -> None:
        """Takes a new version over as soon as it is whole."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                self.state = await self._run("load", self._newest)
            except Exception as error:  # a damaged version, a full table of files
                log("version not read", error=str(error))
                await asyncio.sleep(5)

    def _newest(self) -> State:
        """Loads the newest version if it is another one."""
        if self.store.newest() == self.state.version:
            return self.state
        found = predict_all(load_state(self.folder)[0])
        log("version taken over", version=found.version[0])
        return found

    async def _look(self) -> None:
        """Looks for novel nodes in the newest version, and then in the next that is the newest."""
        looked: State | None = None
        waited = 0
        while True:
            await asyncio.sleep(1)
            state, begun = self.state, time.monotonic()
            if state is looked or not state.classes:
                continue
            if waited < MOST_WAITED and await asyncio.to_thread(self.busy):
                waited += 1  # what is learned will make another version, and needs the processor
                continue
            waited = 0
            try:
                self.novel = await self._find_novel(state)
            except Exception as error:
                log("not looked for novel nodes", error=repr(error))
            looked = state
            await asyncio.sleep(min((SPARING - 1) * (time.monotonic() - begun), 600))

    async def _find_novel(self, state: State) -> dict[str, Any]:
        if state.graph.num_nodes <= QUICK:
            await self._detect(state)
            found = await self._run("look", find_novel, state)
            return {"version": state.version[0], **found}
        # In a process of its own: much of it would hold the interpreter's lock.
        words = [sys.executable, "-m", find_novel.__module__, str(self.folder.resolve())]
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            written, _ = await process.communicate()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        with np.load(io.BytesIO(written)) as told:
            number, checksum, found = json.loads(str(told["told"]))
            if (number, bytes.fromhex(checksum)) == state.version:
                state.computed[SCORES] = told["scores"]
        return {"version": number, **found}
