"""Sizes of balls: estimated without listing them, near what counting gives."""

from __future__ import annotations

import torch

from evergraph.memory import SELECTORS, SelectionPool
from evergraph.memory.buffer import ball_sizes
from support import adjacency, seeded

# A path 0-1-2-3-4-5 and a node apart; of these 0, 1, 2, 4 and 6 are in the pool.
GRAPH = adjacency(7, [(at, at + 1) for at in range(5)])
NODES = torch.tensor([0, 1, 2, 4, 6])


def test_ball_sizes_are_near_the_numbers_counted_by_hand():
    found = torch.stack([ball_sizes(GRAPH, NODES, 2, seeded(seed)) for seed in range(60)])
    # Within two steps of 0 are 0, 1, 2; of 1 the same; of 2 also 4; of 4 are 2 and 4; 6 is alone.
    expected = torch.tensor([3.0, 3.0, 4.0, 2.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found.mean(dim=0), expected, rtol=0.05, atol=0)
    torch.testing.assert_close(found[0], expected, rtol=0.4, atol=0)


def test_ball_sizes_are_one_without_steps():
    assert ball_sizes(GRAPH, NODES, 0, seeded()).lt(1.4).all()


def test_nodes_are_drawn_by_the_size_of_their_ball():
    star = adjacency(41, [(0, at) for at in range(1, 20)])  # a star, and twenty-one nodes apart
    nodes = torch.arange(41)
    first = []
    for seed in range(80):
        pool = SelectionPool(
            nodes=nodes,
            labels=torch.zeros_like(nodes),
            h=torch.zeros(41, 1),
            features=torch.zeros(41, 1),
            adjacency=star,
            generator=seeded(seed),
        )
        first.append(int(SELECTORS["tem"].make(0.3).rank(pool, 0, 1)))
    # All twenty of the star see twenty nodes: they are drawn 400 times for 21 of the others.
    assert sum(node < 20 for node in first) > 65
    assert len(set(first)) > 12
