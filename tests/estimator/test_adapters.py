"""What other libraries hold: frames, PyG's Data, NetworkX, SciPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from batches import quick, stored
from evergraph.errors import InputError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
IDS, LABELS = ["a", "b", "c", "d"], ["u", "v", "u", None]
EDGES = [("a", "b"), ("b", "c"), ("c", "d")]


def learned(*arguments: Any, **named: Any) -> str:
    clf = quick(validation_fraction=0, settings={"epochs": 1})
    return stored(clf.learn(*arguments, **named))


PLAIN = learned(IDS, X, EDGES, LABELS)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_as_good_as_lists(library: str):
    frames = pytest.importorskip(library)
    nodes = frames.DataFrame({"id": IDS, **{f"f{at}": X[:, at] for at in range(3)}, "y": LABELS})
    edges = frames.DataFrame({"s": [a for a, _ in EDGES], "t": [b for _, b in EDGES]})
    clf = quick(validation_fraction=0, settings={"epochs": 1})
    clf.learn(nodes["id"], nodes[["f0", "f1", "f2"]], edges, nodes["y"])
    assert clf.feature_names_in_.tolist() == ["f0", "f1", "f2"]
    clf._state = replace(clf._state, columns=None)
    assert stored(clf) == PLAIN


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_put_in_the_order_of_the_first(library: str):
    frames = pytest.importorskip(library)
    first = frames.DataFrame({"p": [1.0, 2.0], "q": [3.0, 4.0]})
    clf = quick(settings={"epochs": 1}, feature_scaling="none")
    clf.learn(["a", "b"], first, labels=["u", "v"])
    clf.learn(["c"], frames.DataFrame({"q": [6.0], "p": [5.0]}))
    assert clf._now().graph.features[2].tolist() == [5.0, 6.0]
    assert clf.feature_names_in_.tolist() == ["p", "q"]
    with pytest.raises(InputError, match="'q', 'r'"):
        clf.learn(["d"], frames.DataFrame({"p": [6.0], "r": [5.0]}))


def test_missing_labels_of_pandas_count_as_none():
    pandas = pytest.importorskip("pandas")
    clf = quick(validation_fraction=0, settings={"epochs": 1})
    clf.learn(IDS, X, EDGES, pandas.Series([3, None, 1, None]))  # pandas makes them floats
    assert clf.classes_.tolist() == [1, 3]
    assert clf.history_[0]["trained_on"] == 2


def test_arrays_and_tensors_are_as_good_as_lists():
    assert learned(np.array(IDS), torch.from_numpy(X), np.array(EDGES), LABELS) == PLAIN
    pairs = [(np.str_(a), np.str_(b)) for a, b in EDGES]  # what indexing an array gives
    assert learned(list(np.array(IDS)), list(X), pairs, LABELS) == PLAIN


@pytest.mark.parametrize("make", [np.array, torch.tensor, "pandas", "polars"])
def test_arrays_of_whole_numbers_are_as_good_as_lists(make: Any):
    ids, pairs = [3, 1, 2**40, -5], [(3, 1), (1, 2**40), (2**40, -5)]
    column = table = make
    if isinstance(make, str):
        frames = pytest.importorskip(make)
        column = frames.Series

        def table(rows: list[Any]) -> Any:
            return frames.DataFrame(
                {side: [row[at] for row in rows] for at, side in enumerate("st")}
            )

    one, other = (quick(validation_fraction=0, settings={"epochs": 1}) for _ in range(2))
    one.learn(ids, X, pairs, LABELS).update([1], X[:1]).remove([3], [(2**40, -5)])
    other.learn(column(ids), X, table(pairs), LABELS)
    other.update(column([1]), X[:1]).remove(column([3]), table([(2**40, -5)]))
    assert stored(one) == stored(other)
    assert other.predict(column([1, -5])).tolist() == one.predict([1, -5]).tolist()
    for wrong in ({"ids": [7, 7], "x": X[:2]}, {"ids": [1], "x": X[:1]}, {"ids": [9], "x": X[:2]}):
        with pytest.raises(InputError) as told:
            one.learn(**wrong)
        with pytest.raises(InputError) as also:
            other.learn(**{**wrong, "ids": column(wrong["ids"])})
        assert str(told.value) == str(also.value)


def test_whole_numbers_of_numpy_are_whole_numbers():
    clf = quick(validation_fraction=0, settings={"epochs": 1})
    clf.learn(list(np.arange(3)), np.eye(3), [(np.int64(0), 1)], list(np.array([5, 6, 5])))
    assert clf.ids_ == [0, 1, 2]
    assert clf.classes_.tolist() == [5, 6]


def test_sparse_matrices_stay_sparse():
    x = scipy.sparse.random(4, 9, density=0.3, rng=np.random.default_rng(0), format="coo")
    clf = quick(validation_fraction=0, settings={"epochs": 1}, feature_scaling="none")
    clf.learn(IDS, x, EDGES, LABELS)
    clf.learn(["e"], np.ones((1, 9)), labels=["v"])
    features = clf._now().graph.features
    assert not isinstance(features, torch.Tensor)
    assert np.allclose(features.dense()[:4].numpy(), x.toarray())
    assert features.dense()[4].tolist() == [1.0] * 9


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_sparse_tensors_are_as_good_as_matrices(layout: torch.layout):
    x = torch.from_numpy(X) * (torch.from_numpy(X) % 2)
    assert learned(IDS, x.to_sparse(layout=layout), EDGES, LABELS) == learned(
        IDS, scipy.sparse.csr_array(x.numpy()), EDGES, LABELS
    )


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])
def test_complex_features_are_refused(make):
    with pytest.raises(InputError, match="rows of real numbers"):
        quick().learn(IDS, make(X + 0j), EDGES, LABELS)


def test_saving_over_another_state_is_refused(tmp_path: Path):
    learned_one = quick(validation_fraction=0, settings={"epochs": 1}).learn(IDS, X, EDGES, LABELS)
    learned_one.save(tmp_path / "state")
    another = quick(validation_fraction=0, settings={"epochs": 1}).learn(IDS, X, EDGES, LABELS)
    with pytest.raises(InputError, match=r"to hold no state yet \(got version 0\)"):
        another.save(tmp_path / "state")


def test_pyg_data_brings_everything():
    index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    data = Data(x=torch.from_numpy(X), edge_index=index, y=torch.tensor([0, 1, 0, -1]))
    clf = quick(validation_fraction=0, settings={"epochs": 1}, feature_scaling="none").learn(data)
    assert clf.ids_ == [0, 1, 2, 3]
    assert clf.history_[0]["num_edges"] == 3
    assert clf.history_[0]["trained_on"] == 3
    assert clf.classes_.tolist() == [0, 1]
    grown = Data(
        x=torch.zeros(3, 3),
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        y=torch.tensor([1, 0, 2]),
        train_mask=torch.tensor([True, False, True]),
        n_id=torch.tensor([3, 10, 11]),  # 3 is known: only its edges are new
    )
    clf.learn(grown)
    assert clf.ids_ == [0, 1, 2, 3, 10, 11]
    assert clf.history_[1]["num_edges"] == 5
    assert clf.history_[1]["trained_on"] == 1
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf._now().graph.features[3].tolist() == X[3].tolist()


def test_networkx_graph_may_be_given_again_as_it_grows():
    graph = networkx.Graph()
    for name, x, label in zip(IDS, X, LABELS, strict=True):
        graph.add_node(name, x=x.tolist(), **({"label": label} if label else {}))
    graph.add_edges_from(EDGES)
    clf = quick(validation_fraction=0, settings={"epochs": 1}).learn(graph)
    assert stored(clf) == PLAIN
    graph.add_node("e", x=[1.0, 1.0, 1.0], label="w")
    graph.add_edge("e", "a")
    clf.learn(graph)
    assert clf.ids_ == [*IDS, "e"]
    assert clf.history_[1]["num_edges"] == 4
    assert clf.history_[1]["trained_on"] == 1
    graph.add_node("f")
    with pytest.raises(InputError, match="'x' of node 'f'"):
        clf.learn(graph)
    with pytest.raises(InputError, match="no 'x' beside a graph"):
        clf.learn(graph, x=X)
