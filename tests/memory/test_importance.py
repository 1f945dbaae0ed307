"""Importance: the score by hand, the reservoir with forced probabilities and against a loop."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from evergraph.memory import SelectionPool
from evergraph.memory.selectors import Importance, importance
from evergraph.stream import Adjacency, LabelledNodes


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def make_pool(nodes, labels, pairs=(), n: int | None = None, seed: int = 0) -> SelectionPool:
    n = max(nodes) + 1 if n is None else n
    edges = torch.tensor([*pairs, *[(b, a) for a, b in pairs]]).reshape(-1, 2).T.long()
    return SelectionPool(
        torch.tensor(nodes),
        torch.tensor(labels),
        torch.zeros(len(nodes), 1),
        torch.zeros(n, 1),
        Adjacency.from_edges(edges, n),
        torch.Generator().manual_seed(seed),
    )


# A star: node 0 of class 0 touches 1 (class 0), 2 and 3 (class 1) and 4, which is not in the pool.
STAR = make_pool([0, 1, 2, 3], [0, 0, 1, 1], [(0, 1), (0, 2), (0, 3), (0, 4), (2, 4)], n=6)


def test_importance_counts_labelled_neighbours():
    # Node 0: 2 different of 3 labelled → s = 2/4. Node 1: 0 of 1. Node 2: 1 of 1 → 1/2.
    expected = [sigmoid(0.0), sigmoid(-5.0), sigmoid(0.0), sigmoid(0.0)]
    assert importance(STAR, STAR.nodes).tolist() == pytest.approx(expected)


def test_importance_reads_labels_of_the_buffer():
    # Node 4 is kept with class 2: node 0 has 3 of 4 → 3/5, node 2 has 2 of 2 → 2/3.
    kept = LabelledNodes(torch.tensor([4]), torch.tensor([2]))
    found = importance(dataclasses.replace(STAR, kept=kept), torch.tensor([0, 2]))
    assert found.tolist() == pytest.approx([sigmoid(1.0), sigmoid(10 * 2 / 3 - 5)])


class Script:
    """Stands in for the draws: fixed numbers instead of random ones."""

    def __init__(self, monkeypatch, uniform: list[float], places: list[int]) -> None:
        self.uniform, self.places = uniform, places
        monkeypatch.setattr(torch, "rand", self.rand)
        monkeypatch.setattr(torch, "randint", self.randint)

    def rand(self, shape, dtype, generator):
        return torch.tensor(self.uniform, dtype=dtype).reshape(shape)

    def randint(self, high, shape, generator):
        assert max(self.places) < high
        return torch.tensor(self.places).reshape(shape)


def test_importance_replaces_by_probability(monkeypatch):
    # Six nodes without edges: importance σ(−5) = .0067, m_c = 2. Probabilities are 2/3, 2/4, 2/5
    # and 2/6 times 1.0067 = .671, .503, .403, .336 for the third to the sixth.
    pool = make_pool([1, 2, 4, 5, 7, 8], [0] * 6)
    Script(monkeypatch, [0.670, 0.504, 0.402, 0.337], [1, 0, 0, 1])
    assert Importance().rank(pool, 0, 2).tolist() == [7, 4]  # the third and the fifth enter
    Script(monkeypatch, [0.672, 0.502, 0.404, 0.335], [1, 0, 0, 1])
    assert Importance().rank(pool, 0, 2).tolist() == [5, 8]  # the fourth and the sixth
    Script(monkeypatch, [0.0] * 4, [1, 0, 0, 1])
    assert Importance().rank(pool, 0, 2).tolist() == [7, 8]  # all: the last of each place stays
    Script(monkeypatch, [0.67, 0.502, 0.402, 0.335], [1, 1, 1, 1])
    assert Importance(alpha=0.0).rank(pool, 0, 2).tolist() == [1, 2]  # α = 0: .667, .5, .4, .333


def test_importance_probability_is_capped_at_one(monkeypatch):
    # Two of three with s = 1/2: (2/3)(1 + 1/2) = 1, whatever is drawn below one enters.
    pool = make_pool([0, 1, 2, 3], [0, 0, 0, 1], [(2, 3)])
    Script(monkeypatch, [0.9999], [0])
    assert Importance().rank(pool, 0, 2).tolist() == [2, 1]
    assert Importance(alpha=9.0).rank(pool, 0, 2).tolist() == [2, 1]


@pytest.mark.parametrize("seed", range(20))
def test_importance_equals_loop(seed):
    generator = torch.Generator().manual_seed(100 + seed)
    labels = torch.randint(3, (40,), generator=generator).tolist()
    ends = torch.randint(40, (60, 2), generator=generator).tolist()
    pairs = sorted({(min(a, b), max(a, b)) for a, b in ends if a != b})
    pool = make_pool(list(range(40)), labels, pairs, seed=seed)
    members = [node for node in range(40) if labels[node] == 1]
    budget = 4
    draws = torch.Generator().manual_seed(seed)
    uniform = torch.rand(len(members) - budget, dtype=torch.float64, generator=draws).tolist()
    places = torch.randint(budget, (len(members) - budget,), generator=draws).tolist()
    stored = members[:budget]
    for seen, node in enumerate(members[budget:], start=budget + 1):
        near = [b if a == node else a for a, b in pairs if node in (a, b)]
        s = sum(labels[other] != 1 for other in near) / (len(near) + 1)
        probability = min(1.0, budget / seen * (1 + sigmoid(10 * s - 5)))
        if uniform[seen - budget - 1] < probability:
            stored[places[seen - budget - 1]] = node
    assert Importance().rank(pool, 1, budget).tolist() == stored


def test_importance_favours_mixed_neighbourhoods():
    # Nodes 20 to 29 have a foreign neighbour each and two labels around: s = 1/2 against 0.
    nodes, labels = list(range(60)), [0] * 50 + [1] * 10
    pool = make_pool(nodes, labels, [(20 + i, 50 + i) for i in range(10)])
    picks = torch.cat([Importance().rank(pool, 0, 5) for _ in range(600)])
    mixed = int(((picks >= 20) & (picks < 30)).sum())
    plain = int(((picks >= 30) & (picks < 40)).sum())
    assert mixed > 1.1 * plain
