"""Graphs in parts on disk: cut, opened, learned and predicted, and whatever is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evergraph.distributed import cutting
from evergraph.distributed.cutting import Source, cut
from evergraph.distributed.learning import Learned, learn_parts, predict_parts
from evergraph.distributed.parts import GraphPart
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.graph import sparse
from evergraph.methods.analytic import Analytic
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.shard import Shard
from evergraph.team import ALONE
from support import Command

N, CLASSES = 120, 3


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """A graph that can be learned, with a loop and an edge that is there twice."""
    random = np.random.default_rng(seed)
    y = np.arange(N) % CLASSES
    x = random.normal(size=(N, 5)).astype(np.float32)
    x[:, :CLASSES] += 2 * np.eye(CLASSES, dtype=np.float32)[y]
    edges = random.integers(0, N, (300, 2))
    edges = np.concatenate([edges, edges[:1, ::-1], [[7, 7]]])
    labels = np.where(random.random(N) < 0.7, y, -1)
    return {"x": x, "edges": edges, "y": labels, "truth": y}


def source(**changed: Any) -> Source:
    made = arrays()
    given = {"features": made["x"], "pairs": made["edges"], "labels": made["y"]}
    return Source(**{**given, "classes": ["a", "b", "c"], **changed})


def whole(pairs: np.ndarray) -> Adjacency:
    clean = {tuple(sorted(pair)) for pair in pairs.tolist() if pair[0] != pair[1]}
    ends = torch.tensor(sorted(clean)).T
    return Adjacency.from_edges(torch.cat([ends, ends.flip(0)], dim=1), N)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph").mkdir()
    for name in ("x", "edges", "y"):
        np.save(tmp_path / "graph" / f"{name}.npy", arrays()[name])
    return tmp_path


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("bucket", [20, 1 << 23])
def test_parts_hold_the_edges_of_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, bucket: int
):
    monkeypatch.setattr(cutting, "BUCKET", bucket)
    monkeypatch.setattr(cutting, "BLOCK", 37)  # several blocks
    monkeypatch.setattr(cutting, "ROWS", 11)
    contents = cut(source(), tmp_path / "parts", parts, order="arrival")
    graph = whole(arrays()["edges"])
    found = GraphPart.open(tmp_path / "parts", ALONE, 0).whole_graph()
    assert torch.equal(found.keys, graph.keys)
    rows, labels = [], []
    for number in range(parts):
        part = GraphPart.open(tmp_path / "parts", ALONE, number)
        rows.append(part.features)
        labels.append(part.array("labels", "int64", part.size))
        first, last = contents.bounds[number], contents.bounds[number + 1]
        assert part.names(0, part.size) == list(range(first, last))
        sources = torch.cat([torch.arange(first, last), part.shard.halo])
        assert torch.equal(part.shard.strength, graph.degree[sources].double())
    assert np.array_equal(torch.cat(rows).numpy(), arrays()["x"])
    assert np.array_equal(np.concatenate(labels), arrays()["y"])


def test_shard_of_a_part_is_that_of_the_graph(tmp_path: Path):
    cut(source(), tmp_path / "parts", 1)
    part, alone = (
        GraphPart.open(tmp_path / "parts", ALONE),
        Shard.of(whole(arrays()["edges"]), ALONE),
    )
    assert torch.equal(part.shard.pattern.indptr, alone.pattern.indptr)
    assert torch.equal(part.shard.pattern.columns, alone.pattern.columns)


def test_weights_and_directions_are_cut_along(tmp_path: Path):
    pairs = np.array([[0, 1], [2, 1], [3, 0]])
    arcs = np.array([[2.0, 0.0], [1.0, 3.0], [0.0, 5.0]], dtype=np.float32)
    features, labels = np.ones((4, 2), np.float32), np.array([0, 1, 0, 1])
    given = Source(features, pairs, labels, ["a", "b"], arcs=arcs, directed=True)
    cut(given, tmp_path / "parts", 2, order="arrival")
    graph = GraphPart.open(tmp_path / "parts", ALONE, 0).whole_graph()
    assert graph.arcs is not None
    assert graph.arcs.directed
    told = {
        (int(a), int(b)): w.tolist()
        for a, b, w in zip(graph.src, graph.dst, graph.arcs.weights, strict=True)
    }
    assert told[0, 1] == [2.0, 0.0]
    assert told[1, 0] == [0.0, 2.0]
    assert told[1, 2] == [3.0, 1.0]
    shard = GraphPart.open(tmp_path / "parts", ALONE, 0).shard
    assert shard.strength[:2].tolist() == [7.0, 4.0]  # a node's edges weigh 2 + 5, and 2 + (1+3)/2


def test_sparse_features_and_names_of_any_kind(tmp_path: Path):
    names = [f"n·{at}" for at in range(N)]
    x = torch.from_numpy(arrays()["x"]).clamp(min=0)
    cut(source(features=sparse(x), names=names), tmp_path / "parts", 2, order="arrival")
    parts = [GraphPart.open(tmp_path / "parts", ALONE, number) for number in (0, 1)]
    assert [name for part in parts for name in part.names(0, part.size)] == names
    assert parts[1].names(1, 3) == names[parts[0].size + 1 : parts[0].size + 3]
    assert torch.equal(torch.cat([part.features.dense() for part in parts]), x)


def test_metis_puts_neighbours_into_one_part(tmp_path: Path):
    pytest.importorskip("pymetis")
    ends = np.arange(0, N - 2)
    pairs = np.stack([ends, ends + 2], axis=1)  # two chains, even and odd
    cut(source(pairs=pairs), tmp_path / "parts", 2, order="metis")
    cut(source(pairs=pairs), tmp_path / "plain", 2, order="arrival")
    halos = [
        GraphPart.open(tmp_path / name, ALONE, 0).shard.halo.numel() for name in ("parts", "plain")
    ]
    assert halos[0] <= halos[1]
    arrival = [
        GraphPart.open(tmp_path / "parts", ALONE, number).array("arrival", "int64", None)
        for number in (0, 1)
    ]
    assert sorted(np.concatenate(arrival).tolist()) == list(range(N))


def test_learned_parts_predict_what_they_were_taught(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    cut(source(), tmp_path / "parts", 1)
    told: list[Any] = []
    learned = learn_parts(tmp_path / "parts", {}, ALONE, told.append)
    assert learned.about["accuracy"] > 60
    assert {type(event).__name__ for event in told} == {"Stage", "Epoch"}
    assert predict_parts(tmp_path / "parts", tmp_path / "out", ALONE) == N
    table = pyarrow.read_table(tmp_path / "out" / "part-0000.parquet").to_pydict()
    right = np.array(table["label"]) == np.array(["a", "b", "c"])[arrays()["truth"]]
    assert right.mean() > 0.8
    assert table["id"] == [str(at) for at in range(N)]
    assert all(1 / 3 <= p <= 1 for p in table["probability"])


def test_little_memory_changes_nothing_but_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Columns come two at a time then, and features, edges and rows lie in files."""
    pyarrow = pytest.importorskip("pyarrow.parquet")
    found, given = [], {"settings": {"hops": "0+1+2", "combine": "concatenate"}}
    for memory in (1 << 35, 8_000):
        parts, out = tmp_path / f"parts-{memory}", tmp_path / f"out-{memory}"
        monkeypatch.setattr("evergraph.stream.shard.physical_memory", lambda room=memory: room)
        cut(source(), parts, 1)
        there = sorted((parts / "part-0000").iterdir())
        learn_parts(parts, given, ALONE)
        predict_parts(parts, out, ALONE)
        assert sorted((parts / "part-0000").iterdir()) == there  # nothing is left behind
        found.append(pyarrow.read_table(out / "part-0000.parquet").to_pydict())
    assert found[0]["label"] == found[1]["label"]
    assert np.allclose(found[0]["probability"], found[1]["probability"], atol=1e-5)


