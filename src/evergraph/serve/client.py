"""Client: asks and teaches a served state from Python, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import time
import uuid
from typing import Any, Self
from urllib.parse import quote, urlsplit

from evergraph.errors import InputError

#: Seconds before another try where the server does not say.
PAUSE = 0.5


class Client:
    """Speaks to ``evergraph serve``.

    One thread may use it at a time. What fails for a moment is sent again, a change with the same
    key, so that it is learned once.

    Args:
        url: Where the server is, such as ``http://127.0.0.1:8765``.
        token: The token for asking or teaching, if the server wants one.
        timeout: Seconds to wait for an answer, all tries together.

    Example:
        >>> with Client("http://127.0.0.1:8765") as client:  # doctest: +SKIP
        ...     number = client.teach(ids=["new"], x=[[0.0, 1.0]], labels=[("new", "spam")])
        ...     client.wait(number)
        ...     client.predict(["new"])["nodes"][0]["label"]
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8765", *, token: str | None = None, timeout: float = 60.0
    ) -> None:
        parts = urlsplit(url)
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if parts.scheme not in kinds or not parts.hostname:
            raise InputError(f"Expected 'url' such as http://127.0.0.1:8765 (got {url!r}).")
        self.timeout = timeout
        self._root = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=timeout)

    def predict(self, ids: Any, x: Any = None, edges: Any = None, **options: Any) -> dict[str, Any]:
        """Returns ``version`` and ``nodes``: label and probability of known or new nodes.

        Args:
            ids: Names of nodes.
            x: Features of new nodes, a row per id.
            edges: Pairs of ids, of new and known nodes.
            options: ``top`` (how many classes), ``reject`` (share of known nodes that may be
                refused) and ``explain``.
        """
        return self._ask("POST", "/predict", {"ids": ids, "x": x, "edges": edges, **options})

    def node(self, name: int | str) -> dict[str, Any]:
        """Describes a known node: prediction, novelty and what decided."""
        return self._ask("GET", f"/nodes/{quote(str(name), safe='')}")

    def teach(self, *, key: str | None = None, **parts: Any) -> int:
        """Hands a change over and returns its number as soon as it is stored.

        Args:
            key: Tells this change from others, also after a failure; made up if there is none.
            parts: ``ids``, ``x``, ``edges``, ``labels`` (pairs of a node and its class),
                ``updated``, ``updated_x``, ``removed`` and ``removed_edges``.
        """
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return int(self._ask("POST", "/changes", parts, headers)["number"])

    def change(self, number: int) -> dict[str, Any]:
        """Tells what became of a change: ``status``, ``version`` and ``sentence``."""
        return self._ask("GET", f"/changes/{number:d}")

    def wait(self, number: int, timeout: float = 600.0) -> dict[str, Any]:
        """Waits until a change is learned; one that is refused raises :class:`InputError`."""
        end = time.monotonic() + timeout
        while (told := self.change(number))["status"] not in {"done", "refused"}:
            if time.monotonic() > end:
                raise TimeoutError(f"change {number} is still {told['status']}")
            time.sleep(0.1)
        if told["status"] == "refused":
            raise InputError(told["sentence"])
        return told

    def version(self) -> int:
        """Returns the version of the state that answers."""
        return int(self._ask("GET", "/ready")["version"])

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        data = None
        if body is not None:
            given = {key: value for key, value in body.items() if value is not None}
            data = json.dumps(given, default=lambda value: value.tolist()).encode()
        named = {**self._headers, **(headers or {}), "Content-Type": "application/json"}
        end = time.monotonic() + self.timeout
        while True:
            try:
                self._connection.request(method, self._root + path, data, named)
                answer = self._connection.getresponse()
                told, status = answer.read(), answer.status
                after = answer.headers.get("Retry-After", "")
                wait = float(after) if after.isdecimal() else PAUSE
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if time.monotonic() + PAUSE > end:
                    raise ConnectionError(f"no answer from the server ({error})") from error
                time.sleep(PAUSE)
                continue
            if status < 400:
                found: dict[str, Any] = json.loads(told)
                return found
            if status != 503 or time.monotonic() + wait > end:
                raise _error(status, told)
            time.sleep(wait)


def _error(status: int, told: bytes) -> Exception:
    """Makes an exception of what the server says."""
    try:
        sentence = str(json.loads(told)["error"])
    except (ValueError, LookupError, TypeError):
        sentence = f"Expected an answer of evergraph serve (got status {status}); check the url."
    if status in {401, 403}:
        return PermissionError(sentence)
    return InputError(sentence) if status < 500 else ConnectionError(sentence)
