"""``evergraph serve``: a state that answers and learns over HTTP."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from evergraph.errors import InputError, import_extra
from evergraph.estimator.store import Store
from evergraph.lab.cli.predict import StateArgument

#: The shortest token: one that is guessed is none.
SHORTEST = 16


@dataclass(frozen=True)
class Access:
    """Who may do what."""

    host: Annotated[str, "Address to listen on; another than this machine needs tokens."] = (
        "127.0.0.1"
    )
    port: Annotated[int, "Port to listen on, 0 for any that is free."] = 8765
    ask_token: Annotated[Path | None, "File with the token that clients need to ask."] = None
    teach_token: Annotated[Path | None, "File with the token that clients need to teach."] = None
    read_only: Annotated[bool, "Answer only; the state may be learned by others."] = False


def serve(
    state: StateArgument,
    *,
    access: Access,
    queue: Annotated[int, "Most changes that wait to be learned."] = 100,
    requests: Annotated[int, "Most requests at once."] = 64,
    body: Annotated[int, "Longest body of a request, in MiB."] = 16,
    device: Annotated[str, "Device to learn on: auto, cpu or cuda."] = "auto",
) -> None:
    """Answer questions about a state over HTTP, and learn the changes that clients send."""
    uvicorn = import_extra("uvicorn", "serve", "uvicorn, which serves a state")
    import_extra("fastapi", "serve", "FastAPI, which serves a state")
    import_extra("prometheus_client", "serve", "prometheus-client, which serves a state")
    for name, value, most in (
        ("--port", access.port, 65_535),
        ("--queue", queue - 1, 10_000),
        ("--requests", requests - 1, 10_000),
        ("--body", body - 1, 200),
    ):
        if not 0 <= value <= most:
            raise InputError(f"Expected '{name}' up to {most} (got {value}); change it.")
    tokens = [_token(path) for path in (access.ask_token, access.teach_token)]
    if not _is_loopback(access.host) and None in (tokens[0], tokens[1] or access.read_only or None):
        raise InputError(
            f"Expected --ask-token and --teach-token (or --read-only) to listen on '{access.host}' "
            "(got none); give files with tokens, or listen on 127.0.0.1."
        )
    store = Store(state)
    store.check_there()
    if not access.read_only:
        store.check_settled()
    import torch  # noqa: PLC0415 - slow to import

    from evergraph.lab.page import live_page  # noqa: PLC0415 - as above
    from evergraph.serve.app import Options, make_app, settings  # noqa: PLC0415 - needs the extra
    from evergraph.serve.guard import Limits, Tokens  # noqa: PLC0415 - as above

    torch.set_num_threads(1)  # other threads of the server need the cores
    limits = Limits(body=body << 20, bodies=max(body << 22, 64 << 20), requests=requests)
    page = live_page(state.resolve().name)
    options = Options(state, access.read_only, device, Tokens(*tokens), limits, queue, page)
    with _listening(access.host, access.port) as listener:
        port = listener.getsockname()[1]
        host = f"[{access.host}]" if ":" in access.host else access.host
        print(f"Serving {state} at http://{host}:{port} (Ctrl-C stops)", flush=True)
        server = uvicorn.Server(uvicorn.Config(make_app(options), **settings(options)))
        server.run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            f"Expected to listen on '{host}', port {port} (got: {error.strerror}); choose another."
        ) from None


def _token(path: Path | None) -> str | None:
    """Reads a token from a file."""
    if path is None:
        return None
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"Expected a file with a token (got '{path}'); check the path.") from None
    if not SHORTEST <= len(text) <= 1000 or not text.isascii() or not text.isprintable():
        raise InputError(
            f"Expected a token of at least {SHORTEST} printable characters in '{path}' (got "
            "another); make one with 'openssl rand -hex 32'."
        )
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
