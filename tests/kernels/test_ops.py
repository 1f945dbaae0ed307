"""Edge operations against dense matrices and Python loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from evergraph.errors import InputError
from evergraph.kernels.attention import Ends, collect, edge_softmax, grouped, spread
from evergraph.kernels.ops import dense_dropout, dropout, project, relu_dropout
from evergraph.nn.model import ModelConfig
from evergraph.stream import Adjacency, SparseRows
from evergraph.stream.adjacency import Pattern
from evergraph.stream.features import from_scipy_parts
from support import adjacency, seeded


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)


def sparse(x: torch.Tensor) -> SparseRows:
    matrix = scipy.sparse.csr_matrix(x.numpy())
    rows = from_scipy_parts(matrix.data, matrix.indices, matrix.indptr, x.shape[1])
    return rows.with_values(torch.from_numpy(matrix.data))  # keeps float64, for gradcheck


# Node 3 is isolated; node 1 has three neighbours.
PATH = adjacency(5, [(0, 1), (1, 2), (1, 4)])

graphs = st.integers(1, 7).flatmap(
    lambda n: st.builds(
        adjacency,
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=2 * n),
    )
)


def both_ends(graph: Adjacency) -> list[Ends]:
    """The three ways of making ends; the last keeps the edges in no order at all."""
    shuffled = graph.src[torch.randperm(graph.num_edges, generator=seeded(1))]
    return [Ends.sources(graph), Ends.targets(graph), Ends.of(shuffled, graph.num_nodes)]


def incidence(ends: Ends) -> torch.Tensor:
    """Dense ``[E, n]``: a one where the edge ends."""
    matrix = torch.zeros(ends.node.numel(), ends.indptr.numel() - 1, dtype=torch.float64)
    matrix[torch.arange(ends.node.numel()), ends.node] = 1
    return matrix


# Spread and collect


def test_spread_and_collect_by_hand():
    # Edges sorted by destination: 1→0, 0→1, 2→1, 4→1, 1→2, 1→4.
    rows = torch.tensor([[10.0], [20.0], [30.0], [40.0], [50.0]])
    sources, targets = Ends.sources(PATH), Ends.targets(PATH)
    assert spread(rows, sources).flatten().tolist() == [20, 10, 30, 50, 20, 20]
    assert spread(rows, targets).flatten().tolist() == [10, 20, 20, 20, 30, 50]
    edges = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0], [32.0]])
    assert collect(edges, targets).flatten().tolist() == [1, 14, 16, 0, 32]
    assert collect(edges, sources).flatten().tolist() == [2, 49, 4, 0, 8]


@given(graphs, st.integers(0, 99))
def test_spread_and_collect_equal_incidence_matrix(graph, seed):
    rows, edges = randn(graph.num_nodes, 3, seed=seed), randn(graph.num_edges, 3, seed=seed + 1)
    for ends in both_ends(graph):
        matrix = incidence(ends)
        torch.testing.assert_close(spread(rows, ends), matrix @ rows)
        torch.testing.assert_close(collect(edges, ends), matrix.T @ edges)


@given(graphs, st.integers(0, 99))
def test_spread_is_adjoint_of_collect(graph, seed):
    rows, edges = randn(graph.num_nodes, 2, seed=seed), randn(graph.num_edges, 2, seed=seed + 1)
    for ends in both_ends(graph):
        left = (spread(rows, ends) * edges).sum()
        right = (rows * collect(edges, ends)).sum()
        torch.testing.assert_close(left, right)


def test_collect_keeps_trailing_dimensions():
    edges = randn(PATH.num_edges, 2, 3)
    out = collect(edges, Ends.targets(PATH))
    assert out.shape == (5, 2, 3)
    torch.testing.assert_close(out[1], edges[1] + edges[2] + edges[3])


def test_spread_and_collect_of_no_edges():
    empty = adjacency(3, [])
    for ends in both_ends(empty):
        assert spread(randn(3, 2), ends).shape == (0, 2)
        assert collect(randn(0, 2), ends).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_spread_and_collect_derivatives(check, kind):
    ends = both_ends(PATH)[kind]
    rows, edges = randn(5, 2).requires_grad_(), randn(6, 2).requires_grad_()
    # Squared, so that second derivatives are not all zero.
    assert check(lambda x: spread(x, ends) ** 2, rows)
    assert check(lambda x: collect(x, ends) ** 2, edges)


# Softmax over edges


def softmax_by_loop(scores: torch.Tensor, ends: Ends) -> torch.Tensor:
    out = torch.empty_like(scores)
    for node in range(ends.indptr.numel() - 1):
        mine = torch.nonzero(ends.node == node).flatten()
        if mine.numel():
            out[mine] = torch.softmax(scores[mine], dim=0)
    return out


def test_edge_softmax_by_hand():
    # Into node 1 from 0, 2 and 4, with weights 1, 2 and 5; alone into the others.
    scores = torch.tensor([[7.0], [0.0], [math.log(2)], [math.log(5)], [-3.0], [100.0]])
    expected = torch.tensor([[1], [1 / 8], [2 / 8], [5 / 8], [1], [1]])
    torch.testing.assert_close(edge_softmax(scores, Ends.targets(PATH)), expected)


@given(graphs, st.integers(0, 99))
def test_edge_softmax_equals_loop_and_sums_to_one(graph, seed):
    for ends in both_ends(graph):
        scores = 5 * randn(graph.num_edges, 3, seed=seed)
        alpha = edge_softmax(scores, ends)
        torch.testing.assert_close(alpha, softmax_by_loop(scores, ends))
        sums = collect(alpha, ends)
        has_edges = (ends.indptr[1:] > ends.indptr[:-1]).to(sums.dtype)
        torch.testing.assert_close(sums, has_edges[:, None].expand_as(sums))


@pytest.mark.parametrize("scale", [1e4, -1e4, 1e30])
def test_edge_softmax_is_stable_for_huge_scores(scale):
    ends = Ends.targets(PATH)
    scores = scale * torch.tensor([[1.0], [1.0], [1.0], [1.0], [-1.0], [3.0]])
    alpha = edge_softmax(scores, ends).flatten()
    torch.testing.assert_close(alpha, torch.tensor([1, 1 / 3, 1 / 3, 1 / 3, 1, 1]))
    apart = scale * torch.tensor([[0.0], [1.0], [2.0], [3.0], [0.0], [0.0]])
    best = [1, 0, 0, 1, 1, 1] if scale > 0 else [1, 1, 0, 0, 1, 1]
    assert edge_softmax(apart, ends).flatten().tolist() == best


def test_edge_softmax_gradient_is_finite_for_huge_scores():
    scores = (1e4 * randn(6, 2, dtype=torch.float32)).requires_grad_()
    (edge_softmax(scores, Ends.targets(PATH)) ** 2).sum().backward()
    assert torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_edge_softmax_derivatives(check, kind):
    scores = randn(6, 2).requires_grad_()
    assert check(lambda x: edge_softmax(x, both_ends(PATH)[kind]), scores)


def test_edge_softmax_of_no_edges():
    assert edge_softmax(torch.empty(0, 2), Ends.targets(adjacency(3, []))).shape == (0, 2)


def test_edge_operations_repeat_bit_for_bit(make_graph):
    graph = Adjacency.from_edges(both(make_graph(60).edges), 60)
    for ends in both_ends(graph):
        edges = randn(graph.num_edges, 8, dtype=torch.float32)
        assert torch.equal(collect(edges, ends), collect(edges, ends))
        assert torch.equal(edge_softmax(edges, ends), edge_softmax(edges, ends))


def both(edges: torch.Tensor) -> torch.Tensor:
    return torch.cat([edges, edges.flip(0)], dim=1)


# Projection


X = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, -3.0, 0.0], [4.0, 5.0, 6.0]])


def test_project_by_hand():
    weight = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    expected = [[7, 70], [0, 0], [-6, -60], [32, 320]]
    assert project(X, weight).tolist() == expected
    assert project(sparse(X), weight).tolist() == expected


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 99))
def test_project_sparse_equals_dense_with_gradient(n, d, k, seed):
    x = randn(n, d, seed=seed) * (torch.rand(n, d, generator=seeded(seed)) < 0.4)
    x[0] = 0  # a row with nothing stored
    target = randn(n, k, seed=seed + 1)
    gradients, outputs = [], []
    for features in (x, sparse(x)):
        weight = randn(d, k, seed=seed + 2).requires_grad_()
        out = project(features, weight)
        ((out - target) ** 2).sum().backward()
        gradients.append(weight.grad)
        outputs.append(out.detach())
    torch.testing.assert_close(outputs[1], outputs[0])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_project_sparse_takes_an_expanded_gradient():
    weight = torch.ones(3, 2, requires_grad=True)
    project(sparse(X), weight).sum().backward()  # the incoming gradient has stride zero
    assert weight.grad.tolist() == [[5, 5], [2, 2], [8, 8]]


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_project_derivatives(check, kind):
    x = X.double()
    features = x if kind == "dense" else sparse(x)
    weight = randn(3, 2).requires_grad_()
    assert check(lambda w: project(features, w) ** 2, weight)


def test_project_of_features_without_entries():
    weight = randn(3, 2, dtype=torch.float32).requires_grad_()
    out = project(sparse(torch.zeros(4, 3)), weight)
    out.sum().backward()
    assert out.tolist() == [[0, 0]] * 4
    assert weight.grad.tolist() == [[0, 0]] * 3


# Dropout


def test_dropout_without_generator_or_rate_is_identity():
    rows = sparse(X)
    assert dropout(X, 0.5, None) is X
    assert dense_dropout(X, 0.5, None) is X
    assert dropout(rows, 0.5, None) is rows
    generator = seeded()
    before = generator.get_state()
    assert dropout(X, 0.0, generator) is X
    assert torch.equal(generator.get_state(), before)  # nothing was drawn


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_dropout_rate_and_scale_are_unbiased(p):
    n = 400_000
    out = dropout(torch.ones(n), p, seeded(3))
    dropped = round(256 * p) / 256  # the documented rounding
    assert set(out.unique().tolist()) == {0.0, np.float32(1 / (1 - dropped))}
    assert abs(float((out == 0).float().mean()) - dropped) < 5 * math.sqrt(p * (1 - p) / n)
    assert abs(float(out.mean()) - 1) < 5 * math.sqrt(p / (1 - p) / n)
    # Eight entries share a random word: each must have the rate of its own.
    lanes = (out == 0).view(-1, 8).float().mean(dim=0)
    assert (lanes - dropped).abs().max() < 5 * math.sqrt(p * (1 - p) / (n / 8))


@pytest.mark.parametrize("shape", [(7,), (3, 5), (0, 4), (1, 1)])
def test_dropout_same_seed_same_mask(shape):
    x = torch.ones(shape)
    assert torch.equal(dropout(x, 0.5, seeded(4)), dropout(x, 0.5, seeded(4)))
    assert dropout(x, 0.5, seeded(4)).shape == shape
    assert torch.equal(dropout(x, 0.5, seeded(4)), dense_dropout(x, 0.5, seeded(4)))


def test_dropout_draws_a_new_mask_each_call():
    generator = seeded(5)
    x = torch.ones(1000)
    assert not torch.equal(dropout(x, 0.5, generator), dropout(x, 0.5, generator))


def test_dropout_keeps_sparse_pattern():
    rows = sparse((torch.rand(50, 20, generator=seeded(6)) < 0.3).float())
    values = rows.values.clone()
    out = dropout(rows, 0.5, seeded(7))
    assert isinstance(out, SparseRows)
    assert out.shape == rows.shape
    assert torch.equal(out.indices, rows.indices)
    assert torch.equal(out.indptr, rows.indptr)
    assert torch.equal(out.values, dropout(values, 0.5, seeded(7)))
    assert torch.equal(rows.values, values)  # the input is untouched
    weight = randn(20, 3, dtype=torch.float32)
    torch.testing.assert_close(project(out, weight), out.dense() @ weight)


def test_dropout_gradient_is_the_mask():
    x = torch.ones(40, requires_grad=True)
    out = dropout(x, 0.5, seeded(8))
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_dropout_takes_every_rate_that_the_config_takes():
    p = ModelConfig(dropout=0.999).dropout
    out = dropout(torch.ones(1000), p, seeded(9))
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("chunked", [False, True])
def test_grouped_equals_scattering_with_a_hub_and_isolated_nodes(chunked):
    generator = torch.Generator().manual_seed(0)
    node = torch.cat([torch.full((500,), 3), torch.randint(0, 40, (300,), generator=generator)])
    node = node[torch.randperm(node.numel(), generator=generator)]
    rows = torch.randn(node.numel(), 5, generator=generator, dtype=torch.float64)
    ends = Ends.of(node, 50)
    if chunked:
        ends = replace(ends, chunks=Pattern(ends.indptr, ends.order).chunks)
    index = node[:, None].expand_as(rows)
    expected = torch.zeros(50, 5, dtype=torch.float64).scatter_add_(0, index, rows)
    torch.testing.assert_close(grouped(rows, ends, "sum"), expected)
    lowest = torch.full((50, 5), -torch.inf, dtype=torch.float64)
    expected = lowest.scatter_reduce_(0, index, rows, "amax")
    torch.testing.assert_close(grouped(rows, ends, "max"), expected)


# ReLU and dropout in one pass


def test_relu_dropout_equals_relu_then_dropout():
    rows = randn(300, 70, dtype=torch.float32).requires_grad_()
    results = []
    for fused in (True, False):
        out = relu_dropout(rows, 0.4, seeded(3), fused)
        results.append((out, torch.autograd.grad((out**2).sum(), rows)[0]))
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)
    assert 0.25 < (results[0][0] > 0).float().mean() < 0.35  # half of 0.6


def test_relu_dropout_without_dropout_is_relu():
    rows = randn(5, 4)
    assert torch.equal(relu_dropout(rows, 0.5, None), rows.relu())
    assert torch.equal(relu_dropout(rows, 0.0, seeded()), rows.relu())


def test_relu_dropout_raises_when_asked_for_a_second_derivative():
    rows = randn(5, 4).requires_grad_()
    with pytest.raises(InputError, match="'double_backward'"):
        torch.autograd.grad(relu_dropout(rows, 0.5, seeded()).sum(), rows, create_graph=True)


def test_dropout_bytes_are_uniform_and_independent_of_their_place():
    kept = dense_dropout(torch.ones(64, 8192), 0.25, seeded(1)) > 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.003)
    assert (kept.float().mean(dim=0) - 0.75).abs().max() < 0.3  # 64 draws each
    assert (kept.float().mean(dim=1) - 0.75).abs().max() < 0.03
    again = dense_dropout(torch.ones(64, 8192), 0.25, seeded(2)) > 0
    assert (kept == again).float().mean().item() == pytest.approx(0.75**2 + 0.25**2, abs=0.005)
