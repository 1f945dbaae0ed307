"""Answers: predictions of the newest version, concurrent questions joined, versions never mixed.

One thread predicts known nodes, a second one does what takes longer (new nodes, explanations), a
third one loads the next version, a fourth one looks for novel nodes. None of them waits for
another. Of a large graph a process looks for novel nodes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from evergraph.estimator.novelty import Novelty
from evergraph.estimator.store import Store
from evergraph.serve.requests import Question
from evergraph.serve.version import CPU, Version
from evergraph.serve.watching import Apart, find_novel
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
        self.version = Version.load(folder)
        self.joined = 0  # questions that were joined with others
        self.novel: dict[str, Any] | None = None  # what was found in the last version looked at
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=name)
            for name in ("plain", "slow", "load", "look")
        ]
        self._waiting: list[tuple[Question, asyncio.Future[dict[str, Any]]]] = []
        self._asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to answer, and to look for new versions."""
        self._threads[0].submit(self.version.prepare)  # what is asked meanwhile waits for it
        self._tasks = [
            asyncio.create_task(work()) for work in (self._answer, self._follow, self._look)
        ]

    async def stop(self) -> None:
        """Ends the threads."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for thread in self._threads:
            thread.shutdown(wait=True, cancel_futures=True)

    async def predict(self, question: Question) -> dict[str, Any]:
        """Answers a question."""
        if not question.is_plain:
            version = self.version
            if question.reject is not None:
                await self._detect(version)
            return await self._slowly(lambda: version.answer(question))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        self._asked.set()
        return await future

    async def node(self, name: str) -> dict[str, Any]:
        """Describes a node."""
        version = self.version
        if version.state.graph.num_nodes <= QUICK:  # otherwise it is there or comes later
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._detect(version)
        return await self._slowly(lambda: version.node(name))

    async def table(self, question: Question) -> bytes:
        """Answers a question as a stream of Arrow."""
        return await self._slowly(lambda: self.version.table(question))

    async def about(self) -> tuple[int, dict[str, Any]]:
        """Describes the newest version."""
        version = self.version
        return version.number, await self._slowly(lambda: version.about)

    async def _detect(self, version: Version) -> None:
        """Waits for a version's detector of novel nodes."""
        state = version.state
        if state.classes and "novelty" not in state.computed:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads[3], Novelty.of, state, CPU)

    async def _slowly(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[1], call)

    async def _answer(self) -> None:
        """Takes all questions that wait, as one batch of one version."""
        loop = asyncio.get_running_loop()
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_JOINED], self._waiting[MOST_JOINED:]
                batch = [(asked, future) for asked, future in batch if not future.done()]
                asked = [question for question, _ in batch]
                answers: list[Any]
                try:
                    answers = await loop.run_in_executor(
                        self._threads[0], self.version.answers, asked
                    )
                except Exception as error:
                    answers = [error] * len(batch)
                self.joined += len(batch) if len(batch) > 1 else 0
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)

    async def _follow(self) -> None:
        """Takes a new version over as soon as it is whole."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK)
            try:
                self.version = await loop.run_in_executor(self._threads[2], self._newest)
            except Exception as error:  # a damaged version, a full table of files
                log("version not read", error=str(error))
                await asyncio.sleep(5)

    def _newest(self) -> Version:
        """Loads the newest version if it is another one."""
        if self.store.newest() == (self.version.number, self.version.checksum):
            return self.version
        found = Version.load(self.folder).prepare()
        log("version taken over", version=found.number)
        return found

    async def _look(self) -> None:
        """Looks for novel nodes in the newest version, and then in the next that is the newest."""
        looked: Version | None = None
        waited = 0
        while True:
            await asyncio.sleep(1)
            version, begun = self.version, time.monotonic()
            if version is looked or not version.state.classes:
                continue
            if waited < MOST_WAITED and await asyncio.to_thread(self.busy):
                waited += 1  # what is learned will make another version, and needs the processor
                continue
            waited = 0
            try:
                self.novel = await self._find_novel(version)
            except Exception as error:
                log("not looked for novel nodes", error=repr(error))
            looked = version
            await asyncio.sleep(min((SPARING - 1) * (time.monotonic() - begun), 600))

    async def _find_novel(self, version: Version) -> dict[str, Any]:
        if version.state.graph.num_nodes <= QUICK:
            await self._detect(version)
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads[3], find_novel, version.state)
            return {"version": version.number, **found}
        # In a process of its own: much of it would hold the interpreter's lock.
        words = [sys.executable, "-m", find_novel.__module__, str(self.folder.resolve())]
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            told, _ = await process.communicate()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        apart = Apart.read(told)
        if (apart.number, apart.checksum) == (version.number, version.checksum):
            version.found["novelty"] = apart.scores
        return {"version": apart.number, **apart.found}
