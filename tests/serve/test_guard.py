"""Hostile requests: tokens, sizes, slow clients, nonsense; no 500, and no token in the log."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from evergraph.serve.app import ARROW, Options
from evergraph.serve.guard import Limits, Tokens
from evergraph.serve.requests import SUFFIXES
from served import Ask, serving, taught
from support import Command

ASK, TEACH = "a" * 20, "t" * 20


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Ask]:
    limits = Limits(body=20_000, bodies=60_000, body_seconds=0.5, requests=16)
    with serving(Options(folder, device="cpu", limits=limits)) as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_tokens_open_what_they_are_for(folder: Path, capfd: pytest.CaptureFixture[str]):
    options = Options(folder, device="cpu", tokens=Tokens(ASK, TEACH))
    question, wrong = {"ids": ["n1"]}, {"ids": ["n1"], "x": [[0] * 8]}
    with serving(options) as client:
        assert client("GET", "/health").status == client("GET", "/ready").status == 200
        for given, asking, teaching in (
            ({}, 401, 401),
            (bearer("b" * 20), 401, 401),
            ({"Authorization": ASK}, 401, 401),
            (bearer(ASK), 200, 401),
            (bearer(TEACH), 200, 422),
        ):
            assert client("POST", "/predict", question, headers=given).status == asking
            assert client("GET", "/nodes/n1", headers=given).status == asking
            assert client("GET", "/metrics", headers=given).status == asking
            assert client("POST", "/changes", wrong, headers=given).status == teaching
        assert client("GET", "/changes/1", headers=bearer(ASK)).status == 401
        assert client("GET", "//changes/1", headers=bearer(ASK)).status == 404
    told = capfd.readouterr()
    assert ASK not in told.err + told.out
    assert TEACH not in told.err + told.out
    assert "n1" not in told.err


def test_page_in_a_browser_cannot_teach(client: Ask):
    plain = {"Content-Type": "text/plain"}
    assert client("POST", "/changes", taught(0), headers=plain).status == 415
    assert client("POST", "/changes", taught(0), headers={"Host": "evil.example"}).status == 421
    answer = client("OPTIONS", "/changes", headers={"Origin": "http://evil.example"})
    assert answer.status == 405
    assert "access-control-allow-origin" not in answer.headers


def test_long_bodies_are_refused_however_they_are_sent(client: Ask):
    assert client("POST", "/predict", b" " * 20_001).status == 413

    def parts() -> Iterator[bytes]:
        yield from [b" " * 5000] * 10

    told = raw(client, b"POST /predict HTTP/1.1\r\nContent-Length: 1000000000000000000000\r\n")
    assert told.split()[1] in {b"413", b"400"}
    chunked = b"POST /predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
    body = b"".join(b"1388\r\n" + part + b"\r\n" for part in parts())
    assert raw(client, chunked, body).split()[1] == b"413"


def raw(client: Ask, head: bytes, body: bytes = b"", wait: float = 5) -> bytes:
    """Sends bytes as they are, and returns what comes back."""
    place = ("127.0.0.1", client.port)
    with socket.create_connection(place, timeout=wait) as connection:
        kind = b"Host: localhost\r\nContent-Type: application/json\r\n\r\n"
        connection.sendall(head + kind + body)
        found = b""
        try:
            while part := connection.recv(4096):
                found += part
                if b"\r\n\r\n" in found:
                    break
        except TimeoutError:
            pass
        return found


def test_slow_bodies_are_not_waited_for(client: Ask):
    begun = time.monotonic()
    told = raw(client, b"POST /predict HTTP/1.1\r\nContent-Length: 100\r\n", b"{")
    assert told.split()[1] == b"408"
    assert time.monotonic() - begun < 4


def test_connections_without_a_request_are_ended(client: Ask):
    for begin in (b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal"):
        place = ("127.0.0.1", client.port)
        with socket.create_connection(place, timeout=5) as connection:
            connection.sendall(begin)
            with suppress(ConnectionResetError):
                while connection.recv(4096):  # until the server ends it
                    pass


def test_too_many_requests_at_once_are_refused_and_the_others_answered(client: Ask):
    def slow(_: int) -> bytes:
        return raw(client, b"POST /predict HTTP/1.1\r\nContent-Length: 100\r\n", b"{")

    with ThreadPoolExecutor(24) as pool:
        found = [told.split()[1] for told in pool.map(slow, range(24))]
    assert set(found) == {b"408", b"503"}
    assert client("POST", "/predict", {"ids": ["n1"]}).status == 200


def nonsense(random: Random) -> tuple[str, str, Any, dict[str, str]]:
    """Makes up a request that is wrong in some way, or nearly right."""
    values: list[Any] = [None, 0, -1, 2**70, 1e308, True, "", "n1", "\u0000", "x" * 5000, [], {}]
    values += [[["n1"]], {"a": {}}, ["n1"] * 300, [[0] * 8], "<script>", "../../etc/passwd", "%00"]
    values += [[{"0": 1}], [{"9" * 30: 1}], [{"0": "1"}], [{}, []], ["n1"] * 20_000]
    keys = ["ids", "x", "edges", "labels", "top", "reject", "explain", "removed", "updated", "odd"]
    body: Any = {key: random.choice(values) for key in random.sample(keys, random.randint(0, 4))}
    if random.random() < 0.5:
        body["ids"] = ["n1"]
    data = json.dumps(body).encode()
    match random.randrange(8):
        case 0:
            data = data[: random.randrange(len(data) + 1)]
        case 1:
            data = random.randbytes(random.randrange(200))
        case 2:
            data = b"[" * random.randrange(300_000)
        case 3:
            data = random.choice(
                [b"id,label\nn1,a\n", b"source,target\nn1,n2\n", b"\n", b"id\n'=1"]
            )
        case 4:
            table = {"id": ["a"] * 50_000, **{f"{at}": [0.0] * 50_000 for at in range(8)}}
            data = parquet(table)[: random.choice([10**9, 500])]
        case 5:
            data = b" " * random.randrange(2 << 20)
    names = ["n1", "%00", "..%2f..%2fetc", "%ff", "a" * 3000, "<b>", "-", "9" * 400, "", "%F0%9F"]
    path = random.choice(["/predict", "/changes", "/nodes/", "/changes/", "/nothing", "/docs"])
    path += random.choice(names) if path.endswith("/") else random.choice(["", "?a=%00", "//"])
    path += random.choice(["?table=edges", "?table=nodes", ""]) if path == "/changes" else ""
    headers = {"Idempotency-Key": random.choice(["k", "\u00e9" * 9, "z" * 300])}
    headers |= random.choice([{}, {"Authorization": "Bearer x"}, {"Content-Type": "a/b"}])
    headers |= random.choice([{}, *({"Content-Type": kind} for kind in SUFFIXES)])
    headers |= random.choice([{}, {"X": "y" * 9000}, {"Accept": "\u00ff"}, {"Expect": "nothing"}])
    headers |= random.choice([{}, {"Accept": ARROW}])
    return random.choice(["GET", "POST", "POST", "POST", "PUT", "QUX"]), path, data, headers


def parquet(columns: dict[str, Any]) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    sink = arrow.BufferOutputStream()
    arrow.parquet.write_table(arrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


def resident() -> int:
    """Returns the bytes of memory that this process holds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_thousand_hostile_requests_get_a_sentence_each_and_no_memory(
    folder: Path, capfd: pytest.CaptureFixture[str]
):
    limits = Limits(body=1 << 20, bodies=4 << 20, body_seconds=0.5, requests=16)
    random, seen = Random(0), set()

    def send(made: tuple[str, str, Any, dict[str, str]]) -> None:
        method, path, data, headers = made
        try:
            answer = client(method, path, data, headers=headers)
        except ConnectionError:  # it did not wait for the end of a body that is too long
            return
        seen.add(answer.status)
        assert answer.status < 500 or answer.status == 503, (method, path, data[:200], headers)
        if answer.status >= 400 and isinstance(answer.body, dict):
            assert answer.body["error"]
        assert "Traceback" not in str(answer.body)

    def dawdle(at: int) -> None:
        begin = (b"", b"GET /hea", b"POST /predict HTTP/1.1\r\nContent-Length: 100\r\n")[at % 3]
        for _ in range(4):
            with suppress(OSError):
                raw(client, begin, b"{", wait=2)

    with serving(Options(folder, device="cpu", limits=limits)) as client:
        for _ in range(150):  # everything is loaded that will ever be
            send(nonsense(random))
        before = resident()
        with ThreadPoolExecutor(8) as pool:
            slow = [pool.submit(dawdle, at) for at in range(4)]
            list(pool.map(send, (nonsense(random) for _ in range(850))))
            assert all(one.exception() is None for one in slow)
        assert resident() - before < 64 << 20
        assert client("POST", "/predict", {"ids": ["n1"]}).status == 200
    assert {200, 404, 405, 413, 415, 422} <= seen
    told = capfd.readouterr()
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["missing"], "learn into it first"),
        (["state", "--host", "0.0.0.0"], "--ask-token"),
        (["state", "--port", "70000"], "--port"),
        (["state", "--ask-token", "short"], "at least 16"),
        (["state", "--ask-token", "nowhere"], "check the path"),
    ],
)
def test_command_says_what_is_wrong(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
):
    monkeypatch.chdir(folder.parent)
    Path("short").write_text("secret\n")
    answer = command("serve", *words)
    assert answer.code == 2
    assert told in answer.err
    assert "secret" not in answer.err
