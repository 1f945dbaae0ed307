"""Samples by hand: planted embeddings and two graphs, one edited from the other."""

from __future__ import annotations

import json
from types import SimpleNamespace

import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.lab import diagnostics as samples
from evergraph.lab.diagnostics import (
    column,
    edit_sample,
    embedding_sample,
    evenly,
    numbers,
    principal_components,
)
from evergraph.stream import LabelledNodes
from support import adjacency

# Nodes 0 1 2 train and 3 tests class 0; 4 5 train and 6 7 test class 1. Original ids are 10 more.
LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
JUDGED = [torch.tensor([3]), torch.tensor([6, 7])]
STREAM = SimpleNamespace(
    labels=LABELS,
    original_ids=torch.arange(8) + 10,
    tasks=[
        SimpleNamespace(index=0, train_nodes=torch.tensor([0, 1, 2])),
        SimpleNamespace(index=1, train_nodes=torch.tensor([4, 5])),
    ],
    evaluation=lambda task: LabelledNodes(JUDGED[task], LABELS[JUDGED[task]]),
)
PICKS = {0: torch.tensor([2, 0]), 1: torch.tensor([5])}
H = torch.tensor([[float(i), 0.0] for i in range(8)])
LOGITS = torch.eye(2)[torch.tensor([0, 0, 0, 1, 1, 1, 1, 0])]


def test_embedding_sample_by_hand():
    found = embedding_sample(STREAM, H, LOGITS, PICKS)
    assert numbers(found["nodes"]) == [12, 10, 15, 11, 13, 14, 16, 17]  # the buffer first
    assert numbers(found["labels"]) == [0, 0, 1, 0, 0, 1, 1, 1]
    assert numbers(found["predicted"]) == [0, 0, 1, 0, 1, 1, 1, 0]
    assert found["roles"] == "bbbtetee"
    # All lies on one line: nodes are 3.5 from the middle at most, which becomes 999. Of its two
    # ends, equally far, either may be made positive.
    first = numbers(found["components"][0])
    assert [abs(value) for value in first] == [428, 999, 428, 714, 143, 143, 714, 999]
    assert numbers(found["components"][1]) == [0] * 8
    assert found["explained"] == [1.0, 0.0]


def test_embedding_sample_without_buffer():
    found = embedding_sample(STREAM, H, LOGITS, {})
    assert numbers(found["nodes"]) == list(range(10, 18))
    assert found["roles"] == "tttettee"


def test_embedding_sample_is_bounded_and_keeps_a_prefix_of_every_class(monkeypatch):
    monkeypatch.setattr(samples, "MAX_NODES", 5)
    found = embedding_sample(STREAM, H, LOGITS, PICKS)
    # Two places for kept nodes, one of each class; three for 1 3 4 6 7: positions 0, 5/3, 10/3.
    assert numbers(found["nodes"]) == [12, 15, 11, 13, 16]


def test_embedding_sample_of_a_broken_model_is_empty():
    assert embedding_sample(STREAM, H / 0, LOGITS, PICKS) == {}


def test_embedding_sample_is_short():
    n = 1000
    stream = SimpleNamespace(
        labels=torch.arange(n) % 4,
        original_ids=torch.arange(n) + 100_000,
        tasks=[SimpleNamespace(index=0, train_nodes=torch.arange(0, n, 2))],
        evaluation=lambda task: LabelledNodes(torch.arange(1, n, 2), torch.empty(0)),
    )
    h = torch.randn(n, 64, generator=torch.Generator().manual_seed(0))
    picks = {label: torch.arange(2 * label, 900, 8) for label in range(4)}
    found = embedding_sample(stream, h, torch.zeros(n, 4), picks)
    assert len(found["roles"]) == 240
    assert found["roles"].count("b") == 120
    assert len(set(numbers(found["nodes"]))) == 240
    assert len(json.dumps(found)) < 12_000


def test_principal_components_agree_with_the_covariance():
    h = torch.randn(30, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, explained = principal_components(h)
    covariance = torch.cov(h.T)
    values, vectors = torch.linalg.eigh(covariance)
    expected = (h - h.mean(dim=0)) @ vectors.flip(1)
    expected *= 999 / expected.abs().max()
    largest = expected.gather(0, expected.abs().argmax(dim=0, keepdim=True))
    assert torch.allclose(found.double(), expected * largest.sign(), atol=0.51)
    assert torch.allclose(explained, values.flip(0) / values.sum())


def test_principal_components_of_equal_rows_are_zero():
    found, explained = principal_components(torch.ones(4, 3))
    assert not found.any()
    assert not explained.any()


BEFORE = adjacency(8, [(0, 1), (0, 4), (2, 3), (5, 6)])


def test_edit_sample_by_hand():
    # Node 2 gains three edges; node 0 gains one and loses one, which goes first.
    after = adjacency(8, [(0, 1), (0, 3), (2, 3), (2, 1), (2, 4), (2, 5), (5, 6)])
    found = edit_sample(STREAM, PICKS, BEFORE, after)
    assert found == [
        {
            "node": 10,
            "label": 0,
            "neighbours": "13 14 11",
            "labels": "0 1 0",
            "states": "+-=",
            "left_out": 0,
        },
        {  # node 5 gained an edge because node 2 did
            "node": 15,
            "label": 1,
            "neighbours": "12 16",
            "labels": "0 1",
            "states": "+=",
            "left_out": 0,
        },
    ]


def test_edit_sample_prefers_most_edits_and_counts_what_it_leaves_out(monkeypatch):
    monkeypatch.setattr(samples, "MAX_NEIGHBOURS", 2)
    after = adjacency(8, [(0, 1), (0, 4), (0, 7), (2, 3), (2, 1), (2, 4), (5, 6)])
    (found,) = edit_sample(STREAM, PICKS, BEFORE, after)
    assert (found["node"], found["neighbours"], found["states"]) == (12, "11 14", "++")
    assert found["left_out"] == 1


def test_edit_sample_of_an_untouched_graph_is_empty():
    assert edit_sample(STREAM, PICKS, BEFORE, BEFORE) == []


def test_edit_sample_shows_few_nodes(monkeypatch):
    monkeypatch.setattr(samples, "MAX_EDITED", 1)
    after = adjacency(8, [(0, 5)])
    assert len(edit_sample(STREAM, PICKS, BEFORE, after)) == 1


@given(st.integers(0, 60), st.integers(0, 30))
def test_evenly_increases_and_stays_inside(count: int, wanted: int):
    found = evenly(count, wanted).tolist()
    assert len(found) == min(count, wanted)
    assert found == sorted(set(found))
    assert all(0 <= value < count for value in found)


def test_column_reads_back():
    assert column(torch.tensor([3, -1, 0])) == "3 -1 0"
    assert numbers("3 -1 0") == [3, -1, 0]
    assert numbers("") == []


def test_evenly_of_few_is_all():
    assert evenly(3, 5).tolist() == [0, 1, 2]
