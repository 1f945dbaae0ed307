import gzip

import numpy as np
import pytest
import torch

from evergraph.errors import InputError
from evergraph.stream.datasets import load_graph
from evergraph.stream.datasets.raw import ARXIV_CLASSES as CLASSES
from evergraph.stream.datasets.raw import ARXIV_EDGES as EDGES
from evergraph.stream.datasets.raw import ARXIV_FEATURES as FEATURES
from evergraph.stream.datasets.raw import ARXIV_LABELS as LABELS
from evergraph.stream.datasets.raw import read_table

FILES = {
    EDGES: "1,0\n1,2\n2,3\n3,3\n",
    FEATURES: "-0.057943,-0.05253\n1e-3,2\n0.5,-1\n3,4\n",
    LABELS: "0\n0\n1\n1\n",
    CLASSES: "label idx,arxiv category\n0,arxiv cs na\n1,arxiv cs mm\n",
}


def write_raw(root, **changes):
    for relative, default in FILES.items():
        key = relative.rpartition("/")[2].split(".")[0].replace("-", "_")
        text = changes.get(key, default)
        if text is None:
            continue
        path = root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize("folder", ["", "raw"])
def test_arxiv_reads_ogbs_raw_files(tmp_path, offline, folder):
    write_raw(tmp_path / folder)
    graph = load_graph("ogbn-arxiv", tmp_path)
    assert graph.name == "ogbn-arxiv"
    assert graph.edges.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert graph.y.tolist() == [0, 0, 1, 1]
    expected = torch.tensor([[-0.057943, -0.05253], [1e-3, 2], [0.5, -1], [3, 4]])
    assert torch.equal(graph.x, expected)
    assert graph.class_names == ("arxiv cs na", "arxiv cs mm")
    assert offline == []


def test_arxiv_without_the_mapping_numbers_the_classes(tmp_path):
    write_raw(tmp_path, labelidx2arxivcategeory=None)
    assert load_graph("ogbn-arxiv", tmp_path).class_names == ("0", "1")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node_feat": None}, ["node-feat.csv.gz"]),
        ({"node_feat": "1,2\n3\n4,5\n6,7\n"}, ["node-feat.csv.gz", "table"]),
        ({"node_feat": "1,nan\n3,1\n4,5\n6,7\n"}, ["'x'", "NaN"]),
        ({"node_feat": ""}, ["node-feat.csv.gz", "got 0 of"]),
        ({"node_label": "0\nnan\n1\n1\n"}, ["node-label.csv.gz"]),
        ({"node_label": "0\n0\n1\n"}, ["'y'", "4 (got 3)"]),
        ({"node_label": "0,1\n0,1\n"}, ["node-label.csv.gz", "rows of 1 columns"]),
        ({"node_label": "0\n0\n1\n2\n"}, ["'class_names'"]),
        ({"edge": "0\n1\n"}, ["edge.csv.gz", "rows of 2 columns"]),
        ({"edge": "0,9\n"}, ["'edge_index'", "9"]),
        ({"labelidx2arxivcategeory": "a,b\n0,x\n2,y\n"}, ["categeory", "gaps"]),
        ({"labelidx2arxivcategeory": "a,b\n0\n"}, ["categeory"]),
    ],
)
def test_arxiv_refuses_in_one_sentence(tmp_path, changes, words):
    write_raw(tmp_path, **changes)
    with pytest.raises(InputError) as caught:
        load_graph("ogbn-arxiv", tmp_path)
    for word in (*words, "ogbn_arxiv"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [lambda good: good[:-12], lambda good: b"x" + good])
def test_read_table_damaged_gzip(tmp_path, cut):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(cut(gzip.compress(b"1,2\n" * 1000)))
    with pytest.raises(InputError, match=r"a\.csv\.gz' to be a gzipped table of int64"):
        read_table(path, np.int64)


def test_arxiv_offline_lists_the_ways_out(tmp_path, offline):
    with pytest.raises(InputError, match=r"edge\.csv\.gz.*--data-root or EVERGRAPH_DATA.*online"):
        load_graph("ogbn-arxiv", tmp_path)
    assert offline == ["ogbn-arxiv"]


@pytest.mark.dataset
@pytest.mark.slow
def test_arxiv_reads_a_file_of_the_real_size(tmp_path, data_root):
    with np.load(data_root / "ogbn-arxiv-graph.npz", allow_pickle=False) as stored:
        edges, y = stored["edge_index"], stored["y"]
    for relative, table in ((EDGES, edges.T), (LABELS, y), (FEATURES, y)):
        (tmp_path / relative).parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(map(str, table.tolist())).replace("[", "").replace("]", "")
        (tmp_path / relative).write_bytes(gzip.compress(text.encode(), compresslevel=1))
    graph = load_graph("ogbn-arxiv", tmp_path)
    assert (graph.num_nodes, len(graph.class_names)) == (169343, 40)
    assert torch.equal(graph.y, torch.from_numpy(y))
    pairs = {(min(u, v), max(u, v)) for u, v in edges.T.tolist() if u != v}
    assert graph.num_edges == len(pairs)
