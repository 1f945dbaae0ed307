"""From PyTorch Geometric (evergraph[pyg]): a ``Data`` that grows, its ``n_id`` naming the nodes."""

import sys

import torch

from evergraph import ContinualNodeClassifier
from evergraph.stream.datasets import load_graph

try:
    from torch_geometric.data import Data
except ImportError:
    sys.exit("Expected the package 'torch_geometric' (got none); install evergraph[pyg].")

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
graph = load_graph("synthetic", None, {"nodes": 400, "classes": 4})
data = Data(x=graph.x, edge_index=torch.cat([graph.edges, graph.edges.flip(0)], 1), y=graph.y)
data.n_id = torch.arange(graph.num_nodes)
data.train_mask = torch.rand(400, generator=torch.Generator().manual_seed(0)) < 0.6

clf = ContinualNodeClassifier("dslr", buffer_size=40, settings={"epochs": epochs})
seen = data.y < 2
clf.learn(data.subgraph(seen))
print(f"first: {len(clf.ids_)} nodes, classes {clf.classes_.tolist()}")
clf.learn(data)  # nodes that are known bring their new edges alone
print(f"then: {len(clf.ids_)} nodes, classes {clf.classes_.tolist()}")
test = data.n_id[~data.train_mask]
print(f"accuracy {clf.score(test, data.y[test]):.2f} on nodes without a label")
