"""The two sides of every step benchmark: Evergraph and PyTorch Geometric's `GATConv`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv

from evergraph.methods import Descent, TrainConfig, make_method
from evergraph.methods.context import TaskContext
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, SparseRows, TaskStream, protocol_for
from evergraph.stream.datasets import load_graph
from evergraph.train import descend

Step = Callable[[], object]

#: Generated graphs of the shape of real ones: nodes, directed edges, features, classes.
SHAPES: dict[str, tuple[int, int, int, int]] = {
    "amazon": (13_752, 491_722, 767, 8),
    "arxiv": (169_343, 2_315_598, 128, 15),
    "reddit": (232_965, 114_615_892, 602, 40),
    "toy": (200, 1_000, 16, 4),
}
SIDES = ("evergraph", "evergraph-plain", "pyg", "pyg-csr")


def make_stream(size: str) -> TaskStream:
    """All classes in one task: real Cora, a shape of :data:`SHAPES`, or ``edges=N``."""
    if size == "cora":
        return TaskStream(load_graph("cora"), protocol_for("cora"))
    if size.startswith("edges="):
        edges = int(float(size.removeprefix("edges=")))
        nodes, features, classes = max(edges // 20, 50), 64, 8
    else:
        nodes, edges, features, classes = SHAPES[size]
    options = {
        "nodes": nodes,
        "classes": classes,
        "mean_degree": edges / nodes,
        "feature_dim": features,
    }
    graph = load_graph("synthetic", None, options)
    return TaskStream(graph, Protocol(classes_per_task=classes))


def make_step(side: str, stream: TaskStream, device: str = "cpu") -> Step:
    """A training step of the paper's network: forward, backward, Adam."""
    if side.startswith("evergraph"):
        return _evergraph(stream, "plain" if side.endswith("plain") else "auto", device)
    return _pyg(stream, side == "pyg-csr", device)


def _evergraph(stream: TaskStream, attention: str, device: str) -> Step:
    method = make_method("joint")
    view = stream.view(stream.num_tasks - 1, method.needs)
    ctx = TaskContext(
        view.to(device),
        model=None,
        model_config=ModelConfig(dropout=0.5, attention=attention),
        training=TrainConfig(epochs=1_000_000),
        seed=0,
        final=True,
    )
    method.begin_task(ctx)
    steps = descend(method, ctx, Descent())
    return lambda: next(steps)


class PyGNet(nn.Module):
    """The same network of PyTorch Geometric's layers."""

    def __init__(self, in_dim: int, num_classes: int) -> None:
        super().__init__()
        self.first = GATConv(in_dim, 64, heads=4)
        self.second = GATConv(256, 64, heads=4)
        self.head = nn.Linear(256, num_classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = functional.relu(self.first(functional.dropout(x), edges))
        h = functional.relu(self.second(functional.dropout(h), edges))
        return self.head(functional.dropout(h))


def _pyg(stream: TaskStream, csr: bool, device: str) -> Step:
    """Dense features; edges as the usual index, or as a transposed CSR matrix."""
    view = stream.view(stream.num_tasks - 1, frozenset({"old_labels"})).to(device)
    x = view.features.dense() if isinstance(view.features, SparseRows) else view.features
    graph = view.adjacency
    edges = torch.stack([graph.src, graph.dst])
    if csr:  # self-loops are part of the matrix: the layer adds them to an index only
        loops = graph.with_self_loops
        edges = torch.sparse_csr_tensor(
            loops.indptr, loops.src, torch.ones(loops.num_edges, device=device)
        )
    nodes = torch.cat([view.train_nodes, view.granted_nodes])
    labels = torch.cat([view.train_labels, view.granted_labels])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = PyGNet(x.shape[1], view.num_classes).to(device)
    if csr:
        net.first.add_self_loops = net.second.add_self_loops = False
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(net(x, edges)[nodes], labels).backward()
        optimizer.step()

    return step
