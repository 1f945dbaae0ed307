"""Propagated features: dense matrices as the oracle, blocks that change nothing, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from conftest import to_sparse
from evergraph.closed_form import features as module
from evergraph.closed_form.features import EmbeddingRows, FeatureConfig, PropagatedFeatures
from evergraph.errors import InputError
from evergraph.kernels.ops import SparseMatrix
from evergraph.nn.receptive_field import receptive_field
from evergraph.stream.adjacency import Arcs
from evergraph.validation import parse
from support import adjacency, seeded

GRAPH = adjacency(6, [(0, 1), (1, 2), (2, 0), (2, 3), (4, 3)])  # node 5 is alone
X = torch.randn(6, 7, generator=seeded()).abs()
KINDS = list(
    product(("symmetric", "mean"), (False, True), ("sum", "concatenate"), ("unit", "none"))
)
NODES = torch.tensor([4, 0, 5])


def in_blocks_of(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    """Lets blocks of columns have so many numbers over all nodes, however narrow they are."""
    monkeypatch.setattr(module, "BLOCK", numbers)
    monkeypatch.setattr(module, "WIDE", 0)


def dense(config: FeatureConfig) -> torch.Tensor:
    """The same rows from dense matrices."""
    a = torch.zeros(6, 6, dtype=torch.float64)
    a[GRAPH.dst, GRAPH.src] = 1
    if config.self_loops:
        a += torch.eye(6)
    degree = a.sum(dim=1).clamp(min=1)
    if config.normalisation == "symmetric":
        s = a / (degree[:, None] * degree[None]).sqrt()
    else:
        s = a / degree[:, None]
    x = (
        X.double() / X.double().norm(dim=1, keepdim=True)
        if config.scaling == "unit"
        else X.double()
    )
    blocks = [torch.linalg.matrix_power(s, hop) @ x for hop in config.powers]
    lengths = [block.norm(dim=1, keepdim=True) for block in blocks]
    unit = [b / torch.where(n > 0, n, 1) for b, n in zip(blocks, lengths, strict=True)]
    if config.combine == "sum":
        return torch.stack(unit).mean(dim=0)
    return torch.cat(unit, dim=1) / len(blocks) ** 0.5


@pytest.mark.parametrize("block", [1, 12, 10**6])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("hops", ["0", "2", "0+1+3"])
def test_rows_are_those_of_dense_matrices(monkeypatch, hops, kind, sparse, block):
    in_blocks_of(monkeypatch, block)
    names = ("normalisation", "self_loops", "combine", "scaling")
    config = FeatureConfig(hops=hops, **dict(zip(names, kind, strict=True)))
    source = PropagatedFeatures(to_sparse(X) if sparse else X, GRAPH, config, seed=0)
    expected = dense(config)
    assert source.width == expected.shape[1]
    torch.testing.assert_close(source.rows(NODES), expected[NODES].float(), rtol=0, atol=1e-6)
    weights = torch.randn(expected.shape[1], 3, generator=seeded(1), dtype=torch.float64)
    scores = (expected @ weights).float()
    torch.testing.assert_close(source.times(weights), scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu", "cos"])
def test_random_rows_do_not_depend_on_blocks_and_depend_on_the_seed(
    monkeypatch, activation, sparse
):
    config = FeatureConfig(hops="1+2", projection=10, combine="concatenate", activation=activation)
    x = to_sparse(X) if sparse else X
    rows = {}
    for block, seed in ((10**6, 0), (12, 0), (10**6, 1)):
        in_blocks_of(monkeypatch, block)
        rows[block, seed] = PropagatedFeatures(x, GRAPH, config, seed).rows(NODES)
    assert rows[12, 0].shape == (3, 20)
    torch.testing.assert_close(rows[10**6, 0], rows[12, 0], rtol=0, atol=1e-6)
    assert (rows[10**6, 0] - rows[10**6, 1]).abs().max() > 0.01


def test_random_cosines_approach_the_gaussian_kernel():
    config = FeatureConfig(hops="1", projection=20_000, activation="cos", bandwidth=1.5)
    source = PropagatedFeatures(X, GRAPH, config, seed=0)
    unit = dense(FeatureConfig(hops="1"))[NODES]
    kernel = torch.exp(-0.5 * 1.5**2 * torch.cdist(unit, unit).square())
    rows = source.rows(NODES)
    torch.testing.assert_close(rows @ rows.t(), kernel.float(), rtol=0, atol=0.03)


def test_random_projections_keep_angles():
    source = PropagatedFeatures(X, GRAPH, FeatureConfig(hops="2", projection=20_000), seed=0)
    unit = dense(FeatureConfig(hops="2"))[NODES]
    rows = source.rows(NODES)
    torch.testing.assert_close(rows @ rows.t(), (unit @ unit.t()).float(), rtol=0, atol=0.03)


def test_rows_without_features_are_zero():
    x = torch.zeros(6, 4)
    source = PropagatedFeatures(x, GRAPH, FeatureConfig(hops="0+1"), seed=0)
    assert source.rows(NODES).abs().max() == 0


@pytest.mark.parametrize("hops", ["", "1+1", "a", "-1", "1+", 1.5])
def test_hops_must_be_distinct_numbers(hops):
    with pytest.raises(InputError, match="Expected 'hops' as distinct numbers"):
        parse(FeatureConfig, {"hops": hops})


def test_hops_are_put_in_order():
    assert parse(FeatureConfig, {"hops": 2}).hops == "2"
    assert parse(FeatureConfig, {"hops": "2+0"}).hops == "0+2"


@pytest.mark.parametrize("activation", ["relu", "cos"])
def test_activation_needs_a_projection(activation):
    with pytest.raises(InputError, match=r"Expected 'projection'.*got none"):
        parse(FeatureConfig, {"activation": activation})


@pytest.mark.parametrize("held", [0, 10**9])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_a_basis_are_those_of_projected_features(monkeypatch, sparse, held):
    monkeypatch.setattr(module, "HELD", held)
    basis = torch.linalg.qr(torch.randn(7, 3, generator=seeded(1))).Q
    config = FeatureConfig(hops="0+1", combine="concatenate", scaling="none")
    source = PropagatedFeatures(to_sparse(X) if sparse else X, GRAPH, config, 0, basis)
    expected = PropagatedFeatures(X @ basis, GRAPH, config, 0)
    assert source.width == expected.width == 6
    torch.testing.assert_close(source.rows(NODES), expected.rows(NODES), rtol=0, atol=1e-6)


@pytest.mark.parametrize("combine", ["sum", "concatenate"])
def test_mean_is_that_of_the_first_rows_in_any_blocks(monkeypatch, combine):
    x = torch.randn(6, 7, generator=seeded())
    in_blocks_of(monkeypatch, 18)  # three columns at a time
    source = PropagatedFeatures(x, GRAPH, FeatureConfig(combine=combine), seed=0)
    expected = source.rows(torch.arange(4)).mean(dim=0)
    torch.testing.assert_close(source.mean(4), expected.double(), rtol=0, atol=1e-6)


def test_embeddings_are_rows_of_length_one():
    rows = EmbeddingRows(torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]]).double())
    assert rows.width == 2
    assert rows.rows(torch.tensor([2, 0])).tolist() == [[0.0, 1.0], [0.6, 0.8]]
    assert rows.times(torch.tensor([[1.0], [10.0]]).double()).flatten().tolist() == [8.6, 0, 10]
    assert rows.mean(2).tolist() == [0.3, 0.4]


def test_a_projection_that_cannot_fit_is_refused():
    FeatureConfig(projection=1000).check_memory(num_features=64, num_rows=10**9)
    with pytest.raises(InputError, match=r"Expected 'projection' to fit into .* GB.*choose fewer"):
        FeatureConfig(projection=10**12).check_memory(num_features=64, num_rows=10)
    with pytest.raises(InputError, match=r"Expected 'projection' to fit"):  # wide moments
        FeatureConfig(projection=10**8).check_memory(num_features=1, num_rows=10**6)


@pytest.mark.parametrize("block", [1, 10**6])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("hops", ["0", "2", "0+1+3"])
def test_rows_of_some_nodes_need_their_receptive_field_alone(monkeypatch, hops, kind, block):
    in_blocks_of(monkeypatch, block)
    names = ("normalisation", "self_loops", "combine", "scaling")
    config = FeatureConfig(hops=hops, **dict(zip(names, kind, strict=True)))
    wanted = torch.tensor([4, 5])
    part = receptive_field(X, GRAPH, wanted, config.reach)
    assert part.features.shape[0] < 6 or config.reach > 2
    rows = PropagatedFeatures(part.features, part.graphs, config, seed=0)
    found = rows.times(torch.eye(rows.width))
    torch.testing.assert_close(found, dense(config)[wanted].float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("block", [1, 10**6])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_few_rows_of_a_large_graph_read_what_is_near_alone(monkeypatch, kind, block):
    in_blocks_of(monkeypatch, block)
    monkeypatch.setattr(module, "HELD", 0)
    names = ("normalisation", "self_loops", "combine", "scaling")
    config = FeatureConfig(hops="0+2", **dict(zip(names, kind, strict=True)))
    ring = adjacency(60, [(node, (node + 1) % 60) for node in range(60)])
    x = torch.randn(60, 7, generator=seeded()).abs()
    wanted, read = torch.tensor([40, 3, 3]), []
    whole = PropagatedFeatures(x, ring, config, seed=0).own_rows(torch.arange(60))[wanted]
    times = SparseMatrix.times
    monkeypatch.setattr(
        SparseMatrix,
        "times",
        lambda matrix, *rows: read.append(matrix.pattern.columns.numel()) or times(matrix, *rows),
    )
    few = PropagatedFeatures(x, ring, config, seed=0, known={}).rows(wanted)
    assert torch.equal(few, whole)
    assert read[:2] == [12, 4]  # neighbours of two nodes and of these, each with two of its own


@pytest.mark.parametrize("apart", [1, 8])  # few neighbours, and most nodes
@pytest.mark.parametrize("combine", ["sum", "concatenate"])
def test_rows_of_some_nodes_are_those_of_all(monkeypatch, combine, apart):
    near = [(node, (node + step) % 60) for node in range(60) for step in range(1, apart + 1)]
    graph, x = adjacency(60, near), torch.randn(60, 7, generator=seeded()).abs()
    config, read = FeatureConfig(hops="0+1+2", combine=combine), []
    whole = PropagatedFeatures(x, graph, config, seed=0)
    in_blocks_of(monkeypatch, 3)
    times = SparseMatrix.times
    monkeypatch.setattr(
        SparseMatrix,
        "times",
        lambda matrix, *rows: read.append(matrix.pattern.num_rows) or times(matrix, *rows),
    )
    some = PropagatedFeatures(x, graph, config, seed=0, some=True)
    wanted = torch.tensor([40, 3, 3, 59, 0])  # in any order, and one of them twice
    torch.testing.assert_close(some.own_rows(wanted)[:], whole.own_rows(wanted)[:])
    assert read[:2] == [{1: 10, 8: 60}[apart], 4]
    torch.testing.assert_close(some.rows(wanted), whole.rows(wanted))
    many = torch.arange(30).flip(0)  # too many to be worth it
    torch.testing.assert_close(some.own_rows(many)[:], whole.own_rows(many)[:])
    weights = torch.randn(whole.width, 3, generator=seeded(1))
    torch.testing.assert_close(some.times(weights), whole.times(weights), rtol=0, atol=1e-5)


def test_few_rows_of_a_directed_graph_are_those_of_all(monkeypatch):
    monkeypatch.setattr(module, "HELD", 0)
    in_blocks_of(monkeypatch, 1)
    ring = adjacency(60, [(node, (node + 1) % 60) for node in range(60)])
    led = torch.stack([(ring.src < ring.dst).float(), (ring.src > ring.dst).float()], dim=1)
    graph = replace(ring, arcs=Arcs(led, directed=True))
    config = FeatureConfig(hops="0+1", combine="concatenate", direction=True)
    x, wanted = torch.randn(60, 7, generator=seeded()), torch.tensor([40, 3])
    whole = PropagatedFeatures(x, graph, config, seed=0).own_rows(torch.arange(60))[wanted]
    assert torch.equal(PropagatedFeatures(x, graph, config, seed=0).rows(wanted), whole)


def test_blocks_are_wide_where_memory_allows_and_whole_cache_lines(monkeypatch):
    def widths(memory: int) -> list[int]:
        monkeypatch.setattr(module, "physical_memory", lambda: memory)
        rows = PropagatedFeatures(torch.ones(1000, 100), ring, FeatureConfig(hops="0"), seed=0)
        return [block.shape[1] for _, block in rows.blocks()]

    ring = adjacency(1000, [(node, (node + 1) % 1000) for node in range(1000)])
    assert widths(10**9) == [100]
    monkeypatch.setattr(module, "BLOCK", 1000)
    assert widths(10**9) == [64, 36]
    assert widths(64 * 40 * 1000) == [32, 32, 32, 4]
    assert widths(64 * 10 * 1000) == [10] * 10
