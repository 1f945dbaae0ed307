"""Accepting changes: checked against the state as it will be when all that waits is learned."""

from __future__ import annotations

import asyncio
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from evergraph.errors import InputError
from evergraph.estimator.state import State
from evergraph.estimator.step import prepare
from evergraph.serve.answers import Answers
from evergraph.serve.queue import Full, Queue
from evergraph.serve.requests import MOST_KEY, read_taught
from evergraph.serve.worker import KEY, Worker


class Acceptance:
    """Checks a change, stores it and wakes the worker, one change after the other."""

    def __init__(self, answers: Answers, queue: Queue, worker: Worker) -> None:
        self.answers, self.queue, self.worker = answers, queue, worker
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="teaching")
        self._ahead: State | None = None  # with all that waits, but what was learned from it
        self._refused = 0

    async def accept(self, form: str, body: bytes, key: str | None) -> dict[str, Any]:
        """Returns the number and status of a change that is stored.

        Raises:
            InputError: If anything is wrong with it.
            Full: If it has to be sent again later.
        """
        if key is not None and not (0 < len(key) <= MOST_KEY and key.isprintable()):
            raise InputError(
                f"Expected an Idempotency-Key of 1 to {MOST_KEY} printable characters (got "
                "another); shorten it."
            )
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._accept, form, body, key)

    def stop(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _accept(self, form: str, body: bytes, key: str | None) -> dict[str, Any]:
        found = None if key is None else self.queue.find(key, form, body)
        if found is not None:
            return found
        present = self._present()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the worker tells
            following = prepare(present, read_taught(form, body, present))[0]
        number = self.queue.add(key or uuid.uuid4().hex, form, body)
        self._ahead = following
        self.worker.wake()
        return {"number": number, "status": "queued"}

    def _present(self) -> State:
        """Returns a state with the graph that the next change will meet."""
        state, (counts, last) = self.answers.state, self.queue.state()
        if counts["refused"] != self._refused:  # what was expected will not be
            self._refused, self._ahead = counts["refused"], None
        settled = state.version[0] >= last
        if settled and not counts["queued"] + counts["learning"]:
            self._ahead = None
            return state
        if self._ahead is not None:
            return self._ahead
        if not settled:  # a version is about to be taken over
            raise Full
        learned = {entry.report.get(KEY) for entry in state.history}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for _, key, form, body in self.queue.waiting():
                if key not in learned:
                    state = prepare(state, read_taught(form, body, state))[0]
        return state
