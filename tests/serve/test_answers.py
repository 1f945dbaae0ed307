"""Asking a served state over HTTP: known and new nodes, options, versions, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from evergraph import ContinualNodeClassifier
from evergraph.serve import answers
from evergraph.serve.app import Options
from served import Ask, first_batch, more, serving, wait_for


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Ask]:
    with serving(Options(folder, read_only=True)) as found:
        yield found


def ask(client: Ask, **body: Any) -> Any:
    answer = client("POST", "/predict", body)
    assert answer.status == 200, answer.body
    return answer.body


def test_known_nodes_are_predicted_as_by_the_estimator(client: Ask, folder: Path):
    clf, ids = ContinualNodeClassifier.load(folder, device="cpu"), ["n3", "n50", "n3"]
    told = ask(client, ids=ids, top=2)
    names, proba = clf.predict_top(ids, 2)
    assert told["version"] == 0
    assert [node["id"] for node in told["nodes"]] == ids
    assert [[one["label"] for one in node["top"]] for node in told["nodes"]] == names.tolist()
    found = [[one["probability"] for one in node["top"]] for node in told["nodes"]]
    assert np.allclose(found, proba)
    assert [node["label"] for node in told["nodes"]] == clf.predict(ids).tolist()


def test_new_nodes_are_predicted_as_by_the_estimator(client: Ask, folder: Path):
    clf = ContinualNodeClassifier.load(folder, device="cpu")
    new = {"ids": ["a", "b"], "x": [[0.0] * 7 + [4.0], [3.0] + [0.0] * 7], "edges": [["a", "n1"]]}
    told = ask(client, **new)
    assert [node["label"] for node in told["nodes"]] == clf.predict(**new).tolist()
    assert client("POST", "/predict", {"ids": ["a"]}).status == 422  # nothing is kept


def test_reject_and_explain_are_those_of_the_estimator(client: Ask, folder: Path):
    clf, ids = ContinualNodeClassifier.load(folder, device="cpu"), ["n0", "n7"]
    told = ask(client, ids=ids, reject=0.2, explain=True)
    assert [node["label"] for node in told["nodes"]] == clf.predict(ids, reject=0.2).tolist()
    assert np.allclose([node["novelty"] for node in told["nodes"]], clf.novelty(ids))
    for node, why in zip(told["nodes"], clf.explain(ids), strict=True):
        assert node["explanation"]["nodes_for"] == why.summary()["nodes_for"]


def test_a_node_is_described(client: Ask, folder: Path):
    told = client("GET", "/nodes/n3").body
    assert told["label"] == ContinualNodeClassifier.load(folder).predict(["n3"])[0]
    assert told["version"] == 0
    assert told["explanation"]["id"] == "n3"
    assert client("GET", "/nodes/nobody").status == 404


def test_novel_nodes_of_a_large_graph_are_found_by_a_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(answers, "QUICK", 10)  # nodes
    with serving(Options(folder, read_only=True)) as client:
        assert client("GET", "/nodes/n7").body["novelty"] is None  # nobody has looked yet
        told = wait_for(lambda: client("GET", "/status").body["novel"])
        assert told["version"] == 0
        wait_for(lambda: client("GET", "/nodes/n7").body["novelty"] is not None)
        clf = ContinualNodeClassifier.load(folder, device="cpu")
        for name in ("n7", "n8"):
            found = client("GET", f"/nodes/{name}").body["novelty"]
            assert found == pytest.approx(float(clf.novelty([name])[0]), abs=1e-6)


def test_concurrent_questions_are_joined(client: Ask):
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda at: ask(client, ids=[f"n{at % 60}"]), range(160)))
    assert [told["nodes"][0]["id"] for told in found] == [f"n{at % 60}" for at in range(160)]
    lines = client("GET", "/metrics").body.splitlines()
    assert float(next(line.split()[1] for line in lines if line.startswith("evergraph_joined"))) > 0


def test_a_new_version_is_taken_over(tmp_path: Path):
    place = tmp_path / "state"
    clf = ContinualNodeClassifier("analytic", device="cpu").learn(**first_batch()).save(place)
    with serving(Options(place, read_only=True)) as client:
        assert client("GET", "/ready").body["version"] == 0
        clf.learn(**more(0)).save(place)
        wait_for(lambda: client("GET", "/ready").body["version"])
        assert ask(client, ids=["new-0"])["version"] == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "'ids'"),
        ({"ids": []}, "'ids'"),
        ({"ids": ["n1"], "tops": 1}, "did you mean 'top'"),
        ({"ids": ["n1"], "top": 0}, "'top'"),
        ({"ids": ["n1"], "reject": 2}, "'reject'"),
        ({"ids": [1.5]}, "'ids"),
        ({"ids": [1]}, "'ids' to name known nodes"),
        ({"ids": ["n1", 2]}, "of one kind"),
        ({"ids": ["a"], "x": [[1]]}, "'x'"),
        ({"ids": ["a"], "x": [["one"]]}, "'x'"),
        ({"ids": ["a"], "x": [[0] * 8], "edges": [["a", "b"]]}, "'edges'"),
        ({"ids": ["a"], "edges": [["a", "n1"]]}, "'x'"),
        ({"ids": [f"n{i}" for i in range(11)], "explain": True}, "at most 10"),
    ],
)
def test_wrong_questions_get_a_sentence(client: Ask, body: Any, words: str):
    answer = client("POST", "/predict", body)
    assert answer.status == 422
    assert words in answer.body["error"]
