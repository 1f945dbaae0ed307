"""Answers: predictions of the newest version, concurrent questions joined, versions never mixed.

One thread predicts known nodes, a second one does what takes longer (new nodes, novelty,
explanations), a third one loads the next version. None of them waits for another.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from evergraph.errors import InputError
from evergraph.estimator.explanation import explain
from evergraph.estimator.novelty import Novelty
from evergraph.estimator.state import State
from evergraph.estimator.store import Store
from evergraph.estimator.transaction import load_state
from evergraph.serve.requests import MOST_EXPLAINED, Question
from evergraph.serve.worker import log

CPU = torch.device("cpu")
#: Seconds between looks for a new version.
LOOK = 0.2
#: Most questions that are joined.
MOST_JOINED = 256
#: What int() reads beyond this is no name.
_WHOLE = re.compile(r"-?[0-9]{1,18}")
T = TypeVar("T")


class NotFound(InputError):
    """Something that is asked for by name is not there."""


@dataclass(frozen=True)
class Version:
    """A state with its number and what tells it from another of the same number."""

    number: int
    state: State
    checksum: bytes = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> Version:
        """Reads the current version and computes what its first answer needs."""
        state, number = load_state(folder)
        if state.classes:
            state.logits(CPU, torch.arange(min(1, state.graph.num_nodes)))
        assert state.saved is not None
        return cls(number, state, state.saved[2].checksum)

    def answers(self, questions: list[Question]) -> list[dict[str, Any] | InputError]:
        """Answers plain questions with one prediction of all their nodes."""
        found: list[Any] = []
        for question in questions:
            try:
                self._check()
                found.append(question.seen(self.state)[1])
            except InputError as error:
                found.append(error)
        good = [rows for rows in found if not isinstance(rows, InputError)]
        if not good:
            return found
        logits = self.state.logits(CPU, torch.cat(good))
        parts = iter(torch.split(self.state.probabilities(logits), [len(rows) for rows in good]))
        return [
            rows if isinstance(rows, InputError) else self._told(question, next(parts).numpy())
            for question, rows in zip(questions, found, strict=True)
        ]

    def answer(self, question: Question) -> dict[str, Any]:
        """Answers any question by itself."""
        self._check()
        if question.explain and len(question.ids) > MOST_EXPLAINED:
            raise InputError(
                f"Expected at most {MOST_EXPLAINED} ids with 'explain' (got {len(question.ids)}); "
                "ask again for the others."
            )
        state, rows = question.seen(self.state)
        told = self._told(question, state.probabilities(state.logits(CPU, rows)).numpy())
        if question.reject is not None:
            detector = Novelty.of(self.state, CPU)
            limit = detector.threshold(question.reject)
            for node, score in zip(told["nodes"], detector.scores(state, rows), strict=True):
                node["novelty"] = float(score)
                if score > limit:
                    node["label"] = None
        if question.explain:
            for node, why in zip(told["nodes"], explain(state, rows), strict=True):
                node["explanation"] = why.summary()
        return told

    def node(self, name: str) -> dict[str, Any]:
        """Describes a known node, as far as its method can."""
        self._check()
        names = self.state.graph.names
        known: list[Any] = [name]
        if names.kind is int and _WHOLE.fullmatch(name):
            known = [int(name)]
        rows = torch.from_numpy(names.where(known))
        if int(rows[0]) < 0:
            raise NotFound("Expected the name of a known node (got another); correct it.")
        question = Question(ids=known, top=3)
        (told,) = self.answers([question])
        assert isinstance(told, dict)
        node = {"version": self.number, **told["nodes"][0]}
        node["novelty"] = float(Novelty.of(self.state, CPU).scores(self.state, rows)[0])
        try:
            node["explanation"] = explain(self.state, rows)[0].summary()
        except InputError as error:  # of a method that cannot be explained
            node |= {"explanation": None, "not_explained": str(error)}
        return node

    def _check(self) -> None:
        if not self.state.classes:
            raise InputError("Expected a state that has learned labels (got none); teach it some.")

    def _told(self, question: Question, proba: Any) -> dict[str, Any]:
        classes, nodes = self.state.classes, []
        best = np.argsort(-proba, axis=1, kind="stable")[:, : question.top]
        for name, order, p in zip(question.ids, best.tolist(), proba, strict=True):
            node: dict[str, Any] = {"id": name, "label": classes[order[0]]}
            node["probability"] = float(p[order[0]])
            if question.top > 1:
                node["top"] = [{"label": classes[c], "probability": float(p[c])} for c in order]
            nodes.append(node)
        return {"version": self.number, "nodes": nodes}


class Answers:
    """Keeps the newest version and answers from it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(folder)
        self.version = Version.load(folder)
        self.joined = 0  # questions that were joined with others
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("plain", "slow", "load")
        ]
        self._waiting: list[tuple[Question, asyncio.Future[dict[str, Any]]]] = []
        self._asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to answer, and to look for new versions."""
        self._tasks = [asyncio.create_task(work()) for work in (self._answer, self._follow)]

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
            return await self._slowly(lambda: self.version.answer(question))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        self._asked.set()
        return await future

    async def node(self, name: str) -> dict[str, Any]:
        """Describes a node."""
        return await self._slowly(lambda: self.version.node(name))

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
        """Loads the newest version if it is another one; what was used of the old one is ready."""
        if self.store.newest() == (self.version.number, self.version.checksum):
            return self.version
        found = Version.load(self.folder)
        if "novelty" in self.version.state.computed and found.state.classes:
            Novelty.of(found.state, CPU)
        log("version taken over", version=found.number)
        return found
