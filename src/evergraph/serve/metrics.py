"""Metrics: what is counted and measured, for Prometheus."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from evergraph.serve.answers import Answers
from evergraph.serve.queue import Queue
from evergraph.serve.watching import alarms

#: Methods that are counted by name: a client may make up others.
METHODS = {"GET", "POST", "HEAD"}
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30)


#: Seconds of a window, windows and times that are kept: what the page draws.
WINDOW, WINDOWS, MOST_TIMES = 10, 90, 5_000
ASKED = {"/predict", "/nodes/{name:path}"}


class Metrics:
    """A registry of its own, so that several servers may be in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names = ["method", "route", "status"]
        self._requests = Counter("evergraph_requests", "Requests.", names, registry=self.registry)
        self._seconds = Histogram(
            "evergraph_request_seconds",
            "Time until a request was answered.",
            ["route"],
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._gauges: dict[str, Gauge] = {}
        self._recent: deque[dict[str, Any]] = deque(maxlen=WINDOWS)
        self._window, self._count, self._times = 0, 0, list[float]()
        self._alarms = Gauge(
            "evergraph_alarms", "Alarms of the last change.", ["kind"], registry=self.registry
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        named = method if method in METHODS else "other"
        self._requests.labels(named, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if route in ASKED:
            at = int(time.time()) // WINDOW * WINDOW
            if at != self._window:
                self._recent.extend(self._now())
                self._window, self._count, self._times = at, 0, []
            self._count += 1
            if len(self._times) < MOST_TIMES:
                self._times.append(seconds)

    def recent(self) -> list[dict[str, Any]]:
        """Returns questions a second, median and 99th percentile in milliseconds, by window."""
        return [*self._recent, *self._now()]

    def _now(self) -> list[dict[str, Any]]:
        if not self._times:
            return []
        median, most = np.percentile(self._times, [50, 99])
        told = {"p50": round(1000 * median, 2), "p99": round(1000 * most, 2)}
        return [{"at": self._window, "rate": self._count / WINDOW, **told}]

    def text(self, answers: Answers, queue: Queue | None) -> bytes:
        """Writes all of it as it is now."""
        state = answers.state
        self._set("version", "Version of the state that answers.", state.version[0])
        self._set("nodes", "Nodes of the graph.", state.graph.num_nodes)
        self._set("edges", "Edges of the graph.", state.graph.num_edges)
        self._set("classes", "Classes known.", len(state.classes))
        self._set("joined", "Questions answered together with others.", answers.joined)
        if state.history:
            last = state.history[-1]
            if last.accuracy is not None:
                told = "Accuracy on held-out nodes in percent."
                self._set("held_out_accuracy", told, last.accuracy)
            for kind, count in alarms(state).items():
                self._alarms.labels(kind).set(count)
            raised = sum(any(one.alarm for one in entry.watch) for entry in state.history)
            self._set("changes_with_alarms", "Changes so far that raised an alarm.", raised)
        novel = answers.novel
        if novel is not None and "novel" in novel:
            told = "Of the last nodes without a label, those that fit no known class."
            self._set("novel_nodes", told, novel["novel"])
            told = "Whether these are more than chance explains: 1 or 0."
            self._set("novelty_alarm", told, int(novel["surely"]))
        if queue is not None:
            for status, count in queue.state()[0].items():
                self._set(f"changes_{status}", f"Changes that are {status}.", count)
        return generate_latest(self.registry)

    def _set(self, name: str, told: str, value: float) -> None:
        if name not in self._gauges:
            self._gauges[name] = Gauge(f"evergraph_{name}", told, registry=self.registry)
        self._gauges[name].set(value)
