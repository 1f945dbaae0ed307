"""Metrics: what is counted and measured, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from evergraph.serve.answers import Answers
from evergraph.serve.queue import Queue

#: Methods that are counted by name: a client may make up others.
METHODS = {"GET", "POST", "HEAD"}
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30)


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

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        named = method if method in METHODS else "other"
        self._requests.labels(named, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, answers: Answers, queue: Queue | None) -> bytes:
        """Writes all of it as it is now."""
        version = answers.version
        state = version.state
        self._set("version", "Version of the state that answers.", version.number)
        self._set("nodes", "Nodes of the graph.", state.graph.num_nodes)
        self._set("edges", "Edges of the graph.", state.graph.num_edges)
        self._set("classes", "Classes known.", len(state.classes))
        self._set("joined", "Questions answered together with others.", answers.joined)
        if state.history:
            last = state.history[-1]
            if last.accuracy is not None:
                told = "Accuracy on held-out nodes in percent."
                self._set("held_out_accuracy", told, last.accuracy)
            alarms = sum(compared.alarm for compared in last.watch)
            self._set("alarms", "Alarms of the last change.", alarms)
        if queue is not None:
            for status, count in queue.state()[0].items():
                self._set(f"changes_{status}", f"Changes that are {status}.", count)
        return generate_latest(self.registry)

    def _set(self, name: str, told: str, value: float) -> None:
        if name not in self._gauges:
            self._gauges[name] = Gauge(f"evergraph_{name}", told, registry=self.registry)
        self._gauges[name].set(value)
