"""The analytic learner on graphs of real size: seconds by stage and peak memory, task by task.

    python benchmarks/bench_analytic.py arxiv
    python benchmarks/bench_analytic.py reddit --device cuda

A graph with the shape of the real one is generated on the device and its classes arrive in
tasks. ``--sizes 0.25,0.5,1`` repeats with a part of the edges and fits how time grows with them.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import torch
from gpu import make_view
from helpers import SHAPES, fit_exponent

from evergraph.config import parse_settings
from evergraph.methods import TaskContext, TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Adjacency, GraphView


def growing(view: Any, fraction: float, num_tasks: int) -> list[GraphView]:
    """Views of a graph that holds a fraction of the edges, nodes in order of class."""
    nodes, classes = view.adjacency.num_nodes, view.num_classes
    labels = torch.arange(nodes, device=view.adjacency.device) * classes // nodes
    trains = torch.zeros_like(labels, dtype=torch.bool)
    trains[view.train_nodes] = True
    src, dst = view.adjacency.src, view.adjacency.dst
    # The same for both directions of an edge.
    drawn = (src + dst) * 2654435761 % 1000003 < fraction * 1000003
    num_tasks = min(num_tasks, classes)  # a task brings a class at least
    views, seen = [], 0
    for task in range(num_tasks):
        num_classes = classes * (task + 1) // num_tasks
        count = int((labels < num_classes).sum())
        inside = drawn & (src < count) & (dst < count)
        own = seen + torch.nonzero(trains[seen:count]).flatten()
        graph = Adjacency.from_edges(torch.stack([src[inside], dst[inside]]), count)
        views.append(
            GraphView(task, view.features[:count], graph, own, labels[own], num_classes, ())
        )
        seen = count
    return views


def measure(views: list[GraphView], settings: dict[str, Any]) -> dict[str, Any]:
    """Learns all tasks and predicts every node after each."""
    method = make_method("analytic", settings)
    seconds: dict[str, float] = {}
    tasks = []
    for view in views:
        ctx = TaskContext(
            view,
            model=None,
            model_config=ModelConfig(),
            training=TrainConfig(),
            seed=0,
            final=view is views[-1],
        )
        begin = time.perf_counter()
        method.begin_task(ctx)
        list(method.fit_task(ctx))
        method.end_task(ctx)
        with ctx.stage("predict"):
            method.predict_logits(ctx)
        tasks.append(round(time.perf_counter() - begin, 2))
        for stage, spent in ctx.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    total = round(sum(tasks), 2)
    stages = {stage: round(spent, 2) for stage, spent in seconds.items()}
    return {"total_s": total, "by_task": tasks, "by_stage": stages, "kept": method.memory_bytes()}


def peak_gb(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e9
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=list(SHAPES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--sizes", default="1", help="fractions of the edges, ascending")
    parser.add_argument("--set", action="append", default=[], help="key=value of the method")
    options = parser.parse_args()
    device = torch.device(options.device)
    begin = time.perf_counter()
    whole = make_view(options.shape, device)
    made = round(time.perf_counter() - begin, 1)
    measure(growing(whole, 0.01, 2), parse_settings(options.set))  # compiles
    sizes, rows = [float(size) for size in options.sizes.split(",")], []
    for size in sizes:
        views = growing(whole, size, options.tasks)
        found = measure(views, parse_settings(options.set))
        edges = views[-1].adjacency.num_edges
        rows.append({"nodes": views[-1].num_nodes, "edges": edges, **found})
        del views
    growth = fit_exponent({row["edges"]: row["total_s"] for row in rows})
    answer = {"benchmark": f"analytic:{options.shape}", "device": options.device, "made_s": made}
    print(json.dumps({**answer, "rows": rows, "growth": growth, "peak_gb": peak_gb(device)}))


if __name__ == "__main__":
    main()
