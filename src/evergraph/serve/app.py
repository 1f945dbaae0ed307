"""The application: paths, and what they answer."""

from __future__ import annotations

import asyncio
import html
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from evergraph import __version__
from evergraph.errors import InputError, one_line
from evergraph.serve.answers import Answers
from evergraph.serve.guard import Guard, Impatient, Limits, Tokens, media_type
from evergraph.serve.metrics import Metrics
from evergraph.serve.queue import MOST_WAITING, Full, Queue
from evergraph.serve.requests import (
    JSON,
    MOST_ASKED,
    SUFFIXES,
    TABLES,
    Question,
    Teaching,
    form_of,
    read_body,
)
from evergraph.serve.teaching import Acceptance
from evergraph.serve.version import NotFound
from evergraph.serve.worker import Worker, log

#: Bodies of so many bytes are read in no time.
SHORT = 1 << 14
ARROW = "application/vnd.apache.arrow.stream"
#: Changes that the page shows.
SHOWN = 12
#: Nobody may show a page of ours within their own.
FRAMED = {"Content-Security-Policy": "frame-ancestors 'none'"}


#: What may go wrong: paths that are not there, too.
FAILURES: tuple[int | type[Exception], ...] = (
    *(404, 405, HTTPException, RequestValidationError),
    *(InputError, Full, sqlite3.Error, Exception),
)


@dataclass(frozen=True)
class Options:
    """How a state is served."""

    folder: Path
    read_only: bool = False
    device: str = "auto"
    tokens: Tokens = field(default_factory=Tokens)
    limits: Limits = field(default_factory=Limits)
    most_waiting: int = MOST_WAITING
    page: str = field(default="", repr=False)  # HTML for whoever opens the address in a browser


def make_app(options: Options) -> Guard:
    """Builds the application of one state; nothing is opened before it starts."""
    metrics = Metrics()
    parts: dict[str, Any] = {}

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        queue = None if options.read_only else Queue(options.folder, options.most_waiting)
        answers = Answers(options.folder) if queue is None else Answers(options.folder, queue.busy)
        answers.start()
        parts["answers"] = answers
        if queue is not None:
            worker = Worker(options.folder, options.device, queue)
            worker.start()
            parts.update(queue=queue, worker=worker, teaching=Acceptance(answers, queue, worker))
        log("ready", version=answers.state.version[0], read_only=options.read_only)
        yield
        if not options.read_only:
            parts["teaching"].stop()
            parts["worker"].stop()
        await answers.stop()

    app = FastAPI(
        title="Evergraph", version=__version__, lifespan=life, docs_url=None, redoc_url=None
    )
    for kind in FAILURES:
        app.add_exception_handler(kind, _failed)
    _add_watching(app, options, metrics, parts)

    def teaching() -> Acceptance:
        if options.read_only:
            raise HTTPException(403, "Expected a server that learns (this one is read-only).")
        found: Acceptance = parts["teaching"]
        return found

    @app.post("/predict", summary="Predict known or new nodes", openapi_extra=_body(Question))
    async def predict(request: Request) -> Response:
        body = await request.body()
        if len(body) < SHORT:
            question = read_body(Question, body)
        else:  # others need not wait for it
            question = await asyncio.to_thread(read_body, Question, body)
        if ARROW in request.headers.get("accept", ""):
            return Response(await parts["answers"].table(question), media_type=ARROW)
        if len(question.ids) > MOST_ASKED:
            raise InputError(
                f"Expected at most {MOST_ASKED} ids as JSON (got {len(question.ids)}); ask for "
                f"'{ARROW}', or for fewer."
            )
        return JSONResponse(await parts["answers"].predict(question))

    @app.get("/nodes/{name:path}", summary="Describe a known node")
    async def node(name: str) -> JSONResponse:
        return JSONResponse(await parts["answers"].node(name))

    @app.post(
        "/changes",
        status_code=202,
        summary="Teach: nodes, edges, labels, updates, removals",
        openapi_extra=_body(Teaching, *SUFFIXES),
    )
    async def change(request: Request) -> JSONResponse:
        key, kind = request.headers.get("idempotency-key"), request.headers["content-type"]
        form = form_of(media_type(kind), request.query_params.get("table"))
        told = await teaching().accept(form, await request.body(), key)
        where = {"Location": f"/changes/{told['number']}"}
        return JSONResponse(told, status_code=202, headers=where)

    @app.get("/changes/{number}", summary="What became of a change")
    async def changed(number: int) -> JSONResponse:
        known = 0 < number < 1 << 62
        found = await asyncio.to_thread(teaching().queue.get, number) if known else None
        if found is None:
            raise NotFound("Expected the number of a change (got another); correct it.")
        return JSONResponse(found)

    return Guard(app, options.limits, options.tokens, metrics)


