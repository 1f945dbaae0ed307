"""The GPU rows of docs/performance.md, a JSON line each.

    python benchmarks/gpu.py step:arxiv step:reddit links:reddit inference growth whole:arxiv
    python benchmarks/gpu.py whole:reddit whole:reddit:finetune --runs runs/reddit

Graphs are generated on the device with the shape of the real ones. A step is forward, backward and
Adam on the paper's network, 10 to warm up and 30 timed, one after the other; memory is PyTorch's
peak of allocated bytes, the graph and features included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from helpers import SHAPES, PyGNet, fit_exponent
from torch.nn import functional

from evergraph.config import Variant, resolve
from evergraph.events import Event, TaskDone
from evergraph.lab.folder import Run
from evergraph.lab.runs import Place, execute
from evergraph.methods import TaskContext, TrainConfig
from evergraph.methods.dslr import train_link_predictor
from evergraph.nn import ModelConfig, NodeClassifier
from evergraph.nn.cuda_graphs import RecordedStep
from evergraph.nn.receptive_field import receptive_field
from evergraph.stream import Adjacency, LabelledNodes
from evergraph.structure import StructureConfig, nearest_nodes, refine

DEVICE = torch.device("cuda")
WARM_UP, TIMED = 10, 30


def seeded(seed: int = 0, device: torch.device = DEVICE) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed)


def make_view(shape: str, device: torch.device = DEVICE) -> Any:
    """A random graph whose degrees follow a power law, dense features, 60 % training nodes."""
    nodes, edges, width, classes = SHAPES[shape]
    generator = seeded(device=device)
    keys = torch.empty(0, dtype=torch.int64, device=device)
    while keys.numel() < edges // 2:
        count = int(1.1 * (edges // 2 - keys.numel())) + 100
        # The density of ends is that of x^1.5 on [0, 1): expected degrees follow a power law.
        ends = torch.rand(2, count, generator=generator, device=device).pow_(1.5)
        pairs = (ends * nodes).long().clamp_(max=nodes - 1)
        low, high = pairs.amin(dim=0), pairs.amax(dim=0)
        fresh = (low * nodes + high)[low != high]
        keys = torch.unique(torch.cat([keys, fresh]))
    chosen = torch.randperm(keys.numel(), generator=generator, device=device)[: edges // 2]
    low, high = keys[chosen] // nodes, keys[chosen] % nodes
    del keys, chosen
    adjacency = Adjacency.from_edges(
        torch.stack([torch.cat([low, high]), torch.cat([high, low])]), nodes
    )
    labels = torch.randint(classes, (nodes,), generator=generator, device=device)
    train = torch.randperm(nodes, generator=generator, device=device)[: nodes * 6 // 10]
    return SimpleNamespace(
        adjacency=adjacency,
        features=torch.randn(nodes, width, generator=generator, device=device),
        train_nodes=train,
        train_labels=labels[train],
        num_features=width,
        num_classes=classes,
    )


def our_step(view: Any) -> Callable[[], object]:
    model = NodeClassifier(
        ModelConfig(dropout=0.5),
        view.num_features,
        view.num_classes,
        seeded(0, torch.device("cpu")),
    ).to(DEVICE)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=0.005, weight_decay=5e-4, fused=True, capturable=True
    )
    generator = seeded(1)
    field = receptive_field(view.features, view.adjacency, view.train_nodes, 2)

    def step() -> torch.Tensor:
        logits = model(field.features, field.graphs, field.rows, generator).logits
        loss = functional.cross_entropy(logits, view.train_labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return RecordedStep(step, DEVICE, lambda: [generator])


def pyg_step(view: Any) -> Callable[[], object]:
    net = PyGNet(view.num_features, view.num_classes).to(DEVICE)
    edges = torch.stack([view.adjacency.src, view.adjacency.dst])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        logits = net(view.features, edges)[view.train_nodes]
        functional.cross_entropy(logits, view.train_labels).backward()
        optimizer.step()

    return step


def timed(step: Callable[[], object]) -> dict[str, float | str]:
    """Median milliseconds and peak gigabytes of a step, or that it does not fit."""
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    try:
        for turn in range(WARM_UP + TIMED):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            step()
            torch.cuda.synchronize()
            if turn >= WARM_UP:
                seconds.append(time.perf_counter() - begin)
    except torch.cuda.OutOfMemoryError:
        return {"error": "out of memory"}
    return {
        "ms": 1e3 * statistics.median(seconds),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
    }


def bench_step(shape: str) -> dict[str, Any]:
    view = make_view(shape)
    ours = timed(our_step(view))
    torch.cuda.empty_cache()
    theirs = timed(pyg_step(view))
    torch.cuda.empty_cache()
    nodes, edges = view.adjacency.num_nodes, view.adjacency.num_edges
    # Each layer reads a row of 256 numbers per edge twice, forward and backward.
    moved = 2 * 2 * (edges + nodes) * 256 * 4
    return {"evergraph": ours, "pyg": theirs, "least_gb_moved": moved / 1e9}


def bench_links(shape: str) -> dict[str, Any]:
    view = make_view(shape)
    buffer = LabelledNodes(view.train_nodes[:3000], view.train_labels[:3000])
    model, training = ModelConfig(dropout=0.5), TrainConfig()
    ctx = TaskContext(view, model=None, model_config=model, training=training, seed=0, final=False)
    config = StructureConfig(link_epochs=WARM_UP + TIMED)
    steps = train_link_predictor(ctx, buffer, config, beta=0.1)
    return timed(lambda: next(steps, None))


def bench_inference(shape: str) -> dict[str, Any]:
    """Candidates and refinement of 3,000 nodes."""
    view = make_view(shape)
    z = torch.randn(view.adjacency.num_nodes, 256, generator=seeded(3), device=DEVICE)
    buffer = view.train_nodes[:3000]
    found: dict[str, Any] = {}
    for name in ("first", "second"):  # the first call compiles
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        candidates = nearest_nodes(z, buffer, 50)
        torch.cuda.synchronize()
        middle = time.perf_counter()
        refine(view.adjacency, buffer, candidates, z, StructureConfig())
        torch.cuda.synchronize()
        found[name] = {
            "candidates_s": middle - begin,
            "inference_s": time.perf_counter() - middle,
            "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
        }
    return found


def bench_growth(_: str) -> dict[str, Any]:
    """A step from 10⁴ to 10⁸ directed edges, 20 per node, 64 features; the fitted exponent."""
    ms = {}
    for edges in (1e4, 1e5, 1e6, 1e7, 1e8):
        SHAPES["growth"] = (max(int(edges) // 20, 50), int(edges), 64, 8)
        found = timed(our_step(make_view("growth")))
        torch.cuda.empty_cache()
        ms[edges] = float(found["ms"])
    linear = {edges: value for edges, value in ms.items() if edges >= 1e6}
    return {
        "ms": {f"{edges:g}": value for edges, value in ms.items()},
        "exponent": fit_exponent(ms),
        "exponent_from_1e6": fit_exponent(linear),
    }


def bench_whole(runs: Path, shape: str) -> dict[str, Any]:
    """A method, DSLR unless named, on a generated graph with the shape of a real one.

    It is the real run, with checkpoints: killed and started again it continues.
    """
    shape, _, method = shape.partition(":")
    nodes, edges, width, classes = SHAPES[shape]
    options = {
        "nodes": nodes,
        "classes": classes,
        "mean_degree": edges / nodes,
        "feature_dim": width,
        "homophily": 0.65,
    }
    begin = time.perf_counter()
    settings = {"classes_per_task": {"arxiv": 3, "reddit": 5}[shape]}
    if method != "finetune":
        settings |= {"buffer_size": 3000, "beta": 0.05, "r": 0.15}
    graph = Variant(name="synthetic", options=options, label="synthetic")
    name = method or "dslr"
    config = resolve(graph, Variant(name=name, options={}, label=name), 0, settings)
    results = execute(Run(runs / f"{shape}-{name}", config), Place("cuda"), _tell)
    return {
        "seconds": results["seconds"],
        "wall_s": time.perf_counter() - begin,
        "pm": results["pm"],
        "fm": results["fm"],
        "current": results["current"],
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
    }


def _tell(event: Event) -> None:
    if isinstance(event, TaskDone):
        seconds = {stage: round(value, 1) for stage, value in event.seconds.items()}
        print(f"task {event.task}: {seconds}", file=sys.stderr, flush=True)


BENCHES: dict[str, Callable[[str], dict[str, Any]]] = {
    "step": bench_step,
    "links": bench_links,
    "inference": bench_inference,
    "growth": bench_growth,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="+", metavar="NAME[:SHAPE[:METHOD]]")
    parser.add_argument("--runs", type=Path, help="where whole runs go, to be continued")
    arguments = parser.parse_args()
    with TemporaryDirectory() as scratch:
        benches = BENCHES | {"whole": partial(bench_whole, arguments.runs or Path(scratch))}
        for name in arguments.names:
            bench, _, shape = name.partition(":")
            result = benches[bench](shape or "arxiv")
            print(json.dumps({"benchmark": name, **result}), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
