"""Forms of bodies and answers: tables of CSV and Parquet, sparse rows, Arrow, and the status."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("pyarrow")

import pyarrow as arrow
from pyarrow import parquet

from evergraph import ContinualNodeClassifier
from evergraph.serve.app import ARROW, Options
from evergraph.serve.requests import MOST_CELLS, MOST_ROWS
from served import Ask, first_batch, more, serving, wait_for

CSV, PARQUET = {"Content-Type": "text/csv"}, {"Content-Type": "application/vnd.apache.parquet"}
FEATURES = [f"f{at}" for at in range(8)]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state whose features have names."""
    frames = pytest.importorskip("pandas")
    place = tmp_path_factory.mktemp("formed") / "state"
    batch = first_batch()
    batch["x"] = frames.DataFrame(batch["x"], columns=FEATURES)
    ContinualNodeClassifier("analytic", device="cpu").learn(**batch).save(place)
    return place


@pytest.fixture(scope="module")
def client(begun: Path) -> Iterator[Ask]:
    with serving(Options(begun, device="cpu")) as found:
        yield found


def as_parquet(columns: dict[str, Any]) -> bytes:
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def taken(client: Ask, body: Any, table: str | None, headers: dict[str, str]) -> Any:
    """Teaches and waits for the new version."""
    path = "/changes" if table is None else f"/changes?table={table}"
    answer = client("POST", path, body, headers=headers)
    assert answer.status == 202, answer.body
    number = answer.body["number"]
    told = wait_for(lambda: ended(client, number))
    assert told["status"] == "done", told
    wait_for(lambda: client("GET", "/ready").body["version"] >= told["version"])
    return told


def ended(client: Ask, number: int) -> Any:
    told = client("GET", f"/changes/{number}").body
    return told if told["status"] in {"done", "refused"} else None


def test_tables_and_sparse_rows_are_learned_as_the_estimator_learns_them(client: Ask, begun: Path):
    clf = ContinualNodeClassifier.load(begun, device="cpu")
    rows = [more(number) for number in range(2)]
    x = np.array([row["x"][0] for row in rows])
    names = ["new-0", "new-1"]
    nodes = {"id": names, **{name: x[:, at] for at, name in enumerate(FEATURES)}}
    taken(client, as_parquet(nodes), "nodes", PARQUET)
    clf.learn(names, x)
    taken(client, b"source,target,weight\nnew-0,n0,1\nn0,new-1,2.5\n", "edges", CSV)
    clf.learn([], edges=[("new-0", "n0", 1), ("n0", "new-1", 2.5)])
    taken(client, b"id,label\nnew-0,class 0\nnew-1,class 1\n", "labels", CSV)
    clf.update(names, labels=["class 0", "class 1"])
    third = {"ids": ["new-2"], "x": [{"f2": 2.0, "f7": 0.5}], "edges": [["new-2", "n2"]]}
    taken(client, third, None, {})
    clf.learn(["new-2"], [[0, 0, 2, 0, 0, 0, 0, 0.5]], [("new-2", "n2")])
    taken(client, as_parquet({"id": ["new-2"]}), "remove_nodes", PARQUET)
    clf.remove(["new-2"])
    told = client("POST", "/predict", {"ids": [*names, "n0"], "top": 3}).body["nodes"]
    expected, proba = clf.predict_top([*names, "n0"], 3)
    assert [[one["label"] for one in node["top"]] for node in told] == expected.tolist()
    found = [[one["probability"] for one in node["top"]] for node in told]
    assert np.allclose(found, proba, atol=1e-6)
    new = {"ids": ["a"], "x": [{"f0": 3}]}
    given = client("POST", "/predict", new).body["nodes"][0]
    assert given["label"] == clf.predict(["a"], [[3, *[0] * 7]])[0]


@pytest.mark.parametrize(
    ("body", "table", "headers", "words"),
    [
        (b"id,label\nn1,a\n", None, CSV, "?table="),
        (b"id,label\nn1,a\n", "everything", CSV, "?table="),
        (b"id,label\nnobody,a\n", "labels", CSV, "nobody"),
        (b"id,f0\na,1\n", "nodes", CSV, "features of the first batch"),
        (b"source\nn1\n", "edges", CSV, "'target'"),
        (b"id,label\n", "labels", CSV, "rows"),
        (b"", "labels", CSV, "column names"),
        (b"nothing", "labels", PARQUET, "parquet"),
        ({"ids": ["a"], "x": [{"f8": 1}]}, None, {}, "a known name"),
        ({"ids": ["a"], "x": [{"f0": "1"}]}, None, {}, "numbers"),
        ({"ids": ["a", "b"], "x": [{"f0": 1}, [0] * 8]}, None, {}, "objects alone"),
    ],
)
def test_wrong_tables_and_rows_are_refused(
    client: Ask, body: Any, table: str | None, headers: dict[str, str], words: str
):
    path = "/changes" if table is None else f"/changes?table={table}"
    answer = client("POST", path, body, headers=headers)
    assert answer.status == 422, answer.body
    assert words in answer.body["error"]


def test_table_that_unpacks_to_far_more_is_refused(client: Ask):
    zeros, count = arrow.array(np.zeros(MOST_ROWS)), MOST_CELLS // MOST_ROWS
    body = as_parquet({f"f{at}": zeros for at in range(count + 1)})
    assert len(body) < 1 << 20
    answer = client("POST", "/changes?table=nodes", body, headers=PARQUET)
    assert answer.status == 422
    assert "split it" in answer.body["error"]


def test_many_nodes_are_answered_as_arrow(client: Ask):
    ids = [f"n{at % 50 + 10}" for at in range(20_000)]
    assert client("POST", "/predict", {"ids": ids}).status == 422  # too many for JSON
    with closing(http.client.HTTPConnection("localhost", client.port, timeout=30)) as connection:
        headers = {"Content-Type": "application/json", "Accept": ARROW}
        connection.request("POST", "/predict", json.dumps({"ids": ids}), headers)
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == ARROW
        table = arrow.ipc.open_stream(answer.read()).read_all()
    version = client("GET", "/ready").body["version"]
    assert table.schema.metadata[b"version"] == str(version).encode()
    assert table["id"].to_pylist() == ids
    few = client("POST", "/predict", {"ids": ids[:50]}).body["nodes"]
    assert table["label"].to_pylist()[:50] == [node["label"] for node in few]
    assert np.allclose(table["probability"][:50], [node["probability"] for node in few])
    odd = {"ids": ids[:3], "top": 2}
    assert client("POST", "/predict", odd, headers={"Accept": ARROW}).status == 422


def test_status_tells_what_is_new(client: Ask):
    told = client("GET", "/status").body
    assert told["version"] == client("GET", "/ready").body["version"]
    assert [part["name"] for part in told["about"]["classes"]] == ["class 0", "class 1", "class 2"]
    assert told["about"]["changes"][0]["new_classes"] == ["class 0", "class 1", "class 2"]
    again = client("GET", f"/status?known={told['tag']}").body
    assert "about" not in again or again["tag"] != told["tag"]
    assert again["latency"][-1]["rate"] > 0
    assert {"queued", "learning", "done", "refused"} == set(again["queue"])