def _add_watching(app: FastAPI, options: Options, metrics: Metrics, parts: dict[str, Any]) -> None:
    """Adds what is for whoever watches: people, Prometheus, systemd."""

    @app.get("/health", summary="Whether the process answers")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", summary="Whether a state is there to answer from, and its version")
    async def ready() -> dict[str, Any]:
        return {"status": "ready", "version": parts["answers"].state.version[0]}

    @app.get("/metrics", summary="Counts and measures for Prometheus")
    async def measures() -> Response:
        text = metrics.text(parts["answers"], parts.get("queue"))
        return Response(text, media_type="text/plain; version=0.0.4")

    @app.get("/status", summary="What an operator wants to know; what is known is left out")
    async def status(known: str = "") -> JSONResponse:
        number, about = await parts["answers"].about()
        told: dict[str, Any] = {"version": number, "read_only": options.read_only}
        told |= {"now": time.time(), "latency": metrics.recent(), "queue": None, "last": []}
        queue, novel = parts.get("queue"), parts["answers"].novel
        if queue is not None:
            told["queue"] = (await asyncio.to_thread(queue.state))[0]
            told["last"] = await asyncio.to_thread(queue.last, SHOWN)
        told["tag"] = f"{number}-{novel and novel['version']}"
        if known != told["tag"]:
            told |= {"about": about, "novel": novel}
        return JSONResponse(told)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()), headers=FRAMED)

    if options.page:

        @app.get("/", include_in_schema=False)
        async def page() -> HTMLResponse:
            return HTMLResponse(options.page, headers=FRAMED)


def settings(options: Options) -> dict[str, Any]:
    """Returns what uvicorn is run with."""
    return {
        "lifespan": "on",
        "ws": "none",
        "http": partial(Impatient, patience=options.limits.body_seconds),
        "access_log": False,
        "log_level": "warning",
        "server_header": False,
        "proxy_headers": False,
        "limit_concurrency": 2 * options.limits.requests + 8,  # connections
        "h11_max_incomplete_event_size": 1 << 15,  # bytes of headers
        "timeout_keep_alive": 15,
        "timeout_graceful_shutdown": 10,
    }


def _failed(_: Request, error: Exception) -> JSONResponse:
    """Turns what goes wrong into one sentence, without a word about the inside."""
    status, sentence, wait = 500, "Something failed inside; the log says what.", ""
    if isinstance(error, InputError):
        status, sentence = 404 if isinstance(error, NotFound) else 422, str(error)
    elif isinstance(error, RequestValidationError):
        status = 422
        sentence = one_line(f"Expected another value: {error.errors()[0]['msg']}.")
    elif isinstance(error, HTTPException):
        status, sentence = error.status_code, str(error.detail)
    elif isinstance(error, Full):
        status, wait = 503, "2"
        sentence = "Expected room in the queue (it is full); send it again later."
    elif isinstance(error, sqlite3.Error):
        log("queue failed", error=str(error))
        status, wait = 503, "5"
        sentence = "Expected to store the change (the disk refused); send it again later."
    else:
        log("failed", error=one_line(repr(error)))
    headers = {"Retry-After": wait} if wait else None
    return JSONResponse({"error": sentence}, status_code=status, headers=headers)


def _body(kind: type[Question] | type[Teaching], *tables: str) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": kind.model_json_schema()}}
    content |= {name: {"schema": {"type": "string", "format": "binary"}} for name in tables}
    found: dict[str, Any] = {"requestBody": {"required": True, "content": content}}
    if tables:
        about = {"type": "string", "enum": list(TABLES)}
        told = "What a table of CSV or Parquet holds."
        found["parameters"] = [
            {"name": "table", "in": "query", "schema": about, "description": told}
        ]
    return found


def _page(openapi: dict[str, Any]) -> str:
    """Lists the paths; the usual page of FastAPI loads scripts from elsewhere."""
    rows = "".join(
        f"<tr><td><code>{html.escape(f'{method.upper()} {path}')}</code></td>"
        f"<td>{html.escape(about['summary'])}</td></tr>"
        for path, methods in openapi["paths"].items()
        for method, about in methods.items()
    )
    head = "<!doctype html><html lang=en><meta charset=utf-8><title>Evergraph</title>"
    return f'{head}<h1>Evergraph</h1><table>{rows}</table><p><a href="/openapi.json">OpenAPI</a>'
