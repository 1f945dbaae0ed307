"""Nodes that go and rows that close up: what methods keep by row follows."""

from __future__ import annotations

import pytest
import torch

from evergraph.errors import InputError
from evergraph.memory import ReplayBuffer
from evergraph.memory.buffer import moved
from evergraph.methods import make_method
from evergraph.methods.analytic import Analytic
from evergraph.methods.continual_gnn import ContinualGNN
from evergraph.methods.dslr import DSLR
from evergraph.methods.rclg import RCLG

# Of rows 0 to 5, rows 1 and 4 are removed.
NEW_ROWS = torch.tensor([0, -1, 1, 2, -1, 3])


def test_moved_looks_up_rows_and_puts_a_stand_in_for_the_gone():
    assert moved(torch.tensor([[5, 0]]), NEW_ROWS).tolist() == [[3, 0]]
    near = torch.tensor([[1, 3], [4, 4]])
    owners = torch.tensor([[7], [8]])
    assert moved(near, NEW_ROWS, owners).tolist() == [[7, 2], [8, 8]]


@pytest.mark.parametrize("nodes", [[6], [-1], [4]])
def test_moved_refuses_nodes_that_are_not_there(nodes: list[int]):
    with pytest.raises(InputError, match="kept nodes among the 6"):
        moved(torch.tensor(nodes), NEW_ROWS)


def buffer() -> ReplayBuffer:
    kept = ReplayBuffer(8)
    kept.picks = {0: torch.tensor([5, 1]), 2: torch.tensor([3, 4, 0])}
    kept.train_counts = {0: 10, 2: 20}
    return kept


STAY = torch.tensor([True, False, True, False, True])  # 5, 3 and 0 of 5, 1, 3, 4, 0


def test_buffer_keeps_its_order_when_nodes_go():
    kept = buffer()
    kept.trim(STAY)
    assert {label: nodes.tolist() for label, nodes in kept.picks.items()} == {0: [5], 2: [3, 0]}
    kept.renumber(NEW_ROWS)
    assert {label: nodes.tolist() for label, nodes in kept.picks.items()} == {0: [3], 2: [2, 0]}
    assert kept.train_counts == {0: 10, 2: 20}  # shares of the budget are of all ever seen
    ReplayBuffer(8).trim(STAY[:0])


def test_dslr_follows_with_candidates_and_neighbours():
    method = make_method("dslr", {"buffer_size": 8})
    assert isinstance(method, DSLR)
    method.buffer = buffer()
    method.candidates = torch.tensor([[0, 1], [2, 3], [4, 5], [0, 2], [1, 4]])
    method.same_class = {0: torch.tensor([[1], [5]]), 2: torch.tensor([[4], [3], [5]])}
    method.trim(STAY)
    method.renumber(NEW_ROWS)
    # Rows of 5, 3 and 0, now 3, 2 and 0; where a candidate is gone stands the node itself.
    assert method.candidates.tolist() == [[0, 3], [2, 3], [0, 0]]
    assert method.same_class[0].tolist() == [[3]]
    assert method.same_class[2].tolist() == [[2], [3]]


def test_rclg_keeps_the_logits_of_the_nodes_that_stay():
    method = make_method("rclg", {"buffer_size": 8})
    assert isinstance(method, RCLG)
    method.buffer = buffer()
    method.logits, method.widths = torch.arange(10.0).view(5, 2), torch.tensor([1, 2, 1, 2, 2])
    method.trim(STAY)
    assert method.logits.tolist() == [[0, 1], [4, 5], [8, 9]]
    assert method.widths.tolist() == [1, 1, 2]


def test_analytic_lets_go_of_a_mean_that_holds_nodes_that_are_gone():
    method = make_method("analytic")
    assert isinstance(method, Analytic)
    method.num_seen, method.drift.mean = 4, torch.ones(3)
    method.renumber(torch.tensor([0, 1, 2, 3, -1, 4]))  # a node that came later
    assert (method.num_seen, method.drift.mean is None) == (4, False)
    method.renumber(NEW_ROWS)
    assert (method.num_seen, method.drift.mean) == (3, None)


def test_analytic_keeps_the_rows_of_the_nodes_that_stay():
    method = make_method("analytic", {"statistics": "refresh", "buffer_size": 8})
    assert isinstance(method, Analytic)
    method.buffer = buffer()
    method.kept_rows = torch.arange(10.0).view(5, 2)
    method.trim(STAY)
    assert method.kept_rows.tolist() == [[0, 1], [4, 5], [8, 9]]


def test_continual_gnn_counts_the_seen_nodes_that_are_left():
    method = make_method("continual-gnn", {"buffer_size": 8})
    assert isinstance(method, ContinualGNN)
    method.num_seen = 5
    method.renumber(NEW_ROWS)
    assert method.num_seen == 3  # rows 0, 2 and 3
