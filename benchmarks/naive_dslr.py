"""DSLR the obvious way, for comparison: PyG's layers, dense features, loops over nodes and edges.

The same algorithm, protocol, sizes and epochs as `evergraph run --method dslr`; what it reaches is
printed beside ours so that one can see that it does the same.
"""

from __future__ import annotations

import time

import torch
from helpers import PyGNet
from torch import Tensor
from torch.nn import functional

from evergraph.presets import PRESETS
from evergraph.stream import GraphView, SparseRows, TaskStream, protocol_for
from evergraph.stream.datasets import load_graph


def embed(net: PyGNet, x: Tensor, edges: Tensor, drop: float) -> Tensor:
    h = functional.relu(net.first(functional.dropout(x, drop, net.training), edges))
    return net.second(functional.dropout(h, drop, net.training), edges)


def logits_of(net: PyGNet, h: Tensor, drop: float) -> Tensor:
    return net.head(functional.dropout(functional.relu(h), drop, net.training))


def grow(net: PyGNet, num_classes: int) -> None:
    old = net.head
    net.head = torch.nn.Linear(256, num_classes)
    with torch.no_grad():
        net.head.weight[: old.out_features] = old.weight
        net.head.bias[: old.out_features] = old.bias


def coverage(h: Tensor, budget: int, r: float) -> list[int]:
    distance = torch.cdist(h, h)
    m = h.shape[0]
    radius = r * float(distance.sum() / (m * (m - 1)))
    covers = [
        set(torch.nonzero(row < radius).flatten().tolist()) | {i} for i, row in enumerate(distance)
    ]
    picks: list[int] = []
    while len(picks) < budget:
        covered, candidates = set(picks), set(range(m)) - set(picks)
        while candidates and len(picks) < budget:
            best = max(sorted(candidates), key=lambda i: len(covers[i] - covered))
            picks.append(best)
            covered |= covers[best]
            candidates -= covers[best]
    return picks


def score(z: Tensor, i: int, j: int) -> float:
    return float((functional.cosine_similarity(z[i], z[j], dim=0) + 1) / 2)


def refined(view: GraphView, buffer: list[int], candidates: list[list[int]], z: Tensor) -> Tensor:
    s = PRESETS["cora"]
    pairs = set(zip(view.adjacency.src.tolist(), view.adjacency.dst.tolist(), strict=True))
    add, remove = set(), set()
    for node, options in zip(buffer, candidates, strict=True):
        scored = [(score(z, node, other), other) for other in options if (other, node) not in pairs]
        add |= {(node, other) for _, other in sorted(scored, reverse=True)[: s["num_neighbors"]]}
        remove |= {(a, b) for a, b in pairs if b == node and score(z, a, b) <= s["tau"]}
    pairs -= remove | {(b, a) for a, b in remove}
    pairs |= add | {(b, a) for a, b in add}
    return torch.tensor(sorted(pairs)).T


def train_links(view: GraphView, x: Tensor, edges: Tensor, epochs: int, drop: float) -> Tensor:
    net = PyGNet(x.shape[1], view.num_classes)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    known = set(zip(edges[0].tolist(), edges[1].tolist(), strict=True))
    for _ in range(epochs):
        z = embed(net, x, edges, drop)
        negatives: list[tuple[int, int]] = []
        while len(negatives) < edges.shape[1] // 2:
            a, b = torch.randint(view.num_nodes, (2,)).tolist()
            if a != b and (a, b) not in known:
                negatives.append((a, b))
        wrong = torch.tensor(negatives).T
        right = (functional.cosine_similarity(z[edges[0]], z[edges[1]]) + 1) / 2
        other = (functional.cosine_similarity(z[wrong[0]], z[wrong[1]]) + 1) / 2
        right, other = right.clamp(1e-6, 1 - 1e-6), other.clamp(1e-6, 1 - 1e-6)
        loss = -(right.log().sum() / 2 + (1 - other).log().sum()) / edges.shape[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        return embed(net, x, edges, drop)


def run(epochs: int, link_epochs: int) -> dict[str, float]:
    """Runs it on Cora and returns seconds and PM."""
    s = PRESETS["cora"]
    drop, beta, smoothing = s["dropout"], s["beta"], s["label_smoothing"]
    stream = TaskStream(load_graph("cora"), protocol_for("cora"), 0)
    torch.manual_seed(0)
    begin = time.perf_counter()
    net: PyGNet | None = None
    picks: dict[int, list[int]] = {}
    candidates: list[list[int]] = []
    accuracy: list[float] = []
    for task in range(stream.num_tasks):
        view = stream.view(task)
        x = view.features.dense() if isinstance(view.features, SparseRows) else view.features
        edges = torch.stack([view.adjacency.src, view.adjacency.dst])
        buffer = [node for nodes in picks.values() for node in nodes]
        kept = torch.tensor([label for label, nodes in picks.items() for _ in nodes])
        if net is None:
            net = PyGNet(x.shape[1], view.num_classes)
        else:
            grow(net, view.num_classes)
            z = train_links(view, x, edges, link_epochs, drop)
            edges = refined(view, buffer, candidates, z)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)
        net.train()
        for _ in range(epochs):
            logits = logits_of(net, embed(net, x, edges, drop), drop)
            loss = functional.cross_entropy(
                logits[view.train_nodes], view.train_labels, label_smoothing=smoothing
            )
            if buffer:
                weights = (1 / torch.bincount(kept).float())[kept]
                old = functional.cross_entropy(
                    logits[torch.tensor(buffer)], kept, reduction="none", label_smoothing=smoothing
                )
                loss = beta * loss + (1 - beta) * (old * weights).sum() / weights.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            h = embed(net, x, edges, drop)
            logits = logits_of(net, h, drop)
        accuracy = [
            float((logits[e.nodes].argmax(1) == e.labels).float().mean())
            for e in (stream.evaluation(t) for t in range(task + 1))
        ]
        if task < stream.num_tasks - 1:
            budget = s["buffer_size"] // view.num_classes
            for label in view.new_classes:
                nodes = view.train_nodes[view.train_labels == label]
                picks[label] = nodes[coverage(h[nodes], budget, s["r"])].tolist()
            picks = {label: nodes[:budget] for label, nodes in picks.items()}
            distance = torch.cdist(h, h).fill_diagonal_(torch.inf)
            candidates = [
                distance[node].argsort()[: s["num_candidates"]].tolist()
                for nodes in picks.values()
                for node in nodes
            ]
    return {
        "seconds": time.perf_counter() - begin,
        "pm": 100 * sum(accuracy) / len(accuracy),
    }
