"""What tests of the server share: a small state, changes to it, and a server in a thread."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: Any


Ask = Callable[..., Answer]


def request(
    port: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Answer:
    """Asks once; a body that is not bytes is sent as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": "application/json"} if data is not None else {}
    with closing(http.client.HTTPConnection("localhost", port, timeout=30)) as connection:
        connection.request(method, path, data, given | (headers or {}))
        answer = connection.getresponse()
        text, named = answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    plain = named.get("content-type") == "application/json"
    return Answer(answer.status, named, json.loads(text) if plain else text.decode())


@contextmanager
def serving(options: Any) -> Iterator[Ask]:
    """Serves a state on a free port, in a thread."""
    import uvicorn

    from evergraph.serve.app import make_app, settings

    app = make_app(options)
    server = uvicorn.Server(uvicorn.Config(app, port=0, **settings(options)))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]

        def ask(*words: Any, **named: Any) -> Any:
            return request(port, *words, **named)

        ask.port = port  # type: ignore[attr-defined]
        yield ask
    finally:
        server.should_exit = True
        thread.join(timeout=30)


def wait_for(happened: Callable[[], Any], seconds: float = 60) -> Any:
    """Waits until something is true, and returns it."""
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return found


def first_batch(count: int = 60) -> dict[str, Any]:
    """Returns nodes of three classes, most of them labelled, around a ring."""
    rng, ids = np.random.default_rng(0), [f"n{at}" for at in range(count)]
    x = rng.random((count, 8)).round(3)
    x[np.arange(count), np.arange(count) % 3] += 2
    edges = [(ids[at], ids[(at + 3) % count]) for at in range(count)]
    labels = [f"class {at % 3}" if at % 4 else None for at in range(count)]
    return {"ids": ids, "x": x, "edges": edges, "labels": labels}


def more(number: int, at: str = "n0") -> dict[str, Any]:
    """Returns a further node with an edge and a label."""
    x, name = [0.1] * 8, f"new-{number}"
    x[number % 3] = 2.0
    return {"ids": [name], "x": [x], "edges": [(name, at)], "labels": [f"class {number % 3}"]}


def taught(number: int, at: str = "n0") -> dict[str, Any]:
    """Returns the same as the body of a request."""
    change = more(number, at)
    return {**change, "labels": [[change["ids"][0], change["labels"][0]]]}
