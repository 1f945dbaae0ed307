"""Sparse rows do what dense rows do, and prefixes share memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from evergraph.stream.features import (
    SparseRows,
    from_scipy_parts,
    normalise_rows,
    row_lengths,
    row_sums,
    take_columns,
)

#     [[0, 2, 0],
#      [0, 0, 0],
#      [1, 0, 3]]
SPARSE = SparseRows(
    torch.tensor([2.0, 1.0, 3.0]), torch.tensor([1, 0, 2]), torch.tensor([0, 1, 1, 3]), 3
)
DENSE = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])


@st.composite
def matrices(draw) -> torch.Tensor:
    """Small matrices of counts, with many zeros and often whole rows of them."""
    n, d = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    row = st.one_of(
        st.just([0] * d), st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=d, max_size=d)
    )
    rows = draw(st.lists(row, min_size=n, max_size=n))
    return torch.tensor(rows, dtype=torch.float32).reshape(n, d)


def sparse(dense: torch.Tensor) -> SparseRows:
    matrix = csr_matrix(dense.numpy())
    return from_scipy_parts(matrix.data, matrix.indices, matrix.indptr, dense.shape[1])


# By hand.


def test_sparse_rows_dense_by_hand():
    assert SPARSE.shape == (3, 3)
    assert torch.equal(SPARSE.dense(), DENSE)
    assert SPARSE.row_index().tolist() == [0, 2, 2]


def test_sparse_rows_take_by_hand():
    taken = SPARSE[torch.tensor([2, 0, 2])]
    assert taken.values.tolist() == [1.0, 3.0, 2.0, 1.0, 3.0]
    assert taken.indices.tolist() == [0, 2, 1, 0, 2]
    assert taken.indptr.tolist() == [0, 2, 3, 5]


def test_sparse_rows_prefix_by_hand():
    prefix = SPARSE[:2]
    assert prefix.shape == (2, 3)
    assert prefix.values.tolist() == [2.0]
    assert prefix.indptr.tolist() == [0, 1, 1]


@pytest.mark.parametrize("features", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_normalise_rows_by_hand(features):
    assert row_sums(features).tolist() == [2.0, 0.0, 4.0]
    normal = normalise_rows(features)
    normal = normal.dense() if isinstance(normal, SparseRows) else normal
    assert normal.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.25, 0.0, 0.75]]


# Memory.


def test_sparse_rows_prefix_shares_memory():
    prefix = SPARSE[:2]
    for name in ("values", "indices", "indptr"):
        assert getattr(prefix, name).data_ptr() == getattr(SPARSE, name).data_ptr()


def test_first_rows_share_memory_when_dense():
    prefix = DENSE[:2]
    assert prefix.shape == (2, 3)
    assert prefix.data_ptr() == DENSE.data_ptr()


@pytest.mark.parametrize("features", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_any_rows_are_a_copy(features):
    taken = features[torch.arange(3)]
    first, second = (f.values if isinstance(f, SparseRows) else f for f in (taken, features))
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


def test_row_lengths_sparse_equals_dense():
    dense = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, -2.0, 0.0]])
    assert row_lengths(dense).tolist() == [5.0, 0.0, 2.0]
    assert row_lengths(sparse(dense)).tolist() == [5.0, 0.0, 2.0]


@pytest.mark.parametrize("features", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_normalise_rows_leaves_its_argument_alone(features):
    normalise_rows(features)
    assert torch.equal(SPARSE.dense(), DENSE)


def test_from_scipy_parts_reads_any_number_types():
    rows = from_scipy_parts(
        np.array([1, 2], dtype=np.float64),
        np.array([0, 2], dtype=np.int32),
        np.array([0, 1, 2], dtype=np.int32),
        3,
    )
    assert (rows.values.dtype, rows.indices.dtype, rows.indptr.dtype) == (
        torch.float32,
        torch.int64,
        torch.int64,
    )
    assert rows.dense().tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]


def test_sparse_rows_to_keeps_everything():
    moved = SPARSE.to("cpu")
    assert moved.device == torch.device("cpu")
    assert torch.equal(moved.dense(), DENSE)
    assert moved.shape == SPARSE.shape


# Sparse equals dense.


@given(dense=matrices())
def test_sparse_rows_dense_inverts_sparse(dense):
    assert sparse(dense).shape == tuple(dense.shape)
    assert torch.equal(sparse(dense).dense(), dense)


@given(dense=matrices(), data=st.data())
def test_sparse_rows_prefix_equals_dense(dense, data):
    m = data.draw(st.integers(0, dense.shape[0]))
    assert torch.equal(sparse(dense)[:m].dense(), dense[:m])


@given(dense=matrices(), data=st.data())
def test_sparse_rows_take_equals_dense(dense, data):
    n = dense.shape[0]
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=8) if n else st.just([]))
    rows = torch.tensor(rows, dtype=torch.int64)
    assert torch.equal(sparse(dense)[rows].dense(), dense[rows])


@given(dense=matrices(), data=st.data())
def test_sparse_rows_take_of_a_prefix_equals_dense(dense, data):
    m = data.draw(st.integers(0, dense.shape[0]))
    rows = torch.tensor(data.draw(st.permutations(range(m))), dtype=torch.int64)
    assert torch.equal(sparse(dense)[:m][rows].dense(), dense[:m][rows])


@given(dense=matrices())
def test_normalise_rows_sparse_equals_dense(dense):
    normal = normalise_rows(dense)
    torch.testing.assert_close(normalise_rows(sparse(dense)).dense(), normal)
    torch.testing.assert_close(row_sums(sparse(dense)), row_sums(dense))


@given(dense=matrices())
def test_normalise_rows_sum_to_one_or_stay_zero(dense):
    empty = (dense == 0).all(dim=1)
    for normal in (normalise_rows(dense), normalise_rows(sparse(dense)).dense()):
        assert torch.isfinite(normal).all()
        assert (normal[empty] == 0).all()
        full = normal[~empty].sum(dim=1)
        torch.testing.assert_close(full, torch.ones_like(full))


@given(dense=matrices(), data=st.data())
def test_normalise_rows_commutes_with_prefix(dense, data):
    m = data.draw(st.integers(0, dense.shape[0]))
    whole = normalise_rows(sparse(dense))[:m].dense()
    assert torch.equal(whole, normalise_rows(sparse(dense)[:m]).dense())


@given(start=st.integers(0, 7), stop=st.integers(0, 7), seed=st.integers(0, 3))
def test_columns_of_sparse_rows_are_those_of_dense_ones(make_graph, start, stop, seed):
    start, stop = min(start, stop), max(start, stop)
    dense = make_graph(seed=seed).x
    sparse = make_graph(seed=seed, sparse=True).x
    assert torch.equal(take_columns(sparse, start, stop), dense[:, start:stop])
    assert torch.equal(take_columns(dense, start, stop), dense[:, start:stop])


def test_columns_of_sparse_rows_add_repeated_entries():
    twice = SparseRows(torch.ones(3), torch.tensor([1, 1, 0]), torch.tensor([0, 2, 3]), 2)
    assert take_columns(twice, 0, 2).tolist() == [[0.0, 2.0], [1.0, 0.0]]
