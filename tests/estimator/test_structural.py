"""Structural features: what the graph tells of nodes without features, on request."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pytest
import torch

from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.extended import NAMES, structural_features
from evergraph.stream import Adjacency


def test_features_are_those_of_the_graph():
    """A star of three leaves, and a node alone."""
    graph = networkx.Graph([(0, 1), (0, 2), (0, 3)])
    graph.add_node(4)
    edges = torch.tensor([*graph.edges(), *((b, a) for a, b in graph.edges())]).T
    found = structural_features(Adjacency.from_edges(edges, 5))
    rank = networkx.pagerank(graph, tol=1e-12, max_iter=500)
    assert np.exp(found[:, 0]) - 1 == pytest.approx([3, 1, 1, 1, 0])
    assert np.exp(found[:, 1]) - 1 == pytest.approx([1, 3, 3, 3, 0])
    assert np.exp(found[:, 2]) / 5 == pytest.approx([rank[node] for node in range(5)], abs=1e-4)
    assert found[:, 3] == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3, 0])


def test_roles_are_learned_without_features(tmp_path: Path):
    """Hubs and leaves; a new node is what its edges make it, and known ones change on request."""
    stars = [networkx.star_graph(4 + at % 3) for at in range(30)]
    graph = networkx.disjoint_union_all(stars)
    label = {node: "hub" if graph.degree(node) > 1 else "leaf" for node in graph}
    clf = ContinualNodeClassifier("analytic", device="cpu")
    clf.learn(list(graph), "structural", list(graph.edges()), [label[node] for node in graph])
    assert clf.score(list(graph), list(label.values())) == 1
    assert clf.feature_names_in_.tolist() == list(NAMES)
    leaves = [node for node in graph if label[node] == "leaf"]
    edges = [(900, leaf) for leaf in leaves[:5]] + [(901, 0)]
    assert clf.predict([900, 901], "structural", edges).tolist() == ["hub", "leaf"]
    clf.learn([900, 901], "structural", edges)
    clf.save(tmp_path / "state")
    clf = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    before = clf._now().graph.features[leaves[0]].clone()
    clf.update([leaves[0]], "structural")
    assert not torch.equal(clf._now().graph.features[leaves[0]], before)


def test_other_words_are_refused():
    with pytest.raises(InputError, match="'structural'"):
        ContinualNodeClassifier("analytic").learn([1], "degree")
