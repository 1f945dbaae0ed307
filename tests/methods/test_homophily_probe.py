"""The homophily probe: parts of a class by hand, and no more than it may read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from evergraph.config import Variant, resolve
from evergraph.memory import SelectionPool
from evergraph.methods import METHODS, PROBES, make_method
from evergraph.methods.homophily_probe import HomophilyPart, known_homophily
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.testing import find_leaks
from support import adjacency, seeded

# Class 0 is nodes 0 to 4; class 1 is 5 and 6; the labels of 7 and 8 cannot be read.
EDGES = [(0, 5), (1, 0), (1, 5), (2, 1), (2, 3), (2, 7), (3, 6), (3, 5), (4, 7)]


def pool() -> SelectionPool:
    return SelectionPool(
        nodes=torch.arange(7),
        labels=torch.tensor([0, 0, 0, 0, 0, 1, 1]),
        h=torch.zeros(7, 1),
        features=torch.zeros(9, 1),
        adjacency=adjacency(9, EDGES),
        generator=seeded(),
    )


def test_known_homophily_counts_readable_neighbours():
    # 0: {5, 1} · 1: {0, 5, 2} · 2: {1, 3, 7?} · 3: {2, 6, 5} · 4: {7?}, nothing readable
    share, count = known_homophily(pool(), torch.arange(5), 0)
    assert torch.allclose(share, torch.tensor([1 / 2, 2 / 3, 1.0, 1 / 3, 0.0]).double())
    assert count.tolist() == [1, 2, 2, 1, 0]


def test_homophily_part_takes_consecutive_nodes_of_the_sorted_class():
    # Sorted by homophily: 4, 3, 0, 1, 2; a budget of 2 makes three parts, the last one whole.
    parts = [HomophilyPart(0, position).rank(pool(), 0, 2).tolist() for position in (0, 0.5, 1)]
    assert parts == [[4, 3], [0, 1], [1, 2]]
    assert HomophilyPart(0, 1).rank(pool(), 0, 5).tolist() == [4, 3, 0, 1, 2]


def test_homophily_part_prefers_more_evidence_among_equals():
    # All of class 0 is wholly homophilous: 0 and 3 by one neighbour, 1 and 2 by two.
    same = replace(pool(), adjacency=adjacency(9, [(0, 1), (1, 2), (2, 3), (4, 5)]))
    assert HomophilyPart(0, 1).rank(same, 0, 5).tolist() == [4, 0, 3, 1, 2]


def test_homophily_part_draws_other_classes():
    assert sorted(HomophilyPart(0, 0).rank(pool(), 1, 2).tolist()) == [5, 6]


def test_probes_are_methods_but_not_for_everyone():
    assert not PROBES.keys() & METHODS.keys()
    config = resolve(Variant.parse("cora"), Variant.parse("homophily-probe:position=0.5"), 0)
    assert config.settings["position"] == 0.5
    assert config.settings["beta"] == 0.1  # the dataset's preset applies


def test_homophily_probe_does_not_leak(make_graph: Callable[..., Graph]):
    graph = make_graph(num_nodes=60, num_classes=6)
    settings = {"buffer_size": 8, "position": 0.5}
    make = lambda: make_method("homophily-probe", settings)  # noqa: E731
    assert find_leaks(make, lambda: TaskStream(graph, Protocol())) == []