def test_part_of_a_large_graph_computes_the_rows_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cut(source(), tmp_path / "parts", 1)
    given = {"settings": {"hops": "0+1+2", "teleport": 1, "mean_field": False}}
    told = []
    for large in (10**6, 0):
        monkeypatch.setattr("evergraph.distributed.learning.LARGE", large)
        if not large:  # nothing that predicts all nodes
            monkeypatch.setattr(Analytic, "predict_logits", None)
        told.append(learn_parts(tmp_path / "parts", given, ALONE).about)
    for name in ("held_out", "accuracy", "temperature", "calibration_error"):
        assert told[0][name] == pytest.approx(told[1][name], rel=1e-3), name


def test_network_learns_parts(tmp_path: Path):
    cut(source(), tmp_path / "parts", 1)
    settings = {"epochs": 100, "channels": 8, "heads": 2, "batch_size": 32}
    learned = learn_parts(tmp_path / "parts", {"method": "finetune", "settings": settings}, ALONE)
    assert learned.about["accuracy"] > 50
    assert Learned.read(tmp_path / "parts").learner.model is not None


def test_parts_of_a_state_predict_what_the_state_does(tmp_path: Path, command: Command):
    made = arrays()
    clf = ContinualNodeClassifier("analytic", validation_fraction=0.2)
    ids = [f"n{at}" for at in range(N)]
    names = [None if label < 0 else "abc"[label] for label in made["y"]]
    edges = [(ids[a], ids[b]) for a, b in made["edges"].tolist() if a != b]
    clf.learn(ids, made["x"], edges, names)
    clf.save(tmp_path / "state")
    answer = command("partition", tmp_path / "state", "-o", tmp_path / "parts", "--json")
    assert json.loads(answer.out)["bounds"] == [0, N]
    assert command("predict", tmp_path / "parts", "-o", tmp_path / "out").code == 0
    table = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "out").to_pydict()
    assert table["id"] == ids
    assert table["label"] == clf.predict().tolist()
    assert np.allclose(table["probability"], clf.predict_proba().max(axis=1), atol=1e-5)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("learn", "parts", "--nodes", "n.csv"), "'--nodes'"),
        (("learn", "parts", "--device", "cuda"), "'--device'"),
        (("predict", "parts", "-o", "out", "--reject", "0.05"), "'--reject'"),
        (("predict", "parts", "-o", "out", "--version", "1"), "'--version'"),
    ],
)
def test_options_without_a_meaning_for_parts_are_refused(
    folder: Path, command: Command, words: tuple[str, ...], option: str
):
    command("partition", "graph", "-o", "parts")
    answer = command(*words)
    assert answer.code == 2
    assert f"Expected no {option} with 'parts', a graph in parts" in answer.err
    assert not Path("out").exists()


