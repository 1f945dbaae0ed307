"""Graph: edges are cleaned, what cannot be right is refused, contents are hashed."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.stream import Graph, SparseRows
from evergraph.stream.graph import clean_edges

NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


def build(**changes) -> Graph:
    """Three nodes on a path 0-1-2, two features, classes 0 1 1."""
    parts = {
        "name": "path",
        "x": torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]),
        "edges": torch.tensor([[0, 1], [1, 2]]),
        "y": torch.tensor([0, 1, 1]),
        "class_names": ("a", "b"),
    }
    return Graph.build(**(parts | changes))


def build_sparse(**changes) -> Graph:
    """The same graph, its features stored as sparse rows."""
    parts = {
        "values": torch.tensor([1.0, 1.0, 2.0, 2.0]),
        "indices": torch.tensor([0, 1, 0, 1]),
        "indptr": torch.tensor([0, 1, 2, 4]),
        "num_columns": 2,
    }
    return build(x=SparseRows(**(parts | changes)))


def message(**changes) -> str:
    with pytest.raises(InputError) as caught:
        build(**changes)
    return str(caught.value)


# Edges.


def test_clean_edges_keeps_each_undirected_edge_once_smaller_end_first():
    # 1-0 in both directions, 2-1 twice, a loop at 2, 0-3 once.
    edges = torch.tensor([[1, 0, 2, 2, 2, 0], [0, 1, 1, 1, 2, 3]])
    assert clean_edges(edges, 4).tolist() == [[0, 0, 1], [1, 3, 2]]


def test_clean_edges_of_none_is_empty():
    assert clean_edges(NO_EDGES, 3).shape == (2, 0)
    assert clean_edges(torch.tensor([[1], [1]]), 3).shape == (2, 0)


def test_clean_edges_reads_int32():
    cleaned = clean_edges(torch.tensor([[60_000], [1]], dtype=torch.int32), 70_000)
    assert cleaned.dtype == torch.int64
    assert cleaned.tolist() == [[1], [60_000]]  # 1 * 70,000 + 60,000 fits; the reverse would not


@given(
    n=st.integers(1, 7),
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25),
)
def test_clean_edges_equals_a_set_of_pairs(n, pairs):
    pairs = [(a % n, b % n) for a, b in pairs]
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    expected = sorted({(min(a, b), max(a, b)) for a, b in pairs if a != b})
    cleaned = clean_edges(edges, n)
    assert list(map(tuple, cleaned.T.tolist())) == expected
    assert torch.equal(clean_edges(cleaned.flip(0), n), cleaned)


def test_clean_edges_leaves_its_argument_alone():
    edges = torch.tensor([[1, 2], [0, 2]])
    clean_edges(edges, 3)
    assert edges.tolist() == [[1, 2], [0, 2]]


def test_build_cleans_edges_and_counts():
    graph = build(edges=torch.tensor([[2, 1, 0, 0], [1, 2, 0, 1]]))
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (3, 2, 2)


def test_build_accepts_one_isolated_node():
    graph = Graph.build("dot", torch.zeros(1, 2), NO_EDGES, torch.tensor([0]))
    assert (graph.num_nodes, graph.num_edges, graph.class_names) == (1, 0, ("0",))


def test_build_names_classes_by_number_by_default():
    assert build(class_names=None, y=torch.tensor([0, 2, 0])).class_names == ("0", "1", "2")


def test_build_reads_small_integer_labels():
    graph = build(y=torch.tensor([0, 1, 1], dtype=torch.uint8))
    assert graph.y.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64])
def test_build_stores_features_as_float32(dtype):
    graph = build(x=torch.tensor([[1, 0], [0, 1], [2, 2]], dtype=dtype))
    assert graph.x.dtype == torch.float32
    assert graph.fingerprint == build().fingerprint


# What is refused, and how.


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_build_refuses_features_that_are_not_finite(bad):
    expected = (
        "Expected 'x' to be finite (got 2 NaN or infinite values); clean the features of 'path'."
    )
    assert message(x=torch.tensor([[bad, 0.0], [1.0, bad], [0.0, 0.0]])) == expected
    with pytest.raises(InputError, match=r"^Expected 'x' to be finite \(got 1 NaN"):
        build_sparse(values=torch.tensor([1.0, bad, 2.0, 2.0]))


@pytest.mark.parametrize(
    ("edges", "found"),
    [([[0, 1], [1, 3]], "0 to 3"), ([[-1, 1], [1, 2]], "-1 to 2")],
)
def test_build_refuses_edges_to_unknown_nodes(edges, found):
    assert message(edges=torch.tensor(edges)) == (
        f"Expected 'edge_index' in [0, 2] (got {found}); "
        "remove edges of 'path' to unknown nodes or add the nodes."
    )


@pytest.mark.parametrize("shape", [[4], [3, 2], [2, 2, 1]])
def test_build_refuses_edges_of_another_shape(shape):
    assert message(edges=torch.zeros(shape, dtype=torch.int64)) == (
        f"Expected 'edge_index' of shape [2, E] (got {shape}); "
        "store sources and destinations of 'path' as two rows."
    )


@pytest.mark.parametrize("count", [0, 2, 4])
def test_build_refuses_another_number_of_labels_than_nodes(count):
    assert message(y=torch.zeros(count, dtype=torch.int64)) == (
        f"Expected 'y' with one value per node, 3 (got {count}); fix those of 'path'."
    )


def test_build_refuses_negative_labels():
    assert message(y=torch.tensor([0, -1, -100])) == (
        "Expected 'y' with a class for every node (got 2 of 3 missing); "
        "label those nodes of 'path' or leave them out."
    )


def test_build_refuses_labels_that_are_nan():
    text = message(y=torch.tensor([0.0, float("nan"), 1.0]))
    assert text.startswith("Expected 'y' with a class for every node (got 1 of 3 missing)")


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("y", {"y": torch.tensor([0.0, 0.7, 1.0])}),
        ("edge_index", {"edges": torch.tensor([[0.0, 1.0], [1.0, 1.5]])}),
        ("time", {"time": torch.tensor([2001.0, 2001.5, 2002.0])}),
    ],
)
def test_build_refuses_fractions_instead_of_cutting_them_off(key: str, given):
    expected = f"Expected '{key}' of 'path' in whole numbers (got fractions); round it."
    assert message(**given) == expected


def test_build_refuses_too_few_class_names():
    assert message(y=torch.tensor([0, 1, 2])) == (
        "Expected 'class_names' to name every label up to 2 (got 2 names); add the missing ones."
    )


def test_build_refuses_a_graph_without_nodes():
    text = message(x=torch.zeros(0, 2), y=torch.zeros(0, dtype=torch.int64), edges=NO_EDGES)
    assert text == "Expected 'path' with at least one node (got 0); check the file."


@pytest.mark.parametrize(
    ("indices", "found"), [([0, 1, 0, 2], "0 to 2"), ([0, -1, 0, 1], "-1 to 1")]
)
def test_build_refuses_sparse_indices_out_of_range(indices, found):
    with pytest.raises(InputError) as caught:
        build_sparse(indices=torch.tensor(indices))
    assert str(caught.value) == (
        f"Expected 'x_indices' in [0, 1] (got {found}); fix the features of 'path'."
    )


def test_build_flattens_or_refuses_a_column_of_labels():
    # OGB stores labels as [n, 1]; such labels must not get through to fail later.
    try:
        graph = build(y=torch.tensor([[0], [1], [1]]))
    except InputError:
        return
    assert graph.y.tolist() == [0, 1, 1]


# Fingerprint.


@pytest.mark.parametrize("make", [build, build_sparse])
def test_fingerprint_is_the_same_for_the_same_contents(make):
    assert make().fingerprint == make().fingerprint
    assert len(make().fingerprint) == 16


def test_fingerprint_ignores_the_name_and_how_edges_were_stored():
    graph = build()
    assert build(name="other").fingerprint == graph.fingerprint
    both_ways = torch.tensor([[2, 1, 1, 0, 1], [1, 2, 1, 1, 0]])
    assert build(edges=both_ways).fingerprint == graph.fingerprint


def test_fingerprint_ignores_memory_layout():
    x = build().x
    assert build(x=x.T.contiguous().T).fingerprint == build().fingerprint


def test_fingerprint_changes_with_any_content():
    x = build().x
    changed = x.clone()
    changed[0, 1] = 1e-6
    graphs = [
        build(),
        build(x=changed),
        build(x=x[:, :1]),
        build(x=x.reshape(3, 2).flip(1)),
        build(edges=torch.tensor([[0, 0], [1, 2]])),
        build(edges=torch.tensor([[0], [1]])),
        build(edges=NO_EDGES),
        build(y=torch.tensor([1, 0, 1])),
        build(class_names=("a", "c")),
        build(class_names=("a", "b", "c")),
        build_sparse(values=torch.tensor([1.0, 1.0, 2.0, 3.0])),
        build_sparse(indices=torch.tensor([1, 0, 0, 1])),
        build_sparse(indptr=torch.tensor([0, 1, 3, 4])),
    ]
    assert len({graph.fingerprint for graph in graphs}) == len(graphs)


def test_fingerprint_changes_with_the_number_of_sparse_columns():
    # An empty column more is another feature matrix, and another model.
    assert build_sparse(num_columns=3).fingerprint != build_sparse().fingerprint


@given(node=st.integers(0, 39), column=st.integers(0, 7), sparse=st.booleans())
def test_fingerprint_changes_with_any_one_number(make_graph, node, column, sparse):
    graph = make_graph(sparse=sparse)
    y = graph.y.clone()
    y[node] = (y[node] + 1) % 4
    assert dataclasses.replace(graph, y=y).fingerprint != graph.fingerprint
    if sparse:
        values = graph.x.values.clone()
        values[node] += 1
        x = dataclasses.replace(graph.x, values=values)
    else:
        x = graph.x.clone()
        x[node, column] += 1
    assert dataclasses.replace(graph, x=x).fingerprint != graph.fingerprint


def test_fingerprint_is_stable_across_processes():
    code = (
        "import torch; from evergraph.stream import Graph; print(Graph.build('path', "
        "torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]), torch.tensor([[0, 1], [1, 2]]), "
        "torch.tensor([0, 1, 1]), ('a', 'b')).fingerprint)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == build().fingerprint
