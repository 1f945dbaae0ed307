"""Nodes that go and rows that close up: what methods keep by row follows."""

from __future__ import annotations

import pytest
import torch

from evergraph.errors import InputError
from evergraph.memory import ReplayBuffer
from evergraph.memory.buffer import moved

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


def test_what_is_kept_beside_nodes_follows_them():
    kept = buffer()
    kept.rows["logits"] = torch.arange(10.0).view(5, 2)
    kept.neighbours["candidates"] = torch.tensor([[0, 1], [2, 3], [4, 5], [0, 2], [1, 4]])
    kept.trim(STAY)
    kept.renumber(NEW_ROWS)
    assert kept.rows["logits"].tolist() == [[0, 1], [4, 5], [8, 9]]
    # Rows of 5, 3 and 0, now 3, 2 and 0; where a candidate is gone stands the node itself.
    assert kept.neighbours["candidates"].tolist() == [[0, 3], [2, 3], [0, 0]]
    again = ReplayBuffer(8)
    again.load_state_dict(kept.state_dict())
    assert again.memory_bytes() == kept.memory_bytes() == 3 * (8 + 8 + 2 * 4 + 2 * 8)


@pytest.mark.parametrize("part", ["rows", "neighbours"])
def test_buffer_refuses_rows_of_other_nodes(part: str):
    state = buffer().state_dict()
    state[part] = {"beside": torch.zeros(4, 2, dtype=torch.int64)}
    with pytest.raises(ValueError, match="other nodes"):
        ReplayBuffer(8).load_state_dict(state)