def test_commands_on_a_folder_of_arrays(folder: Path, command: Command):
    assert "120 nodes in 1 part" in command("partition", "graph", "-o", "parts").out
    answer = command("learn", "parts", "--set", "hops=0+1", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["trained_on"] > 50
    assert command("predict", "parts", "-o", "out").code == 0
    assert [path.name for path in Path("out").iterdir()] == ["part-0000.parquet"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("partition", "graph", "-o", "graph"), "Expected 'graph' not to exist yet"),
        (("partition", "graph", "-o", "p", "--parts", "0"), "'--parts' from 1 to"),
        (("partition", "graph", "-o", "p", "--parts", "121"), "(got 121)"),
        (("partition", "graph", "-o", "p", "--order", "metiz"), "did you mean 'metis'"),
        (("partition", "graph", "-o", "p", "--feature-scaling", "x"), "feature scaling 'x'"),
        (("partition", "nowhere", "-o", "p"), "nowhere"),
    ],
)
def test_wrong_words_leave_nothing(folder: Path, command: Command, words: Any, sentence: str):
    answer = command(*words)
    assert answer.code == 2
    assert sentence in answer.err
    assert sorted(path.name for path in folder.iterdir()) == ["graph"]


@pytest.mark.parametrize(
    ("name", "array", "sentence"),
    [
        ("y", np.zeros(N), "'graph/y.npy' as a plain array of 1 dimensions (got: float64"),
        ("y", np.zeros(N - 1, dtype=int), "labels [119]"),
        ("edges", np.array([[0, N]]), "up to node 120"),
        ("edges", np.zeros((3, 3), dtype=int), "edges [3, 3]"),
        ("x", np.array([[object()]]), "something else"),
    ],
)
def test_wrong_arrays_are_named(
    folder: Path, command: Command, name: str, array: np.ndarray, sentence: str
):
    np.save(folder / "graph" / f"{name}.npy", array, allow_pickle=True)
    answer = command("partition", "graph", "-o", "parts")
    assert answer.code == 2
    assert sentence in answer.err


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("columns", lambda a: np.where(np.arange(a.size) == 3, N + 9, a), "'columns' below 120"),
        ("columns", lambda a: a[:-1], "columns.npy' as int32"),
        ("indptr", lambda a: a[::-1], "columns.npy' as int32 [0]"),
        ("features", lambda a: a.astype(np.float64), "as float32 [120, 5]"),
        ("features", lambda a: a[:, :2], "as float32 [120, 5]"),
        ("strength", lambda a: a[1:], "strength.npy' as float64"),
    ],
)
def test_damaged_parts_are_refused(
    folder: Path, command: Command, name: str, change: Any, sentence: str
):
    command("partition", "graph", "-o", "parts")
    path = folder / "parts" / "part-0000" / f"{name}.npy"
    changed = change(np.load(path)).astype(np.load(path).dtype if name != "features" else None)
    np.save(path, change(np.load(path)) if name == "features" else changed)
    answer = command("learn", "parts")
    assert answer.code == 2
    assert sentence in answer.err


