"""DSLR from scratch: Algorithm 1 on PyTorch Geometric's layers, dense features and plain loops.

The tutorial ``docs/tutorials/dslr-from-scratch.md`` explains this file piece by piece, and
``bench.py`` measures against it. Same algorithm, protocol, sizes and settings as
``evergraph run --dataset cora --method dslr --seed 0``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv

from evergraph.config import Variant, resolve
from evergraph.stream import GraphView, SparseRows, TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

CONFIG = resolve(Variant.parse_dataset("cora"), Variant.parse("dslr"), 0)
SETTINGS = CONFIG.settings
BETA, LAM, TAU, R = (SETTINGS[name] for name in ("beta", "lam", "tau", "r"))
N, K = SETTINGS["num_neighbors"], SETTINGS["num_candidates"]

Graph = tuple[Tensor, Tensor]  # features [n, d], and edges [2, m] with both directions of each


@dataclass
class Memory:
    """All that outlives a task besides the network."""

    picks: dict[int, list[int]] = field(default_factory=dict)  # class → kept nodes, best first
    counts: dict[int, int] = field(default_factory=dict)  # class → how many training nodes it had
    candidates: dict[int, list[int]] = field(default_factory=dict)  # kept node → 𝒫

    def nodes(self) -> Tensor:
        return torch.tensor([node for nodes in self.picks.values() for node in nodes])

    def labels(self) -> Tensor:
        return torch.tensor([label for label, nodes in self.picks.items() for _ in nodes])


class Net(nn.Module):
    """Two GAT layers of 4 heads with 64 channels each, and a linear head that can grow."""

    def __init__(self, in_dim: int, num_classes: int) -> None:
        super().__init__()
        self.first = GATConv(in_dim, 64, heads=4)
        self.second = GATConv(256, 64, heads=4)
        self.head = nn.Linear(256, num_classes)

    def embed(self, x: Tensor, edges: Tensor) -> Tensor:
        h = functional.relu(self.first(self.drop(x), edges))
        return self.second(self.drop(h), edges)

    def classify(self, h: Tensor) -> Tensor:
        return self.head(self.drop(functional.relu(h)))

    def drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, CONFIG.model.dropout, self.training)

    def grow(self, num_classes: int) -> None:
        old, self.head = self.head, nn.Linear(256, num_classes)
        with torch.no_grad():
            self.head.weight[: old.out_features] = old.weight
            self.head.bias[: old.out_features] = old.bias


def replay_loss(
    logits: Tensor, view: GraphView, memory: Memory, smoothing: float = 0.0, balanced: bool = False
) -> Tensor:
    """β·CE(current) + (1 − β)·CE(buffer); plain cross-entropy while the buffer is empty."""
    current = functional.cross_entropy(
        logits[view.train_nodes], view.train_labels, label_smoothing=smoothing
    )
    if not memory.picks:
        return current
    labels = memory.labels()
    each = functional.cross_entropy(
        logits[memory.nodes()], labels, reduction="none", label_smoothing=smoothing
    )
    weight = 1 / torch.bincount(labels)[labels] if balanced else torch.ones(len(labels))
    return BETA * current + (1 - BETA) * (each * weight).sum() / weight.sum()


def scores(z: Tensor, pairs: Tensor) -> Tensor:
    """S = (cos + 1) / 2 for every column of ``pairs`` [2, m]."""
    cosine = functional.cosine_similarity(z[pairs[0]], z[pairs[1]])
    return ((cosine + 1) / 2).clamp(1e-6, 1 - 1e-6)


def sample_non_edges(edges: Tensor, num_nodes: int) -> Tensor:
    known = set(map(tuple, edges.T.tolist()))
    pairs: list[list[int]] = []
    while len(pairs) < edges.shape[1] // 2:  # as many as there are undirected edges
        a, b = torch.randint(num_nodes, (2,)).tolist()
        if a != b and (a, b) not in known:
            pairs.append([a, b])
    return torch.tensor(pairs).T


def train_link_predictor(view: GraphView, graph: Graph, memory: Memory, epochs: int) -> Tensor:
    """Trains φ on λ·L_link + (1 − λ)·L_node and returns its embeddings z."""
    x, edges = graph
    net = Net(x.shape[1], view.num_classes)
    optimizer = torch.optim.Adam(net.parameters(), lr=SETTINGS["link_lr"])
    for _ in range(epochs):
        z = net.embed(x, edges)
        there = scores(z, edges).log().sum() / 2  # every edge stands in the list twice
        absent = (1 - scores(z, sample_non_edges(edges, view.num_nodes))).log().sum()
        loss = LAM * -(there + absent) / edges.shape[1]
        if LAM < 1:
            loss = loss + (1 - LAM) * replay_loss(net.classify(z), view, memory)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        return net.embed(x, edges)


def refine(edges: Tensor, memory: Memory, z: Tensor) -> Tensor:
    pairs = set(map(tuple, edges.T.tolist()))
    add, remove = set(), set()
    for node in memory.nodes().tolist():
        options = [(node, other) for other in memory.candidates[node] if (node, other) not in pairs]
        if options:
            best = scores(z, torch.tensor(options).T).argsort(descending=True)[:N]
            add |= {options[i] for i in best.tolist()}
        own = [pair for pair in pairs if pair[0] == node]
        if own:
            weak = scores(z, torch.tensor(own).T) <= TAU
            remove |= {pair for pair, drop in zip(own, weak.tolist(), strict=True) if drop}
    pairs -= remove | {(b, a) for a, b in remove}
    pairs |= add | {(b, a) for a, b in add}
    return torch.tensor(sorted(pairs)).T


def train_classifier(net: Net, view: GraphView, graph: Graph, memory: Memory, epochs: int) -> None:
    training, balanced = CONFIG.training, SETTINGS["replay_weights"] == "balanced"
    optimizer = torch.optim.Adam(
        net.parameters(), lr=training.lr, weight_decay=training.weight_decay
    )
    net.train()
    for _ in range(epochs):
        logits = net.classify(net.embed(*graph))
        loss = replay_loss(logits, view, memory, training.label_smoothing, balanced)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()


def coverage(h: Tensor, budget: int) -> list[int]:
    """Picks rows of one class greedily by how many uncovered rows they cover, best first."""
    m = h.shape[0]
    distance = torch.cdist(h, h)
    radius = R * distance.sum() / (m * (m - 1))
    covers = [
        {i} | set((row < radius).nonzero().flatten().tolist()) for i, row in enumerate(distance)
    ]
    picks: list[int] = []
    while len(picks) < budget:  # a round ends when no candidate is left
        covered, candidates = set(picks), set(range(m)) - set(picks)
        while candidates and len(picks) < budget:
            best = max(sorted(candidates), key=lambda i: len(covers[i] - covered))
            picks.append(best)
            covered |= covers[best]
            candidates -= covers[best]
    return picks


def select(memory: Memory, view: GraphView, h: Tensor) -> None:
    labels = view.train_labels
    memory.counts |= {label: int((labels == label).sum()) for label in view.new_classes}
    share = SETTINGS["buffer_size"] / sum(memory.counts.values())
    budgets = {label: min(m, max(1, int(share * m))) for label, m in memory.counts.items()}
    for label in view.new_classes:
        nodes = view.train_nodes[labels == label]
        memory.picks[label] = nodes[coverage(h[nodes], budgets[label])].tolist()
    memory.picks = {label: picks[: budgets[label]] for label, picks in memory.picks.items()}


def find_candidates(memory: Memory, h: Tensor) -> None:
    distance = torch.cdist(h, h).fill_diagonal_(torch.inf)
    memory.candidates = {
        node: distance[node].argsort()[:K].tolist() for node in memory.nodes().tolist()
    }


def run(epochs: int, link_epochs: int, stream: TaskStream | None = None) -> dict[str, float]:
    """Learns every task in turn, Cora's by default; returns the seconds and PM."""
    stream = stream or TaskStream(load_graph("cora"), protocol_for("cora"), 0)
    torch.manual_seed(0)
    begin = time.perf_counter()
    memory, net = Memory(), None
    for task in range(stream.num_tasks):
        view = stream.view(task)
        x = view.features.dense() if isinstance(view.features, SparseRows) else view.features
        edges = torch.stack([view.adjacency.src, view.adjacency.dst])
        if net is None:
            net = Net(x.shape[1], view.num_classes)
        else:
            net.grow(view.num_classes)
            z = train_link_predictor(view, (x, edges), memory, link_epochs)
            edges = refine(edges, memory, z)
        train_classifier(net, view, (x, edges), memory, epochs)
        with torch.no_grad():
            h = net.embed(x, edges)
            predicted = net.classify(h).argmax(dim=1)
        if task < stream.num_tasks - 1:
            select(memory, view, h)
            find_candidates(memory, h)
    tests = [stream.evaluation(task) for task in range(stream.num_tasks)]
    accuracy = [float((predicted[test.nodes] == test.labels).float().mean()) for test in tests]
    return {"seconds": time.perf_counter() - begin, "pm": 100 * sum(accuracy) / len(accuracy)}


if __name__ == "__main__":
    print(run(CONFIG.training.epochs, SETTINGS["link_epochs"]))
