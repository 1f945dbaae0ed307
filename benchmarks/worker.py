"""One side of a benchmark in a process of its own: steps when told, then tells its memory.

    python benchmarks/worker.py SIDE SIZE

Reads from standard input how many steps to take and answers with the seconds each took; the end
of the input ends it with the peak memory of the steps in bytes: the process's maximum RSS less its
RSS before the first step.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from pathlib import Path

import torch
from sides import make_step, make_stream

THREADS = 2


def resident() -> int:
    """Returns the bytes of memory this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main(side: str, size: str) -> None:
    torch.set_num_threads(THREADS)
    torch.set_flush_denormal(True)
    make_step(side, make_stream("toy"))()  # imports and compiles whatever a first step needs
    step = make_step(side, make_stream(size))
    gc.collect()
    before = resident()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps({"seconds": seconds}), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak_bytes": max(peak - before, 0)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
