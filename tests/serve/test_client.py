"""The client: what it hands over arrives once, and what is refused raises the server's sentence."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from evergraph import Client, ContinualNodeClassifier, InputError
from evergraph.serve.app import Options
from evergraph.serve.guard import Tokens
from served import Ask, serving, taught, wait_for
from support import Command

ASK, TEACH = "a" * 20, "t" * 20
DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Ask]:
    with serving(Options(folder, device="cpu", tokens=Tokens(ASK, TEACH))) as found:
        yield found


def test_client_teaches_and_asks(server: Ask, folder: Path):
    with Client(f"http://localhost:{server.port}/", token=TEACH) as client:
        before = client.version()
        number = client.teach(**taught(0) | {"x": np.array(taught(0)["x"])}, key="mine")
        told = client.wait(number)
        assert client.teach(**taught(0), key="mine") == number
        wait_for(lambda: client.version() == told["version"] == before + 1)
        found = client.predict(np.array(["n1", "new-0"]), top=2)
        clf = ContinualNodeClassifier.load(folder)
        assert [node["label"] for node in found["nodes"]] == clf.predict(["n1", "new-0"]).tolist()
        assert client.node("new-0")["explanation"]["label"] == found["nodes"][1]["label"]
        new = client.predict(["a"], x=np.ones((1, 8)), edges=[("a", "n1")])
        assert new["nodes"][0]["label"] == clf.predict(["a"], np.ones((1, 8)), [("a", "n1")])[0]


def test_client_raises_what_the_server_says(server: Ask):
    url = f"http://localhost:{server.port}"
    with Client(url, token=ASK) as client:
        with pytest.raises(InputError, match="'ids' to name known nodes"):
            client.predict(["nobody"])
        with pytest.raises(InputError, match="known node"):
            client.node("../changes/1?a=/b")
        with pytest.raises(PermissionError, match="token"):
            client.teach(removed=["n1"])
    with pytest.raises(InputError, match="url"):
        Client("localhost:8765")
    with pytest.raises(ConnectionError), Client("http://localhost:1", timeout=0.1) as client:
        client.version()


def test_command_serves_until_it_is_interrupted(tmp_path: Path, folder: Path):
    place = tmp_path / "state"
    ContinualNodeClassifier.load(folder, device="cpu").save(place)
    words = [sys.executable, "-m", "evergraph", "serve", str(place), "--read-only", "--port", "0"]
    kind = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(words, **kind) as server:
        line = server.stdout.readline()
        url = line.split()[3]
        with Client(url) as client:
            assert client.predict(["n1"])["version"] == 0
            os.kill(server.pid, signal.SIGINT)
            assert server.wait(timeout=30) in {0, 130}


def test_deployments_use_options_that_exist(command: Command):
    told = command("serve", "--help").out
    lines = [line for path in sorted(DEPLOY.iterdir()) for line in path.read_text().splitlines()]
    calls = [line for line in lines if re.match(r"#?ExecStart=|ENTRYPOINT|CMD", line)]
    used = {option for line in calls for option in re.findall(r"--[a-z-]+", line)}
    assert used == {"--host", "--ask-token", "--teach-token"}
    assert all(option in told for option in used)
