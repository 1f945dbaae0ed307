import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from evergraph.errors import InputError
from evergraph.stream.datasets import download, load_graph
from evergraph.stream.datasets.raw import REDDIT_DATA as DATA
from evergraph.stream.datasets.raw import REDDIT_GRAPH as GRAPH


def write_raw(root, matrix=None, **changes):
    (root / DATA).parent.mkdir(parents=True, exist_ok=True)
    arrays = {
        "feature": np.arange(8.0).reshape(4, 2),
        "label": np.array([0, 0, 1, 1]),
        "node_types": np.array([1, 1, 2, 3]),
        "node_ids": np.arange(4),
    }
    np.savez(root / DATA, **(arrays | changes))
    if matrix is None:  # both directions, as published, and a loop
        row, col = np.array([0, 1, 1, 2, 2, 3, 3]), np.array([1, 0, 2, 1, 3, 2, 3])
        matrix = sp.coo_matrix((np.ones(7), (row, col)), shape=(4, 4))
    sp.save_npz(root / GRAPH, matrix)


@pytest.mark.parametrize("folder", ["", "raw"])
def test_reddit_reads_the_raw_files(tmp_path, offline, folder):
    write_raw(tmp_path / folder)
    graph = load_graph("reddit", tmp_path)
    assert graph.name == "reddit"
    assert graph.edges.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert torch.equal(graph.x, torch.arange(8.0).view(4, 2))
    assert graph.y.tolist() == [0, 0, 1, 1]
    assert offline == []


def test_reddit_offline_lists_the_ways_out(tmp_path, offline):
    with pytest.raises(InputError, match=r"reddit_data\.npz.*--data-root or EVERGRAPH_DATA"):
        load_graph("reddit", tmp_path)
    assert offline == ["reddit"]


def test_reddit_downloads_both_files_below_the_root(tmp_path, monkeypatch):
    write_raw(tmp_path / "source")

    def fetch(dataset, folder):
        with zipfile.ZipFile(folder / "reddit.zip", "w") as archive:
            archive.write(tmp_path / "source" / DATA, "reddit_data.npz")
            archive.write(tmp_path / "source" / GRAPH, "reddit_graph.npz")
        return folder / "reddit.zip"

    monkeypatch.setattr(download, "fetch", fetch)
    root = tmp_path / "new"
    assert load_graph("reddit", root).num_edges == 3
    assert sorted(path.name for path in root.rglob("*.npz")) == [
        "reddit_data.npz",
        "reddit_graph.npz",
    ]
    assert [path.name for path in root.iterdir()] == ["Reddit"]


def test_reddit_with_one_file_of_two_names_the_other(tmp_path, offline):
    write_raw(tmp_path)
    (tmp_path / GRAPH).unlink()
    with pytest.raises(InputError, match=r"reddit_graph\.npz' below .* beside the other raw files"):
        load_graph("reddit", tmp_path)
    assert offline == []


@pytest.mark.parametrize(
    ("matrix", "changes", "words"),
    [
        (sp.csr_matrix((4, 4)), {}, ["'row'", "reddit_graph.npz"]),
        (sp.coo_matrix((5, 5)), {}, ["'shape'", "belong together"]),
        (None, {"feature": np.ones(4)}, ["'feature'", "reddit_data.npz"]),
        (None, {"label": np.array([0, 1, -1, 1])}, ["'y'", "1 of 4 missing"]),
        (None, {"label": np.array([{}] * 4)}, ["'label'", "Python objects"]),
    ],
)
def test_reddit_refuses_in_one_sentence(tmp_path, matrix, changes, words):
    write_raw(tmp_path, matrix, **changes)
    with pytest.raises(InputError) as caught:
        load_graph("reddit", tmp_path)
    for word in words:
        assert word in str(caught.value)
