"""What one would do instead: keep Cora's classifier up to date by each obvious way, and time it.

Cora comes in three batches of two classes. Every way has learned the first two; timed is what it
does when the third comes, in CPU-seconds of one thread, and judged is what it then knows of all
classes (PM: the mean of the three batches' accuracies). ``PyG`` is the script that most would
write, two ``GATConv`` layers trained from scratch on all labels, with the same width, epochs and
dropout. Writes ``docs/instead.json``, which the README's table is checked against::

    OMP_NUM_THREADS=1 python benchmarks/instead.py docs/instead.json
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.nn import functional
from torch_geometric.nn import GATConv

from evergraph.config import Variant, resolve
from evergraph.events import Event, TaskDone
from evergraph.lab.folder import Run
from evergraph.lab.runs import execute
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

#: What a reader would call it, and the method that does it.
WAYS = {
    "leave it alone": "frozen",
    "fine-tune": "finetune",
    "retrain from scratch": "joint",
    "evergraph, dslr": "dslr",
    "evergraph, dslr+": "dslr+",
    "evergraph, analytic": "analytic",
}
EPOCHS = 500


class Network(torch.nn.Module):
    """Two layers of attention and a linear head, as the others have."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([GATConv(num_features, 64, 4), GATConv(256, 64, 4)])
        self.head = torch.nn.Linear(256, num_classes)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = functional.relu(layer(functional.dropout(x, 0.5, self.training), edges))
        return self.head(functional.dropout(x, 0.5, self.training))


def by_method(text: str) -> dict[str, float]:
    """Runs a method with our settings; timed is what is between the ends of its last two tasks."""
    ends: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, TaskDone):
            ends.append(time.process_time())

    config = resolve(Variant.parse_dataset("cora"), Variant.parse(text), seed=0)
    with tempfile.TemporaryDirectory() as folder:
        results = execute(Run(Path(folder) / "run", config), on_event=note)
    return {"seconds": ends[-1] - ends[-2], "bytes": results["memory_bytes"], "pm": results["pm"]}


def by_pyg() -> dict[str, float]:
    """Trains PyG's layers on all labels so far, as they lie in the same stream."""
    stream = TaskStream(load_graph("cora"), protocol_for("cora"))
    view = stream.view(stream.num_tasks - 1, frozenset({"old_labels"}))
    nodes = torch.cat([view.train_nodes, view.granted_nodes])
    labels = torch.cat([view.train_labels, view.granted_labels])
    edges = torch.stack([view.adjacency.src, view.adjacency.dst])
    x = view.features.dense()
    torch.manual_seed(0)
    begun = time.process_time()
    network = Network(x.shape[1], view.num_classes)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.005, weight_decay=5e-4)
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        functional.cross_entropy(network(x, edges)[nodes], labels).backward()
        optimiser.step()
    spent = time.process_time() - begun
    with torch.no_grad():
        predicted = network.eval()(x, edges).argmax(1)
    row = [
        float((predicted[part.nodes] == part.labels).float().mean())
        for part in (stream.evaluation(task) for task in range(stream.num_tasks))
    ]
    pm = 100 * sum(row) / len(row)
    return {"seconds": spent, "bytes": 16 * view.granted_nodes.numel(), "pm": pm}


if __name__ == "__main__":
    torch.set_num_threads(1)
    by_method("finetune:epochs=2")  # compiles
    found = {name: by_method(method) for name, method in WAYS.items()}
    found["a PyG script"] = by_pyg()
    told = {name: {k: round(v, 2) for k, v in one.items()} for name, one in found.items()}
    Path(sys.argv[1]).write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))
