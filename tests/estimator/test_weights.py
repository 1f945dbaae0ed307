"""Weights of edges: read from every form, used in every mean, nothing where all are one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch

from batches import quick
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator import state as state_module
from evergraph.estimator.content import state_content
from support import Command

CPU = torch.device("cpu")
NAMES = list("abcd")
X = np.array([[1.0, 0], [0, 2.0], [0, 0], [3.0, 3.0]])
EDGES = [("a", "c", 3), ("b", "c", 1), ("c", "d", 0.5)]
EXACT = {"scaling": "none", "constant": False, "teleport": 1, "mean_field": False}


def weights(clf: ContinualNodeClassifier) -> dict[frozenset[Any], float]:
    graph = clf._now().graph
    assert graph.arcs is not None
    assert (graph.arcs.array[:, 0] == graph.arcs.array[:, 1]).all()
    pairs = (frozenset(graph.names.take(ends)) for ends in graph.edges.array)
    return dict(zip(pairs, graph.arcs.array[:, 0].tolist(), strict=True))


GIVEN = {frozenset(ends): weight for *ends, weight in EDGES}


def closed(**settings: Any) -> ContinualNodeClassifier:
    return ContinualNodeClassifier(
        "analytic",
        settings=EXACT | settings,
        feature_scaling="none",
        validation_fraction=0,
        device="cpu",
    )


@pytest.mark.parametrize("normalisation", ["mean", "symmetric"])
def test_hops_are_weighted(normalisation: str):
    """c hears a three times as loud as b, d half as loud, and itself once: 5.5 in all."""
    clf = closed(hops="1", normalisation=normalisation)
    clf.learn(NAMES, X, EDGES, list("uvuv"))
    strength = np.array([3, 1, 4.5, 0.5]) + 1
    loud = np.array([3, 1, 1, 0.5])
    if normalisation == "symmetric":
        loud = loud / np.sqrt(strength)
    row = loud @ X
    found = clf.transform(["c"])[0]
    assert found == pytest.approx(row / np.linalg.norm(row), abs=1e-6)


def test_every_form_brings_its_weights():
    frame = pd.DataFrame(EDGES, columns=["from", "to", "weight"])
    graph = networkx.Graph()
    graph.add_nodes_from((name, {"x": row}) for name, row in zip(NAMES, X.tolist(), strict=True))
    graph.add_weighted_edges_from(EDGES)
    for given in ((NAMES, X, EDGES), (NAMES, X, frame), (graph,)):
        assert weights(closed().learn(*given)) == GIVEN


def test_undirected_data_of_pyg_brings_its_weights():
    geometric = pytest.importorskip("torch_geometric.data")
    pairs = [(NAMES.index(a), NAMES.index(b)) for a, b, _ in EDGES]
    index = torch.tensor([*pairs, *((b, a) for a, b in pairs)]).T
    about = torch.tensor([weight for *_, weight in EDGES] * 2, dtype=torch.float32)
    data = geometric.Data(x=torch.tensor(X), edge_index=index, edge_weight=about)
    named = {frozenset(map(NAMES.index, pair)): weight for pair, weight in GIVEN.items()}
    assert weights(closed().learn(data)) == named
    data.edge_weight, data.edge_attr = None, -about
    with pytest.warns(UserWarning, match="'edge_attr', which is not used"):
        assert closed().learn(data)._now().graph.arcs is None


def test_unit_weights_change_nothing():
    rng = np.random.default_rng(0)
    x, pairs = rng.normal(size=(60, 5)), rng.integers(60, size=(150, 2))
    labels = rng.integers(3, size=60).tolist()
    for method in ("analytic", "replay"):
        for backbone in ("gcn", "sage", "gat")[: 1 if method == "analytic" else 3]:
            given = {} if method == "analytic" else {"settings": {"backbone": backbone}}
            plain, unit, told = (quick(method, **given) for _ in range(3))
            plain.learn(range(60), x, pairs, labels)
            unit.learn(range(60), x, [(int(a), int(b), 1.0) for a, b in pairs], labels)
            assert "arcs" not in state_content(unit._now())
            told.learn(range(60), x, pairs)
            a, b = next((int(a), int(b)) for a, b in pairs if a != b)
            told.learn([], None, [(a, b, 2.0)]).learn([], None, [(a, b, 1.0)])
            told.update(range(60), labels=labels)
            assert told._now().graph.arcs is not None
            alike = quick(method, **given).learn(range(60), x, pairs)
            alike.learn([], None, [(a, b)]).learn([], None, [(a, b)])
            alike.update(range(60), labels=labels)
            for one, other in ((plain, unit), (alike, told)):
                assert torch.equal(one._now().logits(CPU), other._now().logits(CPU))


def test_known_edges_take_another_weight_and_keep_theirs_without():
    clf = closed().learn(NAMES, X, [pair[:2] for pair in EDGES[:2]])
    assert clf._now().graph.arcs is None
    clf.learn([], None, EDGES)
    assert weights(clf) == GIVEN
    clf.learn([], None, [("c", "a"), ("a", "b")])
    assert weights(clf) == GIVEN | {frozenset("ab"): 1}
    clf.learn([], None, [("b", "a", 7), ("a", "b", 8)])
    assert weights(clf) == GIVEN | {frozenset("ab"): 8}


def test_weights_stay_through_every_change(tmp_path: Path):
    clf = closed().learn(NAMES, X, EDGES, list("uvuv")).save(tmp_path / "state")
    clf = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    assert weights(clf) == GIVEN
    clf.remove(ids=["a"]).learn(["e"], X[:1], [("e", "c", 2)])
    clf.remove(edges=[("d", "c")]).save(tmp_path / "state")
    clf = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    assert weights(clf) == {frozenset("bc"): 1, frozenset("ec"): 2}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("analytic", {"hops": "0+1+2", "teleport": 1, "mean_field": False}),
        ("analytic", {"hops": "0+1", "teleport": 0.4, "mean_field": False}),
        ("analytic", {"teleport": 0.4, "mean_field": True}),
        ("replay", {"backbone": "gcn"}),
        ("dslr", {"backbone": "gcn"}),
        ("replay", {"backbone": "sage"}),
    ],
)
def test_new_nodes_and_parts_hear_weights_as_the_whole_graph(
    method: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    rng = np.random.default_rng(1)
    x, pairs = rng.normal(size=(80, 5)), rng.integers(80, size=(160, 2)).tolist()
    edges = [(a, b, w) for (a, b), w in zip(pairs, rng.uniform(0.1, 9, 160), strict=True)]
    clf = quick(method, settings=settings, validation_fraction=0)
    clf.learn(range(80), x, edges, x[:, :3].argmax(axis=1).tolist())
    more = [(900, 3, 5.0), (4, 900, 0.1), (*pairs[0], 0.2)]
    proba = clf.predict_proba([900], x[:1], more)
    assert not np.allclose(proba, clf.predict_proba([900], x[:1], [e[:2] for e in more]), atol=1e-4)
    clf.learn([900], x[:1], more)
    assert proba == pytest.approx(clf.predict_proba([900]), abs=1e-5)
    whole = clf._now().logits(CPU)[[41, 3]]
    state = replace(clf._now())
    monkeypatch.setattr(state_module, "SMALL", 10)
    assert state.logits(CPU, torch.tensor([41, 3])) == pytest.approx(whole, abs=1e-5)


def test_attention_says_that_it_does_not_use_them():
    with pytest.warns(UserWarning, match="Attention does not use the weights of edges"):
        quick("replay", validation_fraction=0).learn(NAMES, X, EDGES, list("uvuv"))


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "much", None])
def test_weights_that_are_none_are_refused(wrong: Any):
    edges = [("a", "b", 1), ("a", "c", wrong)]
    with pytest.raises(InputError, match=r"'weights' of edges .*row 2"):
        closed().learn(NAMES, X, edges)


def test_other_columns_are_no_weights():
    frame = pd.DataFrame(EDGES, columns=["from", "to", "day"])
    with pytest.raises(InputError, match="as pairs of ids"):
        closed().learn(NAMES, X, frame)
    with pytest.raises(InputError, match="two ids each"):
        closed().learn(NAMES, X, EDGES).remove(edges=EDGES[:1])


def test_contributions_add_up_with_weights():
    rng = np.random.default_rng(2)
    x, pairs = rng.normal(size=(60, 5)), rng.integers(60, size=(150, 2)).tolist()
    edges = [(a, b, w) for (a, b), w in zip(pairs, rng.uniform(0.1, 9, 150), strict=True)]
    for settings in ({"direction": True, "hops": "0+1+2", "teleport": 0.4}, {"teleport": 1}):
        clf = quick("analytic", settings=settings | {"mean_field": False}, feature_scaling="none")
        clf.learn(range(60), x, edges, rng.integers(3, size=60).tolist())
        for found in clf.explain([3, 17]):
            assert found.margin > 0
            assert found.missing == pytest.approx(0, abs=1e-5)


def test_files_bring_weights(tmp_path: Path, command: Command):
    nodes, edges, more, state = (tmp_path / name for name in ("n.csv", "e.csv", "m.csv", "state"))
    pd.DataFrame({"id": NAMES, "f": X[:, 0], "g": X[:, 1], "label": list("uvuv")}).to_csv(nodes)
    table = pd.DataFrame(EDGES, columns=["source", "target", "weight"])
    pd.read_csv(nodes, index_col=0).to_csv(nodes, index=False)
    table.to_csv(edges, index=False)
    told = command("learn", state, "--nodes", nodes, "--edges", edges, "--method", "analytic")
    assert told.code == 0, told.err
    assert "not used" not in told.err
    assert weights(ContinualNodeClassifier.load(state)) == GIVEN
    table.assign(weight=["1", "", "2"]).to_csv(more, index=False)
    told = command("learn", state, "--edges", more)
    assert told.code == 2
    assert "'weight'" in told.err
