"""Guard: what stands before the application: tokens, limits, the log and the metrics.

A request's body is read here, completely and within limits of size and time, so that nothing behind
waits for a client. Neither tokens nor names of nodes are written to the log.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from evergraph.serve.metrics import Metrics
from evergraph.serve.requests import JSON, SUFFIXES
from evergraph.serve.worker import log

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
CLOSE = {"connection": "close"}
#: Paths that tell nothing about the state.
OPEN = {"/", "/health", "/ready", "/openapi.json", "/docs"}


@dataclass(frozen=True)
class Limits:
    """What a client may ask of the server."""

    body: int = 16 << 20  # bytes
    bodies: int = 64 << 20  # of all requests together
    body_seconds: float = 20.0
    seconds: float = 30.0  # until it is answered
    requests: int = 64  # at once


@dataclass(frozen=True)
class Tokens:
    """What clients show; None where none is needed."""

    ask: str | None = None
    teach: str | None = None

    def allow(self, path: str, given: bytes) -> bool:
        """Tells whether a path is open to who sends this ``Authorization``; teachers may ask."""
        if path in OPEN:
            return True
        teach = path == "/changes" or path.startswith("/changes/")
        wanted = self.teach if teach else self.ask
        if wanted is None:
            return True
        known = [self.teach] if teach else [self.ask, self.teach]
        same = [
            hmac.compare_digest(given, f"Bearer {token}".encode())
            for token in known
            if token is not None
        ]
        return any(same)


class Guard:
    """The application, guarded."""

    def __init__(self, app: App, limits: Limits, tokens: Tokens, metrics: Metrics) -> None:
        self.app, self.limits, self.tokens, self.metrics = app, limits, tokens, metrics
        self.running = self.held = 0  # requests, and bytes of their bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or lets the application do it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status, body = time.perf_counter(), 0, bytearray()

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
            await send(message)

        self.running += 1
        try:
            self._check(scope)
            await self._read(receive, body)
            with _in_time(504, "Expected an answer in time (it took too long)."):
                async with asyncio.timeout(self.limits.seconds):
                    await self.app(scope, _replay(bytes(body), receive), watched)
        except HTTPException as refusal:
            if not status:
                told, headers = {"error": refusal.detail}, refusal.headers
                await JSONResponse(told, refusal.status_code, headers)(scope, receive, watched)
        except Exception as error:  # answered and logged already, or the client is gone
            if not status:
                log("failed", error=type(error).__name__)
        finally:
            self.running -= 1
            self.held -= len(body)
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - begun
            self.metrics.observe(scope["method"], route, status, seconds)
            about = {"method": scope["method"][:10], "route": route, "status": status}
            log("request", **about, seconds=round(seconds, 4))

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self.running > self.limits.requests:
            told = "Expected fewer requests at once; try again."
            raise HTTPException(503, told, {"retry-after": "1"})
        if not self.tokens.allow(scope["path"], headers.get(b"authorization", b"")):
            told = "Expected a token that allows this (got none or another); send Authorization."
            raise HTTPException(401, told, {"www-authenticate": "Bearer"})
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self.tokens.ask is None and name not in LOOPBACK:  # a page may have renamed this machine
            raise HTTPException(421, "Expected 'Host' to be this machine (got another name).")
        kind = media_type(headers.get(b"content-type", b"").decode("latin-1"))
        # All of these make a browser ask first whether a page from elsewhere may send them.
        known = {JSON, *(SUFFIXES if scope["path"] == "/changes" else ())}
        if scope["method"] == "POST" and kind not in known:
            told = f"Expected a body of {' or '.join(sorted(known))} (got another)."
            raise HTTPException(415, told)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.limits.body:
            raise self._too_large()

    def _too_large(self) -> HTTPException:
        told = f"Expected a body of at most {self.limits.body} bytes (got more); split it."
        return HTTPException(413, told, CLOSE)

    async def _read(self, receive: Receive, body: bytearray) -> None:
        """Reads a body; what it takes is counted until the request is answered."""
        more = True
        with _in_time(408, "Expected the body sooner; send it again.", CLOSE):
            async with asyncio.timeout(self.limits.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise HTTPException(400, "Expected a whole body (the client left).")
                    body += message.get("body", b"")
                    self.held += len(message.get("body", b""))
                    if len(body) > self.limits.body:
                        raise self._too_large()
                    if self.held > self.limits.bodies:
                        told = "Expected less data at once; try again."
                        raise HTTPException(503, told, {"retry-after": "1", **CLOSE})
                    more = message.get("more_body", False)


@contextmanager
def _in_time(status: int, sentence: str, headers: dict[str, str] | None = None) -> Iterator[None]:
    """Turns what took too long into an answer."""
    try:
        yield
    except TimeoutError:
        raise HTTPException(status, sentence, headers) from None


class Impatient(H11Protocol):
    """uvicorn's connection, which ends when no request comes or nobody takes the answer."""

    def __init__(self, *words: Any, patience: float, **named: Any) -> None:
        super().__init__(*words, **named)
        self.patience = patience

    def connection_made(self, transport: Any) -> None:
        """Begins to watch a connection."""
        super().connection_made(transport)
        # asyncio does so for sockets that say they are of TCP, which ours leaves open.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.loop.call_later(self.patience, self._look, None)

    def _look(self, before: Any) -> None:
        idle = self.cycle is before and (before is None or before.response_complete)
        if self.transport.is_closing():  # perhaps with an answer that is being read
            self.loop.call_later(self.patience, self.transport.abort)
        elif idle:
            self.transport.abort()
        else:
            self.loop.call_later(self.patience, self._look, self.cycle)


def media_type(header: str) -> str:
    """Returns a type without its parameters."""
    return header.partition(";")[0].strip().lower()


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hands a body over that was read, and then what else the client does."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> MutableMapping[str, Any]:
        return parts.pop() if parts else await receive()

    return again
