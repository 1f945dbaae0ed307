"""One training step of the paper's GAT on Cora, ours against PyTorch Geometric's `GATConv`.

Both sides: the same model, Adam, dropout, self-loops and labels, 2 threads, dense features for
PyG. Steps are interleaved; the medians and their ratio are printed.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv

from evergraph.methods import TrainConfig, make_method
from evergraph.methods.context import TaskContext
from evergraph.nn import ModelConfig
from evergraph.stream import SparseRows, TaskStream, protocol_for
from evergraph.stream.datasets import load_graph
from evergraph.train import descend

WARM_UP, TIMED = 10, 30


class PyGNet(nn.Module):
    def __init__(self, in_dim: int, num_classes: int) -> None:
        super().__init__()
        self.first = GATConv(in_dim, 64, heads=4)
        self.second = GATConv(256, 64, heads=4)
        self.head = nn.Linear(256, num_classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = functional.relu(self.first(functional.dropout(x), edges))
        h = functional.relu(self.second(functional.dropout(h), edges))
        return self.head(functional.dropout(h))


def ours(stream: TaskStream) -> Callable[[], object]:
    method = make_method("joint")
    ctx = TaskContext(
        stream.view(stream.num_tasks - 1, method.needs),
        model=None,
        model_config=ModelConfig(dropout=0.5),
        training=TrainConfig(epochs=WARM_UP + TIMED + 1),
        seed=0,
        final=True,
        descend=descend,
    )
    method.begin_task(ctx)
    steps = descend(method, ctx)
    return lambda: next(steps)


def theirs(stream: TaskStream) -> Callable[[], object]:
    view = stream.view(stream.num_tasks - 1, frozenset({"old_labels"}))
    x = view.features.dense() if isinstance(view.features, SparseRows) else view.features
    edges = torch.stack([view.adjacency.src, view.adjacency.dst])
    nodes = torch.cat([view.train_nodes, view.granted_nodes])
    labels = torch.cat([view.train_labels, view.granted_labels])
    torch.manual_seed(0)
    net = PyGNet(x.shape[1], view.num_classes)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(net(x, edges)[nodes], labels).backward()
        optimizer.step()

    return step


def main() -> None:
    torch.set_num_threads(2)
    torch.set_flush_denormal(True)
    stream = TaskStream(load_graph("cora"), protocol_for("cora"))
    sides = {"evergraph": ours(stream), "pyg": theirs(stream)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(WARM_UP + TIMED):
        for name, step in sides.items():
            begin = time.perf_counter()
            step()
            if turn >= WARM_UP:
                seconds[name].append(time.perf_counter() - begin)
    medians = {name: 1e3 * statistics.median(values) for name, values in seconds.items()}
    medians["ratio"] = medians["pyg"] / medians["evergraph"]
    print(json.dumps({"benchmark": "cora training step, ms", **medians}, indent=2))


if __name__ == "__main__":
    main()