def test_missing_parts_and_what_was_not_learned_get_a_sentence(folder: Path, command: Command):
    command("partition", "graph", "-o", "parts")
    answer = command("predict", "parts", "-o", "out")
    assert "run 'evergraph learn parts' first" in answer.err
    (folder / "parts" / "part-0000" / "features.npy").unlink()
    assert "copy the part to this machine" in command("learn", "parts").err
    (folder / "parts" / "partition.json").write_text("{}")
    assert command("learn", "parts").code == 2


def test_several_parts_need_as_many_workers(folder: Path, command: Command):
    command("partition", "graph", "--parts", "2", "-o", "parts")
    answer = command("learn", "parts")
    assert answer.code == 2
    assert "Expected as many workers as 'parts' has parts, 2 (got 1)" in answer.err


def test_cut_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cutting.np, "save", full)
    with pytest.raises(InputError, match="No space left on device"):
        cut(source(), tmp_path / "parts", 2)
    assert list(tmp_path.iterdir()) == []


def test_stores_show_the_graph_to_pyg(tmp_path: Path):
    pytest.importorskip("torch_geometric")
    from evergraph.distributed.stores import open_stores

    cut(source(), tmp_path / "parts", 3, order="arrival")
    features, edges = open_stores(tmp_path / "parts")
    some = torch.tensor([N - 1, 0, 60, 60])
    assert torch.equal(
        features.get_tensor("node", "x", index=some), torch.from_numpy(arrays()["x"])[some]
    )
    assert features.get_tensor("node", "y", index=None).tolist() == arrays()["y"].tolist()
    assert features.get_tensor_size(features.get_all_tensor_attrs()[0]) == (N, 5)
    graph = whole(arrays()["edges"])
    src, pointer = edges.get_edge_index(edges.get_all_edge_attrs()[0])
    assert torch.equal(pointer, graph.indptr)
    dst = torch.repeat_interleave(pointer.diff())
    assert torch.equal(torch.sort(dst * N + src).values, graph.keys)
    with pytest.raises(InputError, match="got a change"):
        features.put_tensor(torch.ones(1), "node", "x", index=None)
