"""Explanations: they add up to the score, name what decided, and refuse what has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from batches import batches, quick
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.stream import Graph, Protocol, TaskStream
from support import Command


def learned(make_graph: Callable[..., Graph], method: str, sparse: bool = True, **settings: Any):
    graph = make_graph(60, 6, sparse=sparse, num_features=20)
    clf = quick(method, settings=settings, feature_scaling="none")
    for batch in batches(TaskStream(graph, Protocol(), seed=3)):
        clf.learn(**batch)
    return clf


def margin(clf: ContinualNodeClassifier, node: int) -> float:
    """Returns by how much the best logit is above the second."""
    state, rows = clf._ask([node], None, None)
    logits = state.logits(torch.device("cpu"), rows)[0]
    second, best = np.sort(logits.double().numpy())[-2:]
    return best - second


ROWS: list[dict[str, Any]] = [
    {"hops": "0", "teleport": 1},
    {"hops": "0+1+2", "teleport": 1},
    {"hops": "2+3", "teleport": 0.3},
    {"hops": "0+1+2", "combine": "concatenate", "normalisation": "mean", "teleport": 0.5},
    {"hops": "0+2", "projection": 7, "teleport": 0.8, "scaling": "none"},
    {"hops": "1", "self_loops": False, "normalisation": "mean", "teleport": 1},
    {"hops": "0+1", "constant": True, "memory": 1500, "teleport": 0.6},
    {"hops": "0+1+2", "direction": True, "teleport": 1},
    {"hops": "1", "direction": True, "constant": True, "teleport": 0.4},
]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: "-".join(map(str, rows.values())))
def test_contributions_of_the_closed_form_add_up_to_the_score(
    make_graph: Callable[..., Graph], rows: dict[str, Any], sparse: bool
):
    clf = learned(make_graph, "analytic", sparse, mean_field=False, **rows)
    for node, found in zip((3, 17, 3), clf.explain([3, 17, 3]), strict=True):
        assert found.id == node
        assert found.label == clf.predict([node])[0]
        assert found.margin == pytest.approx(margin(clf, node), abs=1e-6)
        assert found.base == 0
        assert found.contributions.sum() == pytest.approx(found.margin, abs=1e-5)
        assert found.by_node.sum() == pytest.approx(found.by_feature.sum())
        assert len(found.nodes) == len(set(found.nodes)) == found.contributions.shape[0]
        assert dict(zip(found.nodes, found.steps, strict=True))[node] == 0
        assert np.all(np.diff(np.abs(found.by_node)) <= 1e-12)


def test_what_is_out_of_reach_has_no_part(make_graph: Callable[..., Graph]):
    clf = learned(make_graph, "analytic", hops="0+1", teleport=1, mean_field=False)
    found = clf.explain([5])[0]
    edges = clf._now().graph.edges.array
    near = {5, *edges[(edges == 5).any(axis=1)].flatten().tolist()}
    assert set(found.nodes) == near
    assert {int(step) for step in found.steps} <= {0, 1}


def test_a_part_is_what_the_score_loses_where_lengths_do_not_change():
    """Two features and rows without scaling: node b is heard through one edge alone."""
    x = np.array([[3.0, 0], [0, 4.0], [3.0, 0], [0, 4.0]])
    rows = {"hops": "1", "scaling": "none", "self_loops": False, "normalisation": "mean"}
    clf = quick(
        "analytic", settings={**rows, "teleport": 1, "mean_field": False}, validation_fraction=0
    )
    clf.learn(list("abcd"), x, [("a", "b"), ("c", "d")], ["u", "v", "u", "v"])
    found = clf.explain(["a"])[0]
    assert (found.label, found.against) == ("u", "v")
    assert found.nodes[0] == "b"
    assert found.by_node[0] == pytest.approx(found.margin, abs=1e-6)
    assert found.by_feature.tolist() == pytest.approx([0, found.margin], abs=1e-6)


def test_mean_field_is_named_where_it_follows(make_graph: Callable[..., Graph]):
    found = learned(make_graph, "analytic", mean_field=True).explain([5])[0]
    assert "before mean-field" in found.explains
    assert found.margin == pytest.approx(found.contributions.sum())


@pytest.mark.parametrize(
    ("method", "sparse", "settings"),
    [
        ("replay", False, {"backbone": "gat"}),
        ("replay", True, {"backbone": "gat"}),
        ("replay", False, {"backbone": "gcn"}),
        ("replay", True, {"backbone": "sage"}),
        ("dslr", True, {}),  # on a graph that it edited
        ("joint", True, {}),
        ("frozen", False, {}),
    ],
)
def test_integrated_gradients_add_up_to_the_logits(
    make_graph: Callable[..., Graph], method: str, sparse: bool, settings: dict[str, Any]
):
    clf = learned(make_graph, method, sparse, epochs=10, **settings)
    for node, found in zip((3, 40), clf.explain([3, 40]), strict=True):
        assert found.label == clf.predict([node])[0]
        assert found.margin == pytest.approx(margin(clf, node), abs=1e-5)
        assert abs(found.missing) <= 0.003 * (abs(found.margin) + abs(found.base))
        assert found.contributions.nnz > 20


def test_joint_of_the_closed_form_is_exact(make_graph: Callable[..., Graph]):
    found = learned(make_graph, "joint", learner="analytic").explain([5])[0]
    assert found.missing == pytest.approx(0, abs=1e-5)


def test_a_single_class_has_no_rival():
    clf = quick("analytic", validation_fraction=0)
    clf.learn([1, 2, 3], np.eye(3), [(1, 2)], ["u", None, None])
    found = clf.explain([2])[0]
    assert (found.label, found.against) == ("u", None)
    assert found.contributions.sum() == pytest.approx(found.margin, abs=1e-5)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("al-gnn", {}), ("analytic", {"projection": 8, "activation": "relu"})],
)
def test_what_cannot_be_explained_is_refused(
    make_graph: Callable[..., Graph], method: str, settings: dict[str, Any]
):
    clf = learned(make_graph, method, **settings)
    with pytest.raises(InputError, match=f"'{method}' with its settings"):
        clf.explain([3])


def test_no_node_is_explained_by_nothing(make_graph: Callable[..., Graph]):
    assert learned(make_graph, "analytic", teleport=1).explain([]) == []


def test_unknown_node_is_refused(make_graph: Callable[..., Graph]):
    with pytest.raises(InputError, match="999"):
        learned(make_graph, "analytic").explain([999])


def test_command_tells_names(tmp_path: Path, command: Command):
    words = pd.DataFrame({"red": [1.0, 0, 1, 0], "blue": [0, 1.0, 0, 1]})
    clf = quick("analytic", settings={"mean_field": False, "teleport": 1}, validation_fraction=0)
    clf.learn(list("abcd"), words, [("a", "c"), ("b", "d")], ["warm", "cold", None, None])
    clf.save(tmp_path / "state")
    told = command("explain", str(tmp_path / "state"), "c", "d")
    assert told.code == 0
    assert "c: warm, not cold, by" in told.out
    assert "c (itself) +" in told.out
    assert "a (1 step) +" in told.out
    assert "features for: red +" in told.out
    found = json.loads(command("explain", str(tmp_path / "state"), "c", "--json").out)["nodes"][0]
    assert [part["name"] for part in found["features_for"]] == ["red"]
    assert found["missing"] == pytest.approx(0, abs=1e-5)
    assert command("explain", str(tmp_path / "state"), "z").code == 2
