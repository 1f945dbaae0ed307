"""Worker: the process that learns queued changes in order, and the thread that keeps it alive.

It writes a change's key into the history of the version that it makes, so that after a kill at any
moment nobody need guess whether the change was learned (decision 0043).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from evergraph.device import pick_device
from evergraph.errors import InputError, one_line
from evergraph.estimator.content import state_content
from evergraph.estimator.state import State
from evergraph.estimator.step import complete, prepare
from evergraph.estimator.store import Store
from evergraph.estimator.transaction import load_state
from evergraph.serve.queue import Queue
from evergraph.serve.requests import read_taught

#: Name of the key in the report of a history's entry.
KEY = "change"
#: Seconds between looks at the queue, before another try where the disk or a lock is in the way.
PAUSE, AGAIN = 1.0, 0.5
#: A change during which the worker died so often is refused.
MOST_DEATHS = 3


def log(event: str, **about: Any) -> None:
    """Writes a line of JSON to standard error."""
    line = {"time": round(time.time(), 3), "event": event, **about}
    print(json.dumps(line, default=str), file=sys.stderr, flush=True)


class Worker:
    """Starts the process, wakes it, and starts it again when it dies."""

    def __init__(self, folder: Path, device: str, queue: Queue) -> None:
        self.words = [sys.executable, "-m", __name__, str(folder.resolve()), device]
        self.queue = queue
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker", daemon=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begins to learn what waits."""
        self._thread.start()

    def wake(self) -> None:
        """Says that there is something to learn."""
        with suppress(OSError, ValueError):
            if self.process is not None and self.process.stdin is not None:
                self.process.stdin.write(b"\n")
                self.process.stdin.flush()

    def stop(self) -> None:
        """Ends the process; what it was learning is learned next time."""
        self._stopping.set()
        if self.process is not None:
            with suppress(OSError):
                self.process.kill()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            threads = str(max(1, (os.cpu_count() or 1) - 1))  # one processor is left to answer
            limits = {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}
            # Ctrl-C is for the server, which ends it.
            self.process = subprocess.Popen(
                self.words,
                stdin=subprocess.PIPE,
                start_new_session=True,
                env={**limits, **os.environ},
            )
            if self._stopping.is_set():
                self.process.kill()
            code = self.process.wait()
            if self._stopping.is_set():
                return
            log("worker died", code=code)
            with suppress(Exception):  # the disk may be full: it is started again all the same
                self.count_death()
            self._stopping.wait(AGAIN)

    def count_death(self) -> None:
        """Notes that the process died, and refuses a change that it always dies of."""
        found = self.queue.died()
        if found is not None and found[1] >= MOST_DEATHS:
            sentence = (
                f"Expected a change that can be learned (the process that learned it died "
                f"{found[1]} times, perhaps for want of memory); split it."
            )
            self.queue.end(found[0], sentence=sentence)


def work(folder: Path, device: str, wake: threading.Event) -> None:
    """Learns what is queued until the process is ended."""
    store, queue = Store(folder), Queue(folder)
    with store.writing():
        store.check_settled()
        learner = Learner(store, queue, device, *load_state(folder))
        log("worker ready", version=learner.number)
        while True:
            while learner.step():
                pass
            wake.wait(PAUSE)
            wake.clear()


class Learner:
    """A state that follows its queue, within the store's lock."""

    def __init__(self, store: Store, queue: Queue, device: str, state: State, number: int) -> None:
        self.store, self.queue, self.state, self.number = store, queue, state, number
        self.device = pick_device(device)
        self.learned = {entry.report.get(KEY) for entry in state.history}

    def step(self) -> bool:
        """Learns the next change; tells whether there was one."""
        waiting = self.queue.waiting(most=1)
        if not waiting:
            return False
        number, key, form, body = waiting[0]
        if key in self.learned:  # killed after the version was there and before that was noted
            self.queue.end(number, version=self.number)
            return True
        self.queue.begin(number)
        begun = time.monotonic()
        try:
            following = self._learn(key, form, body)
        except Exception as error:
            sentence = str(error)
            if not isinstance(error, InputError):
                sentence = f"Expected a change that can be learned (got {type(error).__name__})."
                log("change failed", change=number, error=one_line(repr(error)))
            self.queue.end(number, sentence=sentence)
            log("change refused", change=number)
            return True
        self._commit(following)
        self.learned.add(key)
        self.queue.end(number, version=self.number)
        seconds = round(time.monotonic() - begun, 3)
        log("change learned", change=number, version=self.number, seconds=seconds)
        return True

    def _learn(self, key: str, form: str, body: bytes) -> State:
        change = read_taught(form, body, self.state)
        following, trained, told = prepare(self.state, change)
        prepared = (following, trained, {**told, KEY: key})
        return complete(self.state, change, prepared, self.device)

    def _commit(self, following: State) -> None:
        """Makes the version, as often as it takes: the change was accepted, the disk is full."""
        before = self.state.saved[2] if self.state.saved is not None else None
        while True:
            try:
                stored = self.store.commit(self.number + 1, state_content(following), before=before)
                break
            except InputError as error:
                log("version not written", error=str(error))
                time.sleep(PAUSE)
        self.number += 1
        place = self.store.folder.resolve()
        self.state = following.noting(saved=(place, self.number, stored))


def main() -> None:
    """Runs as a process: a line on standard input wakes it, the end of it ends it."""
    folder, device = Path(sys.argv[1]), sys.argv[2]
    wake = threading.Event()

    def listen() -> None:
        for _ in sys.stdin.buffer:
            wake.set()
        os._exit(0)  # the server is gone, and another may be waiting for the lock

    threading.Thread(target=listen, daemon=True).start()
    warnings.showwarning = lambda message, *_, **__: log("warning", text=str(message))
    told = ""
    while True:
        try:
            work(folder, device, wake)
        except InputError as error:  # another writer, or a state that has to be looked at
            if str(error) != told:
                log("worker waits", reason=(told := str(error)))
            time.sleep(AGAIN)


if __name__ == "__main__":
    main()
