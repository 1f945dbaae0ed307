"""Coverage-based selection from one class: seconds, peak memory and how they grow.

Embeddings are Gaussian clusters of different spread and few inner dimensions, as embeddings
of one class have. `--dense` adds the obvious alternative, a greedy search over the whole
matrix of distances, and whether it picks the same nodes. One JSON line is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from helpers import fit_exponent
from torch import Tensor

from evergraph.memory.coverage import coverage_diversity

CLUSTERS, INNER = 50, 8
Figures = dict[str, float]


def clustered(nodes: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    inner = min(INNER, dim)
    centres = torch.randn(CLUSTERS, dim, generator=generator)
    axes = torch.randn(CLUSTERS, inner, dim, generator=generator) * math.sqrt(1 / inner)
    spread = 0.1 + 0.9 * torch.rand(CLUSTERS, generator=generator)
    cluster = torch.randint(CLUSTERS, (nodes,), generator=generator)
    h = centres[cluster]
    for c in range(CLUSTERS):
        mine = cluster == c
        offsets = torch.randn(int(mine.sum()), inner, generator=generator)
        h[mine] += spread[c] * offsets @ axes[c]
    return h


def dense(h: Tensor, budget: int, r: float) -> Tensor:
    """Does what `coverage_diversity` does with every distance and cover in memory."""
    m = h.shape[0]
    distance = torch.cdist(h, h, compute_mode="donot_use_mm_for_euclid_dist")
    cover = distance < r * (distance.sum(dtype=torch.float64) / (m * (m - 1)))
    cover.fill_diagonal_(True)
    picked = torch.zeros(m, dtype=torch.bool, device=h.device)
    picks: list[int] = []
    while len(picks) < budget:
        covered, candidate = picked.clone(), ~picked
        while len(picks) < budget and bool(candidate.any()):
            gains = (cover & ~covered).sum(dim=1)
            most = torch.where(candidate, gains, -1)
            best = int(torch.nonzero(most == most.max())[0])
            covered |= cover[best]
            candidate &= ~cover[best]
            picked[best] = True
            picks.append(best)
    return torch.tensor(picks, device=h.device)


SELECTORS: dict[str, Callable[[Tensor, int, float], Tensor]] = {
    "evergraph": coverage_diversity,
    "dense": dense,
}


def measure(name: str, nodes: int, options: argparse.Namespace) -> tuple[Figures, list[int]]:
    """Times one selection and takes its peak memory beyond the embeddings, in MB."""
    select = SELECTORS[name]
    # First unmeasured, so that kernels are compiled: a small class and one beyond a block.
    for size in (200, 4200 if options.device != "cpu" else 200):
        select(clustered(size, options.dim).to(options.device), 50, options.r)
    h = clustered(nodes, options.dim).to(options.device)
    held = memory(h)
    begin = time.perf_counter()
    picks = select(h, options.picks, options.r).tolist()  # waits for the device
    seconds = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated() if h.is_cuda else memory(h)
    return {"seconds": round(seconds, 4), "peak_mb": round((peak - held) / 1e6, 1)}, picks


def memory(h: Tensor) -> int:
    """Bytes held now on the GPU, or by this process at its highest."""
    if h.is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def apart(name: str, nodes: int, options: argparse.Namespace) -> tuple[Figures, list[int]]:
    """Measures in a process of its own on the CPU, where a peak cannot be set back."""
    if options.device != "cpu":
        return measure(name, nodes, options)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, name, nodes, options).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--sizes", help="several numbers of nodes, ascending: 1000,2000,4000")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--picks", type=int, default=100)
    parser.add_argument("--r", type=float, default=0.3)
    parser.add_argument("--dense", action="store_true", help="time the dense alternative as well")
    options = parser.parse_args()
    sizes = [int(n) for n in options.sizes.split(",")] if options.sizes else [options.nodes]
    rows = []
    for nodes in sizes:
        ours, picks = apart("evergraph", nodes, options)
        row: dict[str, Any] = {"nodes": nodes, **ours}
        if options.dense:
            row["dense"], expected = apart("dense", nodes, options)
            row["same_picks"] = picks == expected
        rows.append(row)
    growth = {
        key: fit_exponent({row["nodes"]: row[key] for row in rows})
        for key in ("seconds", "peak_mb")
    }
    answer = {"benchmark": "selection", **vars(options), "rows": rows, "growth": growth}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
