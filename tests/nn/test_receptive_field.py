"""Receptive fields: the rows of some nodes and all gradients come out as on the whole graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.kernels.attention import SLOPE, LayerWeights, attend_plain
from evergraph.nn import ModelConfig, NodeClassifier
from evergraph.nn.receptive_field import FEW, StepFields, receptive_field, surroundings
from evergraph.stream import Adjacency
from evergraph.stream import adjacency as pattern
from evergraph.stream.features import SparseRows
from support import adjacency, seeded

PATH = adjacency(7, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])  # node 6 hears nobody
BACKBONES = (
    {"backbone": "gat"},
    {"backbone": "gat", "attention": "plain"},
    {"backbone": "gcn"},
    {"backbone": "sage"},
)

cases = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.builds(
            adjacency,
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=2 * n),
        ),
        st.lists(st.integers(0, n - 1), min_size=1, max_size=n),
    )
)


def outcome(model, features, graphs, nodes):
    """Logits and the gradients of all parameters."""
    logits = model(features, graphs, nodes).logits
    weight = torch.randn(logits.shape, generator=seeded(7), dtype=logits.dtype)
    return [logits, *torch.autograd.grad((logits * weight).sum(), list(model.parameters()))]


@pytest.mark.parametrize("settings_of", BACKBONES, ids=lambda s: "-".join(s.values()))
@given(case=cases, depth=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_field_equals_the_whole_graph(settings_of, case, depth, seed):
    graph, wanted = case
    config = ModelConfig(channels=3, heads=2, num_layers=depth, dropout=0, **settings_of)
    model = NodeClassifier(config, 5, 3, seeded(seed)).double()
    features = torch.randn(graph.num_nodes, 5, generator=seeded(seed), dtype=torch.float64)
    nodes = torch.tensor(wanted)
    field = receptive_field(features, graph, nodes, depth)
    whole = outcome(model, features, graph, nodes)
    cut = outcome(model, field.features, field.graphs, field.rows)
    for expected, found in zip(whole, cut, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_field_cuts_sparse_features():
    dense = torch.eye(7)
    rows = SparseRows(torch.ones(7), torch.arange(7), torch.arange(8), 7)
    config = ModelConfig(channels=3, heads=2, dropout=0)
    model = NodeClassifier(config, 7, 2, seeded())
    nodes = torch.tensor([5, 6])
    field = receptive_field(rows, PATH, nodes, 2)
    assert field.features.shape == (4, 7)  # 3, 4, 5 and 6
    assert field.rows is None  # in the order of the rows already
    expected = model(dense, PATH, nodes).logits
    torch.testing.assert_close(model(field.features, field.graphs, field.rows).logits, expected)


def test_field_by_hand():
    field = receptive_field(torch.eye(7), PATH, torch.tensor([5, 0, 5]), 2)
    first, last = field.graphs
    assert field.rows.tolist() == [1, 0, 1]
    # The last layer leads from 0, 1, 4, 5 to 0 and 5, the first one from 0, 1, 2, 3, 4, 5.
    assert (last.num_sources, last.num_nodes, last.own.tolist()) == (4, 2, [0, 3])
    assert torch.stack([last.src, last.dst]).tolist() == [[1, 2], [0, 1]]
    assert (first.num_sources, first.num_nodes) == (7, 4)  # 6 of 7 nodes: features stay in place
    assert first.own.tolist() == [0, 1, 4, 5]
    assert torch.stack([first.src, first.dst]).tolist() == [[1, 0, 2, 3, 5, 4], [0, 1, 1, 2, 2, 3]]
    assert first.whole_degree.tolist() == [1, 2, 2, 2, 2, 1, 0]
    assert first.with_self_loops.num_edges == 10


def part_of(n: int) -> Adjacency:
    """A layer from ``n`` sources to a few nodes; the first is heard by all of them."""
    graph = adjacency(n, [(0, i) for i in range(1, n)] + [(i, i + 1) for i in range(1, n - 1)])
    nodes = torch.arange(0, n, 3)
    return receptive_field(torch.eye(n), graph, nodes, 1).graphs[0].with_self_loops


def test_triton_kernels_take_parts(monkeypatch):
    cuda = pytest.importorskip("evergraph.kernels.cuda")
    monkeypatch.setattr(pattern, "CHUNK", 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = part_of(14).to(device)
    wx = torch.randn(14, 2, 4, generator=seeded(1)).to(device)
    src, dst, bias = (torch.randn(2, 4, generator=seeded(k)).to(device) for k in (2, 3, 4))
    leaves = [value.clone().requires_grad_() for value in (wx, src, dst, bias)]
    one = torch.eye(8, device=device)
    out, _ = attend_plain(leaves[0].flatten(1), LayerWeights(one, *leaves[1:]), graph)
    weight = torch.randn(out.shape, generator=seeded(5)).to(device)
    expected = [out, *torch.autograd.grad((out * weight).sum(), leaves)]
    grad = weight.view(-1, 2, 4)
    found, positive, share, saved = cuda.attend_forward(
        graph.pattern, wx, (src, dst, bias), SLOPE, graph.own
    )
    delta, grad_target, grad_bias = cuda.attend_backward_targets(
        graph.pattern, grad, (found, 1.0), (positive, share, bias), SLOPE
    )
    at_sources = torch.zeros(14, 2, device=device)
    at_sources[graph.own] = grad_target
    gradients = cuda.attend_backward_sources(
        graph.transpose, grad, (wx, src, dst), (*saved, delta, at_sources), SLOPE
    )
    for wanted, given_ in zip(expected, [found.flatten(1), *gradients, grad_bias], strict=True):
        torch.testing.assert_close(given_, wanted, rtol=1e-4, atol=1e-5)


def test_step_fields_follow_lists_that_come_again():
    fields = StepFields(torch.eye(7), PATH, 2)
    nodes, other = torch.tensor([0]), torch.tensor([3, 4])

    def step(*lists):
        fields.rewind()
        return [fields.next(wanted) for wanted in lists]

    assert step(nodes, other) == [None, None]
    first, second = step(nodes.clone(), other.clone())  # equal is enough
    assert first is not None
    assert second is not None
    assert step(nodes, other) == [first, second]
    assert step(other, other)[0] is None  # another list in its place
    assert step(torch.tensor([5]), other) == [None, second]


def test_surroundings_keep_all_edges_within_and_few_at_the_rim():
    leaves = [(1, leaf) for leaf in range(4, 16)]
    graph = adjacency(17, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 16), *leaves])
    part = surroundings(torch.arange(17.0)[:, None], graph, torch.tensor([0]), 2)
    nodes, near = part.features[:, 0].long(), part.graphs
    pairs = set(zip(nodes[near.src].tolist(), nodes[near.dst].tolist(), strict=True))
    assert {(0, 1), (0, 2), (1, 2), (2, 3)} <= pairs
    assert {(b, a) for a, b in pairs} == pairs
    assert FEW - 2 <= len(pairs & set(leaves)) <= FEW
    assert pairs <= set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert 16 not in nodes
    assert torch.equal(near.whole_degree, graph.degree[nodes])
    assert nodes[part.rows].tolist() == [0]


def test_a_part_is_cut_to_what_a_step_asks_for_at_once():
    part = replace(PATH, whole_degree=PATH.degree)
    (whole, cut) = (StepFields(torch.eye(7), graph, 1) for graph in (PATH, part))
    assert whole.next(torch.tensor([0])) is None
    assert cut.next(torch.tensor([0])).features.shape[0] == 2
