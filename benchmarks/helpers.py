"""What the benchmarks share: graphs, training steps of Evergraph and of PyG, and their timing."""

from __future__ import annotations

import gc
import math
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

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
THREADS = 2


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


def make_step(name: str, stream: TaskStream, device: str = "cpu") -> Step:
    """A training step of the paper's network: forward, backward, Adam.

    ``evergraph``, ``evergraph-plain`` (no compiled attention), ``pyg`` or ``pyg-csr``.
    """
    if name.startswith("evergraph"):
        return _evergraph(stream, "plain" if name.endswith("plain") else "auto", device)
    return _pyg(stream, name == "pyg-csr", device)


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


def compare_steps(
    size: str, names: tuple[str, ...], turn: int = 10, turns: int = 3
) -> dict[str, dict[str, float]]:
    """Lets implementations step in turns, each in a process of its own.

    The first turn warms up. A turn is several steps: threads that were put to sleep after every
    single step would be what is measured. Peak memory is a process's maximum RSS less its RSS
    before the first step.

    Returns:
        Median milliseconds and peak memory by name.
    """
    context = multiprocessing.get_context("spawn")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    pipes = {}
    for name in names:
        pipes[name], theirs = context.Pipe()
        context.Process(target=_take_steps, args=(theirs, name, size), daemon=True).start()
        theirs.close()  # so that a process that dies is noticed
        pipes[name].recv()
    for number in range(1 + turns):
        for name, pipe in pipes.items():
            pipe.send(turn)
            taken = pipe.recv()
            seconds[name] += taken if number else []
    found = {}
    for name, pipe in pipes.items():
        pipe.send(0)
        found[name] = {"ms": 1e3 * statistics.median(seconds[name]), "peak_mb": pipe.recv() / 1e6}
    return found


def _take_steps(pipe: Connection, name: str, size: str) -> None:
    """Takes as many steps as it is told and answers with their seconds; 0 ends with its memory."""
    torch.set_num_threads(THREADS)
    torch.set_flush_denormal(True)
    make_step(name, make_stream("toy"))()  # imports and compiles whatever a first step needs
    step = make_step(name, make_stream(size))
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize()
    pipe.send("ready")
    while count := pipe.recv():
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begin)
        pipe.send(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    pipe.send(max(peak - before, 0))


def fit_exponent(values: Mapping[float, float]) -> float | None:
    """Fits the slope of log value over log size; None for one size or a value that is 0."""
    if len(values) < 2 or min(values.values()) <= 0:
        return None
    x, y = map(math.log, values), map(math.log, values.values())
    return round(statistics.linear_regression(list(x), list(y)).slope, 3)
